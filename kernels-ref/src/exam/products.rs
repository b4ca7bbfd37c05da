//! Matrix products: every format, over sizes at and around every tile.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::buffers::{Aligned, CANARY, Guarded};
use super::compare::{Fault, equal, mean_square, within};
use super::fills::{Fill, Random, WeightFill};
use super::{Exam, bounds};
use crate::activation::{ActivationData, ActivationKind, Activations, Q8, Q8_BLOCK, Q8RowMut};
use crate::dequantize::dequantize_row;
use crate::format::Format;
use crate::matmul;

/// How a product wants its weights: panels of `rows` rows, `bytes` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panels {
    /// Rows in a panel.
    pub rows: usize,
    /// Bytes in a panel.
    pub bytes: usize,
    /// A panel is the file's own bytes, at any alignment.
    pub in_place: bool,
}

/// Where a product writes: columns `cols` of rows that are `stride` long.
#[derive(Debug)]
pub struct Tile<'a> {
    /// (m, stride)
    pub cells: &'a mut [f32],
    /// Distance of two rows.
    pub stride: usize,
    /// Rows of the weights.
    pub cols: Range<usize>,
}

impl matmul::Output for Tile<'_> {
    fn row(&mut self, i: usize) -> &mut [f32] {
        &mut self.cells[i * self.stride..][self.cols.clone()]
    }
}

/// A matrix product that sits the exam.
pub trait Product {
    /// Its name.
    fn id(&self) -> &str;
    /// The format it multiplies.
    fn format(&self) -> Format;
    /// The activations it wants.
    fn activation(&self) -> ActivationKind;
    /// Whether it claims to equal the reference bit for bit.
    fn exact(&self) -> bool;
    /// How it wants `n` rows of `k` weights, or why it cannot multiply them.
    fn panels(&self, n: usize, k: usize) -> Result<Panels, String>;
    /// Packs `n_rows` rows into all of `dst`, the missing ones as zeros. Not called for panels in place.
    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]);
    /// Multiplies the rows `out.cols` of `weights` (n rows of k, in `panels`) with `x`.
    fn multiply(&self, weights: &[u8], n: usize, k: usize, panels: Panels, x: &Activations<'_>, out: Tile<'_>);
}

const TOKENS: [usize; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 33];
const ROWS: [usize; 15] = [0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 47, 64, 65, 97];
/// Columns, in blocks.
const BLOCKS_OF_1: [usize; 22] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 256, 257, 1031];
const BLOCKS_OF_32: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 65];
const BLOCKS_OF_256: [usize; 6] = [0, 1, 2, 3, 5, 9];

/// Examines one matrix product.
pub fn product(exam: &mut Exam, kernel: &dyn Product) {
    let blocks: &[usize] = match kernel.format().block_len() {
        1 => &BLOCKS_OF_1,
        32 => &BLOCKS_OF_32,
        _ => &BLOCKS_OF_256,
    };
    let columns: Vec<usize> = blocks.iter().map(|blocks| blocks * kernel.format().block_len()).collect();
    let usual = (WeightFill::Ordinary, Fill::Gaussian);
    // Every number of tokens with every number of rows, at one number of columns after the other.
    let pairs = TOKENS.iter().flat_map(|&m| ROWS.map(|n| (m, n)));
    let mut shapes: Vec<_> = pairs.enumerate().map(|(i, (m, n))| (Shape { m, n, k: columns[i % columns.len()] }, usual)).collect();
    // Every number of columns, with tokens and rows that take each path.
    for &k in &columns {
        shapes.extend([1, 2, 5, 8, 9].iter().flat_map(|&m| [1, 16, 33].map(|n| (Shape { m, n, k }, usual))));
    }
    // Every fill.
    for (w, x) in WeightFill::ALL.iter().flat_map(|&w| Fill::ALL.map(|x| (w, x))) {
        let shape = |m, n, i: usize| (Shape { m, n, k: columns[i] }, (w, x));
        shapes.extend([shape(1, 33, 2), shape(4, 16, 3), shape(7, 17, 5)]);
    }
    for (shape, fills) in shapes.into_iter().filter(|(shape, _)| takes(kernel, *shape)) {
        equality(exam, kernel, shape, fills);
    }
    for (m, n, k) in [(1, 97, columns[4]), (5, 33, columns[3]), (9, 47, columns[5]), (33, 17, columns[2])] {
        let shape = nearest(kernel, Shape { m, n, k }, &columns);
        shape.into_iter().for_each(|shape| independence(exam, kernel, shape));
    }
    name(exam, kernel);
    layout(exam, kernel, columns[3]);
    refusals(exam, kernel, &columns);
    let k = *columns.last().expect("there are some");
    for (m, n, fill) in [(1, 33, Fill::Gaussian), (9, 17, Fill::Gaussian), (3, 16, Fill::Outliers)] {
        let shape = nearest(kernel, Shape { m, n, k }, &columns);
        shape.into_iter().for_each(|shape| accuracy(exam, kernel, shape, fill));
    }
}

