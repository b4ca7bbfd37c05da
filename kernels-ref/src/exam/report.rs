//! What came of an exam.

use std::fmt;

use super::compare::Fault;

/// Failures that are printed in full.
const PRINTED: usize = 3;

/// How many cases a backend sat and which of them it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    backend: String,
    cases: usize,
    failures: Vec<Failure>,
}

/// A case that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The backend.
    pub backend: String,
    /// The slot, or the id of a matrix product.
    pub operation: String,
    /// The property that does not hold.
    pub property: &'static str,
    /// Sizes and fills, such as `m=3 n=17 k=64 w=ordinary x=gaussian`.
    pub sizes: String,
    /// Seed of the case's numbers.
    pub seed: u64,
    /// What was wrong, with the worst element.
    pub fault: String,
}

impl Failure {
    pub(super) fn new(backend: &str, operation: &str, property: &'static str, sizes: &str, seed: u64, fault: Fault) -> Self {
        let (backend, operation, sizes) = (backend.to_owned(), operation.to_owned(), sizes.to_owned());
        Failure { backend, operation, property: fault.property.unwrap_or(property), sizes, seed, fault: fault.text }
    }

    /// The words that pick this case, see [`super::Exam::new`].
    pub fn line(&self) -> String {
        format!("{} {} {}", self.backend, self.operation, self.sizes)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { backend, operation, property, sizes, seed, fault } = self;
        writeln!(f, "{backend} {operation}: {property} does not hold")?;
        writeln!(f, "  at {sizes} seed={seed:#018x}: {fault}")?;
        write!(f, "  again: the same command with RML_EXAM='{}'", self.line())
    }
}

impl Report {
    pub(super) fn new(backend: &str) -> Self {
        Report { backend: backend.to_owned(), cases: 0, failures: Vec::new() }
    }

    pub(super) fn record(&mut self, failure: Option<Failure>) {
        self.cases += 1;
        self.failures.extend(failure);
    }

    /// Who sat.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Cases run.
    pub fn cases(&self) -> usize {
        self.cases
    }

    /// Cases failed, in the order of the exam.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Whether every case held.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { backend, cases, failures } = self;
        if failures.is_empty() {
            return write!(f, "{backend}: {cases} cases hold");
        }
        write!(f, "{backend}: {} of {cases} cases failed", failures.len())?;
        for failure in failures.iter().take(PRINTED) {
            write!(f, "\n{failure}")?;
        }
        if failures.len() > PRINTED {
            write!(f, "\nand {} more", failures.len() - PRINTED)?;
        }
        Ok(())
    }
}
