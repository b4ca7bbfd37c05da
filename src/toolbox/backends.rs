//! `rml backends`: who can run here, who cannot and why, whether they compute right, and what a model takes.

use rml_backends::Registry;
use rml_backends::exam::{self, Report};
use serde_json::{Value, json};

use super::Output;
use super::target::Target;
use crate::exec::choice::{Choice, FormatChoice, Measured};
use crate::model::registry;
use crate::program::Halt;

/// List the backends, and with a model what each makes of its formats
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Measure with this model, and show what it takes
    model: Option<String>,

    /// Compare every kernel of every backend that can run here with the reference; RML_EXAM picks cases by the words of a failure
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    target: Target,
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> Result<(), Halt> {
        let registry = registry()?;
        let model = self.model.as_ref().map(|model| self.target.load(model)).transpose()?;
        let only = std::env::var("RML_EXAM").unwrap_or_default();
        let reports = if self.check { Some(sit(&registry, &only)?) } else { None };
        let choice = model.as_ref().map(|model| model.choice());
        out.either(|| document(&registry, reports.as_deref(), choice), || text(&registry, reports.as_deref(), choice))?;
        verdict(reports.as_deref().unwrap_or_default())
    }
}

/// Every backend that can run here sits the exam; `only` picks cases by words of their line.
fn sit(registry: &Registry, only: &str) -> crate::Result<Vec<Report>> {
    let runnable = registry.backends().iter().filter(|r| r.refusal.is_none()).map(|r| r.backend.name());
    let report = |name| Ok(exam::sit(&registry.table_of(name).map_err(|r| crate::Error::Backend(r.0))?, name, only));
    let reports: Vec<Report> = runnable.map(report).collect::<crate::Result<_>>()?;
    if reports.iter().all(|report| report.cases() == 0) {
        return Err(crate::Error::invalid(
            "RML_EXAM",
            format!("no case has all the words of {only:?}; they are those of a failure's line"),
        ));
    }
    Ok(reports)
}

/// Fails if a backend did.
fn verdict(reports: &[Report]) -> Result<(), Halt> {
    let failed: Vec<_> = reports.iter().filter(|r| !r.passed()).map(Report::backend).collect();
    if failed.is_empty() { Ok(()) } else { Err(Halt::Failed(format!("not as the reference computes: {}", failed.join(", ")))) }
}

fn cpu(registry: &Registry) -> String {
    let features: Vec<_> = registry.cpu().iter().collect();
    format!("{} ({})", std::env::consts::ARCH, features.join(" "))
}

/// The formats that a backend which can run here does not multiply to the reference's bits.
fn inexact(registry: &Registry, name: &str) -> Vec<&'static str> {
    let Ok(table) = registry.table_of(name) else { return Vec::new() };
    table.inexact().filter(|(owner, _)| *owner == name).map(|(_, kernel)| kernel.format().name()).collect()
}

fn document(registry: &Registry, reports: Option<&[Report]>, choice: Option<&Choice>) -> Value {
    let listed = registry.backends().iter().map(|r| {
        let name = r.backend.name();
        let mut listed = json!({"name": name, "rank": r.backend.rank(), "refusal": r.refusal.as_ref().map(|r| &r.0)});
        if r.refusal.is_none() {
            listed["exact"] = inexact(registry, name).is_empty().into();
        }
        if let Some(report) = reports.into_iter().flatten().find(|report| report.backend() == name) {
            let failures = report.failures().iter().map(|f| json!({"case": f.line(), "property": f.property, "fault": f.fault}));
            listed["exam"] = json!({"cases": report.cases(), "failures": failures.collect::<Vec<_>>()});
        }
        listed
    });
    let mut document = json!({"cpu": cpu(registry), "backends": listed.collect::<Vec<_>>()});
    if let Some(choice) = choice {
        document["choice"] = choice.formats().iter().flat_map(|f| [decode(f), prefill(f)]).collect();
        document["slots"] = slots(choice).map(|(slot, owner)| (slot.to_owned(), owner.into())).collect::<serde_json::Map<_, _>>().into();
    }
    document
}

fn text(registry: &Registry, reports: Option<&[Report]>, choice: Option<&Choice>) -> String {
    let mut text = format!("cpu: {}\n", cpu(registry));
    for r in registry.backends() {
        let state = match &r.refusal {
            Some(reason) => format!("cannot run here: {reason}"),
            None => match &inexact(registry, r.backend.name())[..] {
                [] => "can run here".to_owned(),
                formats => format!("can run here; not to the bit: {}", formats.join(", ")),
            },
        };
        text += &format!("{:12} rank {:2}  {state}\n", r.backend.name(), r.backend.rank());
    }
    if let Some(reports) = reports {
        text += "\nexam\n";
        text += &reports.iter().map(|report| format!("{report}\n")).collect::<String>();
    }
    if let Some(choice) = choice {
        text += &table(choice);
    }
    text
}

fn decode(choice: &FormatChoice) -> Value {
    class(choice, "decode", "gb_s", |c| c.decode)
}

fn prefill(choice: &FormatChoice) -> Value {
    class(choice, "prefill", "gop_s", |c| c.prefill)
}

