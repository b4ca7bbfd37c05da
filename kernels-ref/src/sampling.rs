//! Walks over the vocabulary.

/// The index of the largest element, the lower of equals; `None` if the row is empty or has a NaN.
pub fn argmax(x: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (i, &v) in x.iter().enumerate() {
        if v.is_nan() {
            return None;
        }
        if v > x[best] {
            best = i;
        }
    }
    (!x.is_empty()).then_some(best)
}
