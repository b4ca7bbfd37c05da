//! How results are compared, and what is said of those that differ.

use std::any::Any;

/// Why a case failed.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// The property, where it is not that of the case.
    pub(super) property: Option<&'static str>,
    pub(super) text: String,
}

impl Fault {
    pub(super) fn new(text: String) -> Self {
        Fault { property: None, text }
    }

    /// A canary at index `at` of an output of `len` is gone.
    pub(super) fn outside(at: isize, len: usize) -> Self {
        Fault { property: Some("writes_only_its_output"), text: format!("wrote element {at} of {len}") }
    }

    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Fault { property: Some("does_not_panic"), text: format!("panicked: {}", text.unwrap_or("no message")) }
    }

    /// The same fault, of a part of the result.
    pub(super) fn of(mut self, part: &str) -> Self {
        self.text = format!("{part}: {}", self.text);
        self
    }
}

/// Bits are equal; any NaN equals any other, since IEEE leaves their payload open.
pub(super) fn equal(got: &[f32], want: &[f32]) -> Result<(), Fault> {
    judge(got, want.iter().map(|&want| f64::from(want)), |i| {
        let (got, want) = (got[i], want[i]);
        got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan()
    })
}

/// Integers are equal.
pub(super) fn equal_integers<T: Copy + Into<f64> + PartialEq>(got: &[T], want: &[T]) -> Result<(), Fault> {
    let wide: Vec<f32> = got.iter().map(|&got| got.into() as f32).collect();
    judge(&wide, want.iter().map(|&want| want.into()), |i| got[i] == want[i])
}

/// `|got - want| <= bound`, element by element; NaN is never within a bound.
pub(super) fn within(got: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) -> Result<(), Fault> {
    judge(got, want.iter().copied(), |i| (f64::from(got[i]) - want[i]).abs() <= bound(i))
}

/// `sum((got - want)^2) <= bound * sum(want^2)`.
pub(super) fn mean_square(got: &[f32], want: &[f64], bound: f64) -> Result<(), Fault> {
    let error: f64 = got.iter().zip(want).map(|(&got, want)| (f64::from(got) - want).powi(2)).sum();
    let norm: f64 = want.iter().map(|want| want * want).sum();
    if error <= bound * norm { Ok(()) } else { Err(Fault::new(format!("normalized mean square error {:e} above {bound:e}", error / norm))) }
}

/// Names the worst of the elements that do not `hold`: a NaN on one side only, else the largest difference.
fn judge(got: &[f32], want: impl Iterator<Item = f64>, hold: impl Fn(usize) -> bool) -> Result<(), Fault> {
    let mut n_wrong = 0;
    let mut worst: Option<(f64, usize, f64)> = None;
    for (i, want) in want.enumerate().filter(|(i, _)| !hold(*i)) {
        n_wrong += 1;
        let difference = (f64::from(got[i]) - want).abs();
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        if worst.is_none_or(|(largest, ..)| difference > largest) {
            worst = Some((difference, i, want));
        }
    }
    match worst {
        None => Ok(()),
        Some((_, i, want)) => {
            let got_bits = got[i].to_bits();
            Err(Fault::new(format!("{n_wrong} of {} wrong, worst element {i}: {:e} ({got_bits:#010x}), not {want:e}", got.len(), got[i])))
        }
    }
}
