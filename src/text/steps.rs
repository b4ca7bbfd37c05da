//! What text goes through before a model of the crate `tokenizers` encodes it: changes of its characters, and cuts into words.
//!
//! Both may come from a file that nobody looked over. Regular expressions are searched for here, since the crate panics where
//! Oniguruma gives up; maps of characters are looked over first, and how much text may grow is bounded.

use std::sync::OnceLock;

use onig::{MatchParam, Regex, Region, SearchOptions};
use serde_json::Value as Json;
use tokenizers::pattern::{Invert, Pattern};
use tokenizers::{
    NormalizedString, Normalizer, NormalizerWrapper, Offsets, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper,
    SplitDelimiterBehavior,
};

use super::charsmap;

/// Most steps of either kind: published ones have up to ten.
const MOST_STEPS: usize = 64;

/// So many times as many bytes, at most, replacements may make of a text; published ones make three of one.
const MOST_GROWTH: usize = 1024;

/// Steps back from one place of a text after which a search is given up: ten milliseconds or so. Published expressions step back
/// by a run of white space, if at all.
const MOST_STEPS_BACK: u32 = 1_000_000;

/// Why a description cannot be used, as a clause.
type Described<T> = Result<T, String>;

/// A regular expression.
#[derive(Debug)]
struct Search(Regex);

impl Search {
    fn new(pattern: &str) -> Described<Self> {
        Regex::new(pattern).map(Search).map_err(|e| format!("the regular expression {pattern:?} is none: {e}"))
    }
}

/// Matches, and what is between them, as the crate finds them.
impl Pattern for &Search {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let mut pieces = Vec::with_capacity(inside.len());
        let mut region = Region::new();
        let (mut from, mut end, mut last) = (0, 0, None);
        while from <= inside.len() {
            region.clear();
            let options = SearchOptions::SEARCH_OPTION_NONE;
            let mut limits = MatchParam::default();
            limits.set_retry_limit_in_match(MOST_STEPS_BACK);
            self.0.search_with_param(inside, from, inside.len(), options, Some(&mut region), limits)?;
            let Some((start, stop)) = region.pos(0) else { break };
            if start == stop && last == Some(stop) {
                // An empty match right behind another would be found for ever.
                from += inside[from..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
            if end != start {
                pieces.push(((end, start), false));
            }
            pieces.push(((start, stop), true));
            (from, end, last) = (stop, stop, Some(stop));
        }
        if end != inside.len() {
            pieces.push(((end, inside.len()), false));
        }
        Ok(pieces)
    }
}

/// Changes of characters, in order.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<Change>);

#[derive(Debug)]
enum Change {
    Replace { search: Search, with: String },
    Given(NormalizerWrapper),
}

impl Changes {
    pub(super) fn push(&mut self, change: impl Into<NormalizerWrapper>) {
        self.0.push(Change::Given(change.into()));
    }

    /// Every match of a regular expression becomes `with`.
    pub(super) fn replace(&mut self, pattern: &str, with: &str) -> Described<()> {
        self.0.push(Change::Replace { search: Search::new(pattern)?, with: with.to_owned() });
        Ok(())
    }

    /// The `normalizer` of a `tokenizer.json`.
    pub(super) fn of_json(json: &Json) -> Described<Self> {
        let mut changes = Changes::default();
        let mut growth = 1_usize;
        for part in steps(json, "normalizers")? {
            match kind(part)? {
                "Precompiled" => {
                    let map = part["precompiled_charsmap"].as_str().and_then(charsmap::of_base64);
                    map.ok_or("its precompiled_charsmap is no base 64, or points beyond its end")?;
                    changes.push(given::<NormalizerWrapper>(part)?);
                }
                "Replace" => {
                    let with = part["content"].as_str().ok_or("a Replace has no content")?;
                    growth = growth.saturating_mul(with.len().max(1));
                    match part["pattern"]["Regex"].as_str() {
                        Some(pattern) => changes.replace(pattern, with)?,
                        None => changes.push(given::<NormalizerWrapper>(part)?),
                    }
                }
                _ => changes.push(given::<NormalizerWrapper>(part)?),
            }
        }
        if growth > MOST_GROWTH {
            return Err(format!("its replacements can make a text {growth} times as long"));
        }
        Ok(changes)
    }
}

impl Normalizer for Changes {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        for change in &self.0 {
            match change {
                Change::Replace { search, with } => text.replace(search, with)?,
                Change::Given(step) => step.normalize(text)?,
            }
            // Where each character came from is of no use here, and the next step would trust it: after a replacement of nothing
            // at an end of the text it does not add up.
            *text = NormalizedString::from(text.get());
        }
        Ok(())
    }
}