/// Whether the kernel does not refuse the shape, which it may.
fn takes(kernel: &dyn Product, shape: Shape) -> bool {
    // A panic is found by the case that asks again.
    catch_unwind(AssertUnwindSafe(|| kernel.panels(shape.n, shape.k).is_ok())).unwrap_or(true)
}

/// The shape, or the one with the most rows and columns among those examined that the kernel takes.
fn nearest(kernel: &dyn Product, wanted: Shape, columns: &[usize]) -> Option<Shape> {
    let others = ROWS.iter().rev().flat_map(|&n| columns.iter().rev().map(move |&k| Shape { n, k, ..wanted }));
    std::iter::once(wanted).chain(others).find(|&shape| takes(kernel, shape))
}

/// A kernel may refuse shapes, but not all, and not without a reason.
fn refusals(exam: &mut Exam, kernel: &dyn Product, columns: &[usize]) {
    exam.case(kernel.id(), "layout_takes_some_shape", "any", |_| {
        let mut reason = String::new();
        for (n, &k) in ROWS.iter().flat_map(|&n| columns.iter().map(move |k| (n, k))).filter(|(n, k)| *n > 1 && **k > 0) {
            match kernel.panels(n, k) {
                Ok(_) => return Ok(()),
                Err(why) => reason = why,
            }
        }
        Err(Fault::new(format!("each of the shapes examined is refused, the last since {reason:?}")))
    });
    exam.case(kernel.id(), "layout_says_why_it_refuses", "any", |_| {
        let shapes = ROWS.iter().flat_map(|&n| columns.iter().flat_map(move |&k| [(n, k), (n, k + 1)]));
        let silent = shapes.into_iter().find(|&(n, k)| kernel.panels(n, k).is_err_and(|why| why.trim().is_empty()));
        silent.map_or(Ok(()), |(n, k)| Err(Fault::new(format!("{n} rows of {k} are refused without a reason"))))
    });
}

/// Against the reference, in tiles that meet at some panel.
fn equality(exam: &mut Exam, kernel: &dyn Product, shape: Shape, fills: (WeightFill, Fill)) {
    if !kernel.exact() {
        return;
    }
    exam.case(kernel.id(), "matmul_equals_reference", &shape.line(fills), |random| {
        let setting = Setting::new(kernel, shape, fills, random)?;
        let panel = setting.panels.rows;
        let split = random.below(shape.n / panel + 1) * panel;
        let got = setting.multiply(kernel, 0..shape.m, &[0..split, split..shape.n], random)?;
        equal(&got, &setting.reference(kernel.format()))
    });
}

