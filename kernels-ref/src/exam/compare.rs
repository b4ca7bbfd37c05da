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
    let holds = |i: usize| got[i].to_bits() == want[i].to_bits() || got[i].is_nan() && want[i].is_nan();
    let difference = |i: usize| (f64::from(got[i]) - f64::from(want[i])).abs();
    judge(want.len(), holds, difference, |i| format!("{}, not {}", with_bits(got[i]), with_bits(want[i])))
}

/// Integers are equal.
pub(super) fn equal_integers<T: Copy + Into<f64> + PartialEq>(got: &[T], want: &[T]) -> Result<(), Fault> {
    let wide = |x: T| -> f64 { x.into() };
    let difference = |i: usize| (wide(got[i]) - wide(want[i])).abs();
    judge(want.len(), |i| got[i] == want[i], difference, |i| format!("{}, not {}", wide(got[i]), wide(want[i])))
}

/// `|got - want| <= bound`, element by element; NaN is never within a bound.
pub(super) fn within(got: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) -> Result<(), Fault> {
    let difference = |i: usize| (f64::from(got[i]) - want[i]).abs();
    let told = |i: usize| format!("{}, not {:e} within {:e}", with_bits(got[i]), want[i], bound(i));
    judge(want.len(), |i| difference(i) <= bound(i), difference, told)
}

/// `sum((got - want)^2) <= bound * sum(want^2)`.
pub(super) fn mean_square(got: &[f32], want: &[f64], bound: f64) -> Result<(), Fault> {
    let error: f64 = got.iter().zip(want).map(|(&got, want)| (f64::from(got) - want).powi(2)).sum();
    let norm: f64 = want.iter().map(|want| want * want).sum();
    if error <= bound * norm { Ok(()) } else { Err(Fault::new(format!("normalized mean square error {:e} above {bound:e}", error / norm))) }
}

fn with_bits(x: f32) -> String {
    format!("{x:e} ({:#010x})", x.to_bits())
}

/// Names the worst of `n` elements that do not `hold`: a NaN on one side only, else the largest difference.
fn judge(n: usize, holds: impl Fn(usize) -> bool, difference: impl Fn(usize) -> f64, told: impl Fn(usize) -> String) -> Result<(), Fault> {
    let mut n_wrong = 0;
    let mut worst: Option<(f64, usize)> = None;
    for i in (0..n).filter(|&i| !holds(i)) {
        n_wrong += 1;
        let difference = difference(i);
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        if worst.is_none_or(|(largest, _)| difference > largest) {
            worst = Some((difference, i));
        }
    }
    match worst {
        None => Ok(()),
        Some((_, i)) => Err(Fault::new(format!("{n_wrong} of {n} wrong, worst element {i}: {}", told(i)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_element_is_told_with_what_was_expected() {
        let text = |result: Result<(), Fault>| result.unwrap_err().text;
        let neighbours = text(equal(&[1.0, 1.0f32.next_up()], &[1.0, 1.0]));
        assert_eq!(neighbours, "1 of 2 wrong, worst element 1: 1.0000001e0 (0x3f800001), not 1e0 (0x3f800000)");
        assert_eq!(text(equal(&[-0.0], &[0.0])), "1 of 1 wrong, worst element 0: -0e0 (0x80000000), not 0e0 (0x00000000)");
        assert_eq!(text(equal_integers(&[3i8, -127], &[3, 126])), "1 of 2 wrong, worst element 1: -127, not 126");
        assert_eq!(text(within(&[1.5], &[1.0], |_| 0.25)), "1 of 1 wrong, worst element 0: 1.5e0 (0x3fc00000), not 1e0 within 2.5e-1");
        assert!(equal(&[f32::NAN], &[-f32::NAN]).is_ok() && within(&[f32::NAN], &[0.0], |_| f64::MAX).is_err());
    }
}
