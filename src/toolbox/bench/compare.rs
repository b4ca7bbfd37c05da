//! `rml bench --compare`: every backend that can run here, in turns, so that whatever the machine does meanwhile meets all alike.

use std::path::Path;
use std::time::{Duration, Instant};

use rml_backends::Registry;
use serde_json::json;

use super::{Args, Test, chosen, median, prepare};
use crate::decode::{KvType, State};
use crate::model::registry;
use crate::program::{Halt, counted, note};
use crate::toolbox::machine::machine;
use crate::toolbox::new_file::write_new;
use crate::toolbox::plot::{Bar, Group, chart};
use crate::toolbox::{Output, target};
use crate::{LoadOptions, Model};

/// A test that takes a backend longer than this is not repeated for it.
const LONG: Duration = Duration::from_secs(10);

/// A backend, or what else `--backend` asks for, and the model on it.
struct Contestant {
    name: String,
    model: Model,
}

/// What one of them did in one test.
struct Outcome<'a> {
    name: &'a str,
    kernels: String,
    rates: Vec<f64>, // tokens a second
}

impl Outcome<'_> {
    /// Whether its matrices are multiplied by another than it is called.
    fn kernels_of_others(&self) -> bool {
        !self.name.split(',').any(|name| name == self.kernels)
    }

    /// Who multiplies, if another than it is called.
    fn helped(&self) -> Option<String> {
        self.kernels_of_others().then(|| format!("matrices of {} by {}", self.name, self.kernels))
    }
}

impl Args {
    /// Measures and prints, and draws if a file was named.
    pub(super) fn compare(&self, out: &mut Output) -> Result<(), Halt> {
        let path = target::file(&self.model)?;
        let names = if self.backends.is_empty() { runnable(&registry()?) } else { super::requests(&self.backends) };
        let mut groups = Vec::new();
        let mut threads_taken = Vec::new();
        let mut helped = Vec::new();
        for &threads in self.thread_counts() {
            let all = load(&path, &names, threads)?;
            threads_taken.push(counted(all[0].model.team().n_threads(), "thread"));
            for (kv_name, kv) in self.kinds()? {
                for &depth in &self.depths {
                    for test in self.tests() {
                        let place = format!("depth {depth}, {}, kv {kv_name}", threads_taken[threads_taken.len() - 1]);
                        let outcomes = self.in_turns(&all, kv, depth, test)?;
                        groups.push(group(&test.name(), &place, &outcomes));
                        helped.extend(outcomes.iter().filter_map(Outcome::helped));
                        let threads = all[0].model.team().n_threads();
                        if out.json {
                            print_json(out, &outcomes, |o, ratio| {
                                json!({
                                    "test": test.name(), "depth": depth, "threads": threads, "backend": o.name, "kernels": o.kernels,
                                    "kv": kv_name, "tok_s_median": median(&o.rates), "tok_s": o.rates, "of_best": ratio,
                                })
                            })?;
                        } else {
                            out.screen.line(table(&test.name(), &place, &outcomes))?;
                        }
                    }
                }
            }
        }
        if let Some(file) = &self.plot {
            let about = about(&names[0], self.repeats, &helped);
            let svg = chart(&format!("{}: tokens a second", model_name(&path)), &about, &groups);
            write_new(file, true, |to| {
                let io = |source| crate::Error::Io { path: file.clone(), action: "write", source };
                std::io::Write::write_all(to, svg.as_bytes()).map_err(io)
            })?;
            note(&format!("drawn to {}", file.display()));
        }
        Ok(())
    }

    /// One test of all, round by round.
    fn in_turns<'a>(&self, all: &'a [Contestant], kv: KvType, depth: usize, test: Test) -> Result<Vec<Outcome<'a>>, Halt> {
        let mut states: Vec<State> = Vec::with_capacity(all.len());
        for contestant in all {
            states.push(prepare(&contestant.model, kv, depth, test.n())?);
        }
        let outcome = |c: &'a Contestant| Outcome { name: &c.name, kernels: chosen(&c.model), rates: Vec::with_capacity(self.repeats) };
        let mut outcomes: Vec<_> = all.iter().map(outcome).collect();
        let mut long = vec![false; all.len()];
        for _ in 0..self.repeats {
            for (i, contestant) in all.iter().enumerate().filter(|(i, _)| !long[*i]).collect::<Vec<_>>() {
                states[i].truncate(depth);
                let start = Instant::now();
                outcomes[i].rates.push(test.rate(&contestant.model, &mut states[i])?);
                long[i] = start.elapsed() > LONG;
            }
        }
        Ok(outcomes)
    }
}

fn runnable(registry: &Registry) -> Vec<String> {
    registry.backends().iter().filter(|r| r.refusal.is_none()).map(|r| r.backend.name().to_owned()).collect()
}