/// What may not matter: tiles, batches, bytes that belong to nobody.
fn independence(exam: &mut Exam, kernel: &dyn Product, shape: Shape) {
    let fills = (WeightFill::Ordinary, Fill::Gaussian);
    let line = shape.line(fills);
    let Shape { m, n, k } = shape;
    if kernel.exact() {
        exam.case(kernel.id(), "matmul_rows_are_independent_of_tile", &line, |random| {
            let setting = Setting::new(kernel, shape, fills, random)?;
            let panel = setting.panels.rows;
            let panels: Vec<_> = (0..n.div_ceil(panel)).map(|p| p * panel..n.min((p + 1) * panel)).collect();
            let whole = setting.whole(kernel, 0..m, random)?;
            equal(&setting.multiply(kernel, 0..m, &panels, random)?, &whole)
        });
        exam.case(kernel.id(), "matmul_tokens_are_independent_of_batch", &line, |random| {
            let setting = Setting::new(kernel, shape, fills, random)?;
            let whole = setting.whole(kernel, 0..m, random)?;
            for i in 0..m {
                let alone = setting.whole(kernel, i..i + 1, random)?;
                equal(&alone, &whole[i * n..][..n]).map_err(|fault| fault.of(&format!("token {i}")))?;
            }
            Ok(())
        });
    }
    exam.case(kernel.id(), "matmul_ignores_bytes_after_k", &line, |random| {
        let before = random.clone();
        let mut results = [0x00, 0xff].map(|poison| {
            let random = &mut before.clone();
            let setting = Setting::poisoned(kernel, shape, fills, poison, random)?;
            setting.whole(kernel, 0..m, random)
        });
        let [first, second] = &mut results;
        match (first, second) {
            (Ok(first), Ok(second)) => equal(second, first),
            (Err(fault), _) | (_, Err(fault)) => Err(fault.clone()),
        }
    });
    exam.case(kernel.id(), "pack_panel_writes_every_byte", &line, |random| {
        let rows = WeightFill::Bytes.rows(kernel.format(), n, k, random);
        let (_, zeros) = pack(kernel, &rows, n, k, 0x00, random)?;
        let (_, ones) = pack(kernel, &rows, n, k, 0xff, random)?;
        match zeros.get().iter().zip(ones.get()).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(i) => Err(Fault::new(format!("byte {i} is what it was before packing"))),
        }
    });
}

/// Two products of one id are one to those who choose, so that a wrong id hides another's product.
fn name(exam: &mut Exam, kernel: &dyn Product) {
    let wanted = format!("{}:{}·{}:", exam.report.backend(), kernel.format(), kernel.activation().name());
    exam.case(kernel.id(), "id_says_what_it_is", "any", |_| match kernel.id().strip_prefix(&wanted) {
        Some(tile) if !tile.trim().is_empty() => Ok(()),
        _ => Err(Fault::new(format!("the id is {:?}, not {wanted:?} and the tile, such as {:?}", kernel.id(), format!("{wanted}16x4")))),
    });
}

/// What `panels` says of shapes that are none, or that no memory holds.
fn layout(exam: &mut Exam, kernel: &dyn Product, k: usize) {
    let block = kernel.format().block_len();
    if block > 1 {
        exam.case(kernel.id(), "layout_refuses_broken_blocks", &format!("k={}", k + 1), |_| match kernel.panels(16, k + 1) {
            Err(_) => Ok(()),
            Ok(panels) => Err(Fault::new(format!("{} columns got {panels:?}", k + 1))),
        });
    }
    exam.case(kernel.id(), "layout_holds_what_it_promises", &format!("k={k}"), |_| {
        let Ok(panels) = kernel.panels(17, k) else { return Ok(()) };
        let stored = kernel.format().row_bytes(k).expect("whole blocks") * panels.rows;
        if panels.rows == 0 || panels.in_place && panels.bytes != stored {
            return Err(Fault::new(format!("{panels:?}, where the file has {stored} bytes a panel")));
        }
        Ok(())
    });
    exam.case(kernel.id(), "layout_survives_huge_shapes", "k=huge", |_| {
        let huge = usize::MAX / block * block;
        match kernel.panels(usize::MAX, huge) {
            Ok(panels) if panels.bytes < huge / 8 => Err(Fault::new(format!("{huge} columns wrapped to {panels:?}"))),
            _ => Ok(()),
        }
    });
}

/// Against f64. A kernel that is not exact may add in another order, which changes neither bound.
fn accuracy(exam: &mut Exam, kernel: &dyn Product, shape: Shape, fill: Fill) {
    let format = kernel.format();
    let quantized = kernel.activation() == ActivationKind::Q8;
    let fills = (WeightFill::Ordinary, fill);
    let line = shape.line(fills);
    exam.case(kernel.id(), "matmul_is_accurate_given_its_activations", &line, |random| {
        let setting = Setting::new(kernel, shape, fills, random)?;
        let got = setting.whole(kernel, 0..shape.m, random)?;
        let (want, terms) = setting.exact(format, &setting.activations_taken());
        within(&got, &want, |i| bounds::PRODUCT * terms[i])
    });
    exam.case(kernel.id(), "matmul_is_accurate_given_f32_activations", &line, |random| {
        let setting = Setting::new(kernel, shape, fills, random)?;
        let got = setting.whole(kernel, 0..shape.m, random)?;
        let (want, _) = setting.exact(format, &setting.x);
        let bound = match (fill, quantized, format) {
            (_, false, Format::F32 | Format::F16) => bounds::PRODUCT_FLOAT,
            (Fill::Outliers, ..) => bounds::PRODUCT_OUTLIERS,
            _ => bounds::PRODUCT_GAUSSIAN,
        };
        mean_square(&got, &want, bound)
    });
}

