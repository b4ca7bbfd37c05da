//! In which order panels and tokens meet.

use std::ops::Range;

use super::ROWS;

/// The panels of some rows of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    bytes: &'a [u8],
    panel_bytes: usize,
    n_panels: usize,
}

/// Some panels and some tokens: `n` from `t` on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) panels: Range<usize>,
    pub(crate) t: usize,
    pub(crate) n: usize,
}

impl<'a> Panels<'a> {
    /// Those of `rows`, which start a panel, out of all panels of a matrix.
    ///
    /// # Panics
    /// If there are no such panels.
    pub(crate) fn new(bytes: &'a [u8], panel_bytes: usize, rows: Range<usize>) -> Self {
        let panels = rows.start / ROWS..rows.end.div_ceil(ROWS);
        Panels { bytes: &bytes[panels.start * panel_bytes..panels.end * panel_bytes], panel_bytes, n_panels: panels.len() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.n_panels
    }

    /// Panel `i`.
    pub(crate) fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[i * self.panel_bytes..][..self.panel_bytes]
    }

    /// All of them with `m` tokens, `most` at a time. Panels come from memory for the first tokens, and for the others from a cache
    /// that holds `cached` bytes: a group of panels meets all tokens before the next.
    pub(crate) fn visits(&self, m: usize, most: usize, cached: usize) -> impl Iterator<Item = Visit> + use<> {
        let n_panels = self.n_panels;
        let group = if m <= most { n_panels } else { cached / self.panel_bytes.max(1) }.max(1);
        (0..n_panels).step_by(group).flat_map(move |first| {
            let panels = first..n_panels.min(first + group);
            tiles(m, most).map(move |(t, n)| Visit { panels: panels.clone(), t, n })
        })
    }
}

/// Tiles of at most `most` of `m` tokens, of like size: the first token of each, and how many it has.
pub(crate) fn tiles(m: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut t = 0;
    std::iter::from_fn(move || {
        let left = m - t;
        (left > 0).then(|| {
            let n = left.div_ceil(left.div_ceil(most));
            t += n;
            (t - n, n)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_of_like_size() {
        let sizes = |m, most| tiles(m, most).map(|(_, n)| n).collect::<Vec<_>>();
        assert_eq!((sizes(0, 8), sizes(8, 8), sizes(9, 8)), (vec![], vec![8], vec![5, 4]));
        assert_eq!((sizes(17, 8), sizes(5, 4), sizes(3, 1)), (vec![6, 6, 5], vec![3, 2], vec![1, 1, 1]));
        assert_eq!(tiles(17, 8).map(|(t, _)| t).collect::<Vec<_>>(), [0, 6, 12]);
    }

    #[test]
    fn a_group_of_panels_meets_all_tokens_before_the_next() {
        let bytes = [0; 5 * 100];
        let visits = |m, cached| {
            let panels = Panels::new(&bytes, 100, 16..70);
            assert_eq!((panels.count(), panels.get(3).as_ptr()), (4, bytes[400..].as_ptr()));
            panels.visits(m, 8, cached).map(|v| (v.panels, v.t, v.n)).collect::<Vec<_>>()
        };
        assert_eq!(visits(8, 100), [(0..4, 0, 8)], "panels that are read once need no cache");
        assert_eq!(visits(9, 399), [(0..3, 0, 5), (0..3, 5, 4), (3..4, 0, 5), (3..4, 5, 4)]);
        assert_eq!(visits(9, 0).len(), 8, "a panel at a time where none fits");
        assert_eq!(visits(0, 100), []);
        assert_eq!(Panels::new(&bytes, 0, 0..33).visits(1, 8, 100).count(), 1, "panels without columns");
    }
}