fn class(choice: &FormatChoice, class: &str, unit: &str, measured: impl Fn(&crate::exec::choice::Candidate) -> Option<Measured>) -> Value {
    let candidates = choice.candidates.iter().map(|c| {
        let m = measured(c);
        json!({
            "kernel": c.kernel.id(),
            "us": m.map(|m| m.us),
            unit: m.map(|m| m.rate),
            "exact": c.kernel.exact(),
            "refusal": c.refusal.as_ref().map(|r| &r.0),
        })
    });
    json!({"format": choice.format.name(), "class": class, "kernel": choice.kernel.id(), "candidates": candidates.collect::<Vec<_>>()})
}

/// The operations that are not products, and whose each is.
fn slots(choice: &Choice) -> impl Iterator<Item = (&'static str, &'static str)> {
    let t = choice.table();
    [
        ("embed_row", t.embed_row.owner()),
        ("rms_norm", t.rms_norm.owner()),
        ("quantize", t.quantize.owner()),
        ("rope_pairs", t.rope_pairs.owner()),
        ("rope_halves", t.rope_halves.owner()),
        ("attend", t.attend.owner()),
        ("softmax", t.softmax.owner()),
        ("silu_mul", t.silu_mul.owner()),
        ("gelu_mul", t.gelu_mul.owner()),
        ("limited_mul", t.limited_mul.owner()),
        ("soft_cap", t.soft_cap.owner()),
        ("add", t.add.owner()),
    ]
    .into_iter()
}

fn table(choice: &Choice) -> String {
    let mut text = String::new();
    for format in choice.formats() {
        text += &format!("\n{}\n", format.format.name());
        for c in &format.candidates {
            let mark = if c.kernel.id() == format.kernel.id() { '*' } else { ' ' };
            let times = match (c.decode, c.prefill, &c.refusal) {
                (_, _, Some(reason)) => reason.to_string(),
                (Some(d), Some(p), _) => {
                    format!("decode {:7.1} us {:6.2} GB/s   prefill {:8.1} us {:7.1} GOP/s", d.us, d.rate, p.us, p.rate)
                }
                (Some(d), None, _) => format!("decode {:7.1} us {:6.2} GB/s   (too slow to go on)", d.us, d.rate),
                (None, ..) => "not measured".into(),
            };
            let inexact = if c.kernel.exact() { "" } else { "   (not to the bit: taken when named)" };
            text += &format!("{mark} {:28} {times}{inexact}\n", c.kernel.id());
        }
    }
    text += "\nother operations: ";
    text += &slots(choice).map(|(slot, owner)| format!("{slot} {owner}")).collect::<Vec<_>>().join(", ");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rml_backends::{Backend, CpuFeatures, KernelTable, Refusal};

    /// A backend whose `add` subtracts, if it runs at all.
    #[derive(Debug)]
    struct Wrong {
        name: &'static str,
        refusal: Option<&'static str>,
    }

    impl Backend for Wrong {
        fn name(&self) -> &'static str {
            self.name
        }

        fn rank(&self) -> u32 {
            1
        }

        fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
            self.refusal.map_or(Ok(()), |reason| Err(Refusal::new(reason)))
        }

        fn install(&self, _: &CpuFeatures, table: &mut KernelTable) {
            table.add.put(self.name, |acc, x| acc.iter_mut().zip(x).for_each(|(acc, x)| *acc -= x));
        }
    }

    fn registry() -> Registry {
        let backends: [&'static dyn Backend; 2] =
            [&Wrong { name: "wrong", refusal: None }, &Wrong { name: "absent", refusal: Some("this CPU has no luck") }];
        Registry::of(CpuFeatures::detect("").unwrap(), backends)
    }

    #[test]
    fn a_refusal_is_listed_with_its_reason() {
        let registry = registry();
        let reports = sit(&registry, "").unwrap();
        assert!(text(&registry, None, None).contains("absent       rank  1  cannot run here: this CPU has no luck\n"));
        let listed = &document(&registry, Some(&reports), None)["backends"][0];
        assert_eq!(listed, &json!({"name": "absent", "rank": 1, "refusal": "this CPU has no luck"}), "and it sits no exam");
    }

    #[test]
    fn a_backend_that_fails_is_told_in_every_form() {
        let registry = registry();
        let reports = sit(&registry, "").unwrap();
        let Err(Halt::Failed(reason)) = verdict(&reports) else { panic!("it must fail") };
        assert!(reason.ends_with(": wrong"), "{reason}");
        let exam = &document(&registry, Some(&reports), None)["backends"][1]["exam"];
        let failures = exam["failures"].as_array().unwrap();
        assert!(!failures.is_empty() && exam["cases"].as_u64() >= Some(failures.len() as u64), "{exam}");
        for failure in failures {
            assert!(failure["case"].as_str().unwrap().starts_with("wrong add "), "{failure}");
            assert!(failure["property"].is_string() && failure["fault"].is_string(), "{failure}");
        }
        let text = text(&registry, Some(&reports), None);
        assert!(text.contains("cases failed") && text.contains("RML_EXAM='wrong add "), "{text}");
    }
}