/// Tokens, rows, columns.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

impl Shape {
    fn line(self, (w, x): (WeightFill, Fill)) -> String {
        format!("m={} n={} k={} w={} x={}", self.m, self.n, self.k, w.name(), x.name())
    }
}

/// Weights as stored and as packed, activations as they were and as taken.
struct Setting {
    shape: Shape,
    rows: Vec<u8>,
    panels: Panels,
    packed: Packed,
    x: Vec<f32>,
    taken: Taken,
}

/// Panels, where the kernel is given them.
enum Packed {
    InPlace(Guarded<u8>),
    Own(Aligned),
}

impl Packed {
    fn get(&self) -> &[u8] {
        match self {
            Packed::InPlace(bytes) => bytes.get(),
            Packed::Own(bytes) => bytes.get(),
        }
    }
}

/// Activations, where the kernel is given them.
enum Taken {
    F32(Guarded<f32>),
    Q8 { q: Guarded<i8>, scale: Guarded<f32>, scaled_sum: Guarded<f32>, sum: Guarded<i16> },
}

/// Lays rows out as the kernel wants them, in memory that held `poison` and is surrounded by it.
fn pack(kernel: &dyn Product, rows: &[u8], n: usize, k: usize, poison: u8, random: &mut Random) -> Result<(Panels, Packed), Fault> {
    let panels = kernel.panels(n, k).map_err(|refusal| Fault::new(format!("refused: {refusal}")))?;
    if panels.in_place {
        return Ok((panels, Packed::InPlace(Guarded::of(rows, random.below(16), poison))));
    }
    let row_bytes = kernel.format().row_bytes(k).expect("whole blocks");
    let mut packed = Aligned::new(n.div_ceil(panels.rows) * panels.bytes, poison);
    for p in 0..n.div_ceil(panels.rows) {
        let n_rows = panels.rows.min(n - p * panels.rows);
        let src = Guarded::of(&rows[p * panels.rows * row_bytes..][..n_rows * row_bytes], random.below(16), !poison);
        kernel.pack_panel(src.get(), n_rows, k, &mut packed.get_mut()[p * panels.bytes..][..panels.bytes]);
    }
    packed.intact()?;
    Ok((panels, Packed::Own(packed)))
}

impl Setting {
    fn new(kernel: &dyn Product, shape: Shape, fills: (WeightFill, Fill), random: &mut Random) -> Result<Self, Fault> {
        Self::poisoned(kernel, shape, fills, 0xff, random)
    }

    /// What surrounds weights is `poison`; what surrounds activations is NaN or 0 as it is.
    fn poisoned(kernel: &dyn Product, shape: Shape, fills: (WeightFill, Fill), poison: u8, random: &mut Random) -> Result<Self, Fault> {
        let Shape { m, n, k } = shape;
        let rows = fills.0.rows(kernel.format(), n, k, random);
        let x = fills.1.numbers(m * k, random);
        let (panels, packed) = pack(kernel, &rows, n, k, poison, random)?;
        let around = if poison == 0 { 0.0 } else { f32::NAN };
        let taken = match kernel.activation() {
            ActivationKind::F32 => Taken::F32(Guarded::of(&x, random.below(16), around)),
            ActivationKind::Q8 => quantized(&x, m, k, around, random),
        };
        Ok(Setting { shape, rows, panels, packed, x, taken })
    }

    /// Tokens `tokens` times all weights, in one tile. (tokens, n)
    fn whole(&self, kernel: &dyn Product, tokens: Range<usize>, random: &mut Random) -> Result<Vec<f32>, Fault> {
        self.multiply(kernel, tokens, std::slice::from_ref(&(0..self.shape.n)), random)
    }

