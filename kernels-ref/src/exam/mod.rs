//! The exam: what any backend must pass, ours or a stranger's.
//!
//! It knows nothing of dispatch. Each function here takes an [`Exam`] and one kernel, and puts the kernel through named
//! properties over sizes at and around every tile, misaligned inputs, canaries around outputs that start as NaN, and
//! hostile numbers. Kernels of rows and attention must equal the reference bit for bit; a matrix product may say that it
//! does not, and is then held to the bounds in [`bounds`].

mod attention;
pub mod bounds;
mod buffers;
mod compare;
mod elements;
pub mod fills;
mod products;
mod report;
mod rows;

pub use attention::{append, attend, merge_spans};
pub use elements::{add, embed_row, gelu_mul, limited_mul, quantize, silu_mul, soft_cap};
pub use products::{Panels, Product, Tile, product};
pub use report::{Failure, Report};
pub use rows::{rms_norm, rope_halves, rope_pairs, softmax};

use std::panic::{AssertUnwindSafe, catch_unwind};

use compare::Fault;
use fills::Random;

/// A sitting: runs cases, counts them and collects what failed.
#[derive(Debug)]
pub struct Exam {
    only: Vec<String>,
    report: Report,
}

impl Exam {
    /// A sitting of `backend`. `only` picks cases: those whose line holds every word of it; empty for all.
    ///
    /// The line of a case is what a failure prints: backend, operation, property and sizes, such as
    /// `avx2 softmax softmax_sums_to_one n=17 fill=gaussian`.
    pub fn new(backend: &str, only: &str) -> Self {
        Exam { only: only.split_whitespace().map(str::to_owned).collect(), report: Report::new(backend) }
    }

    /// What came of it.
    pub fn finish(self) -> Report {
        self.report
    }

    /// Runs one case, unless it is not asked for. The seed follows from the case alone, so a case is the same in any
    /// sitting of any backend. A panic is a failure like another.
    fn case(&mut self, operation: &str, property: &'static str, sizes: &str, check: impl FnOnce(&mut Random) -> Result<(), Fault>) {
        let backend = self.report.backend();
        let words = || [backend, operation, property].into_iter().chain(sizes.split(' '));
        if !self.only.iter().all(|wanted| words().any(|word| word == wanted)) {
            return;
        }
        let seed = fills::seed(&[property, sizes]);
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&mut Random::new(seed))));
        let outcome = outcome.unwrap_or_else(|panic| Err(Fault::panicked(&*panic)));
        self.report.record(outcome.err().map(|fault| Failure::new(backend, operation, property, sizes, seed, fault)));
    }
}