/// Changes that remember the first error, which the crate's search for added tokens drops.
pub(super) struct Remembered<'a> {
    pub(super) changes: &'a Changes,
    pub(super) error: OnceLock<tokenizers::Error>,
}

impl Normalizer for Remembered<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        if let Err(e) = self.changes.normalize(text) {
            // Of several errors the first says enough.
            let _ = self.error.set(e);
        }
        Ok(())
    }
}

/// Cuts into words, in order.
#[derive(Debug, Default)]
pub(super) struct Cuts(Vec<Cut>);

#[derive(Debug)]
enum Cut {
    Split { search: Search, behavior: SplitDelimiterBehavior, invert: bool },
    Given(PreTokenizerWrapper),
}

impl Cuts {
    pub(super) fn push(&mut self, cut: impl Into<PreTokenizerWrapper>) {
        self.0.push(Cut::Given(cut.into()));
    }

    /// Each match becomes a piece, and so does what is between matches.
    pub(super) fn isolate(&mut self, pattern: &str) -> Described<()> {
        self.0.push(Cut::Split { search: Search::new(pattern)?, behavior: SplitDelimiterBehavior::Isolated, invert: false });
        Ok(())
    }

    /// The `pre_tokenizer` of a `tokenizer.json`.
    pub(super) fn of_json(json: &Json) -> Described<Self> {
        let mut cuts = Cuts::default();
        for part in steps(json, "pretokenizers")? {
            match (kind(part)?, part["pattern"]["Regex"].as_str()) {
                ("Split", Some(pattern)) => {
                    let behavior = given(&part["behavior"])?;
                    cuts.0.push(Cut::Split { search: Search::new(pattern)?, behavior, invert: part["invert"] == true });
                }
                ("FixedLength", _) if part["length"] == 0 => return Err("it cuts into pieces of length 0".to_owned()),
                _ => cuts.push(given::<PreTokenizerWrapper>(part)?),
            }
        }
        Ok(cuts)
    }

    pub(super) fn cut(&self, pieces: &mut PreTokenizedString) -> tokenizers::Result<()> {
        for cut in &self.0 {
            match cut {
                Cut::Split { search, behavior, invert: true } => pieces.split(|_, text| text.split(Invert(search), *behavior))?,
                Cut::Split { search, behavior, invert: false } => pieces.split(|_, text| text.split(search, *behavior))?,
                Cut::Given(step) => step.pre_tokenize(pieces)?,
            }
        }
        Ok(())
    }
}

/// The steps of a description, those of sequences one by one.
fn steps<'a>(json: &'a Json, of_sequence: &str) -> Described<Vec<&'a Json>> {
    let mut steps = Vec::new();
    let mut waiting = vec![json];
    while let Some(part) = waiting.pop() {
        if part.is_null() {
            continue;
        }
        if part["type"] == "Sequence" {
            let parts = part[of_sequence].as_array().ok_or_else(|| format!("a Sequence has no {of_sequence}"))?;
            waiting.extend(parts.iter().rev());
        } else {
            steps.push(part);
        }
        if steps.len() + waiting.len() > MOST_STEPS {
            return Err(format!("it has more than {MOST_STEPS} steps"));
        }
    }
    Ok(steps)
}

fn kind(part: &Json) -> Described<&str> {
    part["type"].as_str().ok_or_else(|| "a step has no type".to_owned())
}

fn given<T: serde::de::DeserializeOwned>(part: &Json) -> Described<T> {
    T::deserialize(part).map_err(|e| e.to_string())
}