/// The model on each backend, all on the same threads.
fn load(path: &Path, names: &[String], threads: usize) -> Result<Vec<Contestant>, Halt> {
    let mut all: Vec<Contestant> = Vec::with_capacity(names.len());
    for name in names {
        let options = LoadOptions { backend: Some(name.clone()), threads, ..LoadOptions::default() };
        let model = match all.first() {
            None => Model::load(path, &options)?,
            Some(first) => Model::load_beside(path, &options, &first.model)?,
        };
        all.push(Contestant { name: name.clone(), model });
    }
    Ok(all)
}

fn model_name(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn best(outcomes: &[Outcome<'_>]) -> f64 {
    outcomes.iter().map(|o| median(&o.rates)).fold(0.0, f64::max)
}

fn print_json(out: &mut Output, outcomes: &[Outcome<'_>], line: impl Fn(&Outcome<'_>, f64) -> serde_json::Value) -> Result<(), Halt> {
    let best = best(outcomes);
    outcomes.iter().try_for_each(|o| out.either(|| line(o, median(&o.rates) / best), String::new))
}

/// A heading, then a line for each: rate, spread, and how many times the first one's rate that is.
fn table(test: &str, place: &str, outcomes: &[Outcome<'_>]) -> String {
    let (best, first) = (best(outcomes), median(&outcomes[0].rates));
    let width = outcomes.iter().map(|o| o.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{test}  {place}");
    for o in outcomes {
        let rate = median(&o.rates);
        let (least, most) = o.rates.iter().fold((f64::INFINITY, 0f64), |(a, b), &r| (a.min(r), b.max(r)));
        let mark = if rate == best { '*' } else { ' ' };
        let ratio =
            if std::ptr::eq(o, &raw const outcomes[0]) { String::new() } else { format!("  {:6.2} x {}", rate / first, outcomes[0].name) };
        text += &format!("\n{mark} {:width$} {rate:10.2} tok/s  ({least:.2} to {most:.2}){ratio}", o.name);
        if o.kernels_of_others() {
            text += &format!("   matrices by {}", o.kernels);
        }
    }
    text
}

fn group(test: &str, place: &str, outcomes: &[Outcome<'_>]) -> Group {
    let first = median(&outcomes[0].rates);
    let bars = outcomes.iter().map(|o| {
        let rate = median(&o.rates);
        let ratio = if o.name == outcomes[0].name { String::new() } else { format!(", {:.2} x", rate / first) };
        Bar { label: o.name.to_owned(), value: rate, number: format!("{rate:.*} tok/s{ratio}", usize::from(rate < 100.0)) }
    });
    Group { title: format!("{test}: {}, {place}", meaning(test)), bars: bars.collect() }
}

/// What stands below the title: how to read it, whose kernels multiply where another's name stands, and on what machine.
fn about(first: &str, repeats: usize, helped: &[String]) -> Vec<String> {
    let mut helped = helped.to_vec();
    helped.sort();
    helped.dedup();
    let mut lines = vec![format!("longer is better; medians of {}, backends in turns; x: times {first}", counted(repeats, "run"))];
    if !helped.is_empty() {
        lines.push(helped.join("; "));
    }
    lines.push(format!("measured with rml {} on {}", env!("CARGO_PKG_VERSION"), machine()));
    lines
}

fn meaning(test: &str) -> &'static str {
    if test.starts_with("pp") { "prefill" } else { "decode" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_first_and_the_best_is_marked() {
        let outcome = |name, rates: &[f64]| Outcome { name, kernels: name.into(), rates: rates.to_vec() };
        let outcomes = [outcome("ref", &[10.0, 30.0, 20.0]), outcome("quick", &[80.0]), outcome("slow", &[5.0, 5.0])];
        let text = table("tg8", "depth 0", &outcomes);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(
            lines[1].starts_with("  ref") && lines[1].contains(" 20.00 tok/s  (10.00 to 30.00)") && !lines[1].contains(" x "),
            "{text}"
        );
        assert!(lines[2].starts_with("* quick") && lines[2].ends_with("4.00 x ref"), "{text}");
        assert!(lines[3].starts_with("  slow") && lines[3].ends_with("0.25 x ref"), "{text}");
        let drawn = group("tg8", "depth 0", &outcomes);
        assert_eq!(drawn.bars[1].number, "80.0 tok/s, 4.00 x");
    }

    #[test]
    fn a_picture_says_what_was_measured() {
        let outcome = |name, kernels: &str| Outcome { name, kernels: kernels.into(), rates: vec![1.0] };
        let outcomes = [outcome("ref", "ref"), outcome("mine", "ref"), outcome("auto,mine", "quick"), outcome("mine", "ref")];
        let helped: Vec<_> = outcomes.iter().filter_map(Outcome::helped).collect();
        let lines = about("ref", 5, &helped);
        assert_eq!(lines[0], "longer is better; medians of 5 runs, backends in turns; x: times ref");
        assert_eq!(lines[1], "matrices of auto,mine by quick; matrices of mine by ref");
        assert!(lines[2].starts_with("measured with rml ") && lines[2].ends_with(&machine()) && lines.len() == 3, "{lines:?}");
        assert_eq!(about("ref", 1, &[]).len(), 2);
    }
}
