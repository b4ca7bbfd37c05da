//! `RML_TRACE`: says on standard error which kernel runs for which operation and shape.
//!
//! What is traced is decided when a model is loaded. Where it is off, a step pays for a look at an `Option`.

use std::collections::HashSet;
use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use rml_backends::KernelTable;
use rml_backends::matmul::MatmulKernel;
use rml_backends::table::Slot;
use rml_kernels_ref::format::Format;

use crate::{Error, Result};

/// Words of `RML_TRACE`.
const WORDS: [&str; 1] = ["dispatch"];

/// The kernels that have been named so far.
#[derive(Debug, Default)]
pub struct Trace {
    seen: Mutex<HashSet<Dispatch>>,
}

/// How many tokens an operation is for. Kernels differ in what they do for one, for a few and for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tokens {
    One,
    Few,
    Many,
}

/// One line of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Dispatch {
    operation: &'static str,
    format: Option<Format>,
    n: usize, // 0 where an operation has rows of `k` alone
    k: usize,
    tokens: Tokens,
    kernel: &'static str,
    owner: &'static str,
}

impl Trace {
    /// What the comma-separated `words` ask for, if anything.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a word that is unknown: a text that lists those there are.
    pub fn new(words: &str) -> Result<Option<Self>> {
        let mut asked = words.split(',').map(str::trim).filter(|w| !w.is_empty()).peekable();
        let any = asked.peek().is_some();
        match asked.find(|w| !WORDS.contains(w)) {
            Some(word) => {
                Err(Error::invalid("RML_TRACE", format!("{word:?} is nothing that can be traced; there is {}", WORDS.join(", "))))
            }
            None => Ok(any.then(Trace::default)),
        }
    }

    /// `m` tokens go through a slot, each with `n` rows (0: the one it has) of `k` numbers.
    pub(crate) fn slot<F: Copy>(&self, operation: &'static str, slot: &Slot<F>, (n, k): (usize, usize), m: usize) {
        let owner = slot.owner();
        self.say(Dispatch { operation, format: None, n, k, tokens: Tokens::of(m), kernel: owner, owner });
    }

    /// The embedding of a token, `k` weights, is widened.
    pub(crate) fn embed_row(&self, table: &KernelTable, format: Format, k: usize) {
        let owner = table.embed_row.owner();
        self.say(Dispatch { operation: "embed_row", format: Some(format), n: 0, k, tokens: Tokens::One, kernel: owner, owner });
    }

    /// `m` tokens are multiplied with a matrix of `n` rows and `k` columns.
    pub(crate) fn matmul(&self, table: &KernelTable, kernel: &dyn MatmulKernel, (n, k): (usize, usize), m: usize) {
        let format = kernel.format();
        let kernel = kernel.instead(m).map_or(kernel, |other| other);
        let offered = table.matmul(format).iter();
        let owner = offered.filter(|(_, k)| k.id() == kernel.id()).map(|(owner, _)| *owner).last().unwrap_or("another table");
        self.say(Dispatch { operation: "matmul", format: Some(format), n, k, tokens: Tokens::of(m), kernel: kernel.id(), owner });
    }

    fn say(&self, dispatch: Dispatch) {
        if self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(dispatch) {
            // Where standard error is closed there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "{dispatch}");
        }
    }
}

impl Tokens {
    fn of(m: usize) -> Self {
        match m {
            0..=1 => Tokens::One,
            2..=8 => Tokens::Few,
            _ => Tokens::Many,
        }
    }
}

/// `dispatch: matmul q4_0 n=1536 k=576 m=1: avx2:q4_0·q8:16x4 of avx2`.
impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dispatch: {}", self.operation)?;
        if let Some(format) = self.format {
            write!(f, " {format}")?;
        }
        if self.n > 0 {
            write!(f, " n={}", self.n)?;
        }
        let m = match self.tokens {
            Tokens::One => "m=1",
            Tokens::Few => "m=2..8",
            Tokens::Many => "m>8",
        };
        write!(f, " k={} {m}: ", self.k)?;
        if self.kernel == self.owner { write!(f, "{}", self.owner) } else { write!(f, "{} of {}", self.kernel, self.owner) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_or_refused() {
        assert!(matches!((Trace::new(""), Trace::new(" , ")), (Ok(None), Ok(None))));
        assert!(matches!((Trace::new("dispatch"), Trace::new(" dispatch,")), (Ok(Some(_)), Ok(Some(_)))));
        let refused = Trace::new("dispatch,memory").expect_err("unknown").to_string();
        assert!(refused.contains("\"memory\"") && refused.contains("there is dispatch"), "{refused}");
    }
}