    /// Tokens `tokens` times all weights, tile by tile. (tokens, n)
    fn multiply(&self, kernel: &dyn Product, tokens: Range<usize>, tiles: &[Range<usize>], random: &mut Random) -> Result<Vec<f32>, Fault> {
        let Shape { n, k, .. } = self.shape;
        let m = tokens.len();
        let data = match &self.taken {
            Taken::F32(x) => ActivationData::F32(&x.get()[tokens.start * k..tokens.end * k]),
            Taken::Q8 { q, scale, scaled_sum, sum } => ActivationData::Q8(Q8 {
                q: &q.get()[tokens.start * k..tokens.end * k],
                scale: &scale.get()[tokens.start * (k / 32)..tokens.end * (k / 32)],
                scaled_sum: &scaled_sum.get()[tokens.start * (k / 32)..tokens.end * (k / 32)],
                sum: &sum.get()[tokens.start * (k / 16)..tokens.end * (k / 16)],
            }),
        };
        let x = Activations { m, k, data };
        let stride = n + random.below(4);
        let mut out = Guarded::new(m * stride, random.below(16), CANARY);
        for cols in tiles {
            let before = out.get().to_vec();
            let tile = Tile { cells: out.get_mut(), stride, cols: cols.clone() };
            kernel.multiply(self.packed.get(), n, k, self.panels, &x, tile);
            out.intact()?;
            let outside = |i: &usize| !cols.contains(&(i % stride));
            if let Some(i) = (0..before.len()).filter(outside).find(|&i| out.get()[i].to_bits() != before[i].to_bits()) {
                return Err(Fault::outside(i as isize, before.len()).of(&format!("tile of columns {cols:?}, rows of {stride}")));
            }
        }
        Ok((0..m).flat_map(|i| &out.get()[i * stride..][..n]).copied().collect())
    }

    /// What the reference computes. (m, n)
    fn reference(&self, format: Format) -> Vec<f32> {
        let Shape { m, n, k } = self.shape;
        let data = match &self.taken {
            Taken::F32(x) => ActivationData::F32(x.get()),
            Taken::Q8 { q, scale, scaled_sum, sum } => {
                ActivationData::Q8(Q8 { q: q.get(), scale: scale.get(), scaled_sum: scaled_sum.get(), sum: sum.get() })
            }
        };
        let mut want = vec![vec![0.0; n]; m];
        matmul::matmul(format, &self.rows, 0..n, &Activations { m, k, data }, &mut want[..]);
        want.concat()
    }

    /// The activations that the kernel was given, as numbers. (m, k)
    fn activations_taken(&self) -> Vec<f32> {
        match &self.taken {
            Taken::F32(x) => x.get().to_vec(),
            Taken::Q8 { q, scale, .. } => q.get().iter().enumerate().map(|(i, &q)| f32::from(q) * scale.get()[i / Q8_BLOCK]).collect(),
        }
    }

    /// The product in f64, and the sum of its terms' magnitudes. Both (m, n).
    fn exact(&self, format: Format, x: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let Shape { m, n, k } = self.shape;
        let mut w = vec![0.0; n * k];
        dequantize_row(format, &self.rows, &mut w);
        let term = |i: usize, r: usize, j: usize| f64::from(w[r * k + j]) * f64::from(x[i * k + j]);
        let cells = (0..m).flat_map(|i| (0..n).map(move |r| (i, r)));
        cells.map(|(i, r)| (0..k).map(|j| term(i, r, j)).fold((0.0, 0.0), |(sum, abs), term| (sum + term, abs + term.abs()))).unzip()
    }
}

/// Rows of activations, quantized by the reference.
fn quantized(x: &[f32], m: usize, k: usize, around: f32, random: &mut Random) -> Taken {
    let blocks = k / Q8_BLOCK;
    let mut q = Guarded::new(m * k, random.below(16), if around == 0.0 { 0 } else { -128 });
    let mut scale = Guarded::new(m * blocks, random.below(16), around);
    let mut scaled_sum = Guarded::new(m * blocks, random.below(16), around);
    let mut sum = Guarded::new(2 * m * blocks, random.below(16), if around == 0.0 { 0 } else { i16::MIN });
    let mut row = Q8RowMut { q: q.get_mut(), scale: scale.get_mut(), scaled_sum: scaled_sum.get_mut(), sum: sum.get_mut() };
    crate::quantize::quantize(x, &mut row);
    Taken::Q8 { q, scale, scaled_sum, sum }
}
