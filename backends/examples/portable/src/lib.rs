//! A backend for CPUs that nothing else of rml serves: products of `Q8_0` in plain Rust.
//!
//! The reference decodes a block each time it meets it. This one does so once, at load: eight rows stand side by side, their
//! scales already in f32, so that all a product has left to do are the sums, which compilers turn into vector instructions.

use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_backends::reference::activation::{ActivationData, ActivationKind, Activations, Q8, Q8_BLOCK};
use rml_backends::reference::format::Format;
use rml_backends::reference::half::f16;
use rml_backends::{Backend, CpuFeatures, KernelTable, Refusal, TileMut};

const NAME: &str = "portable";

/// The backend.
#[derive(Debug)]
pub struct Portable;

rml_backends::register!(Portable);

impl Backend for Portable {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Above `ref`, below all that know the CPU's instructions.
    fn rank(&self) -> u32 {
        5
    }

    fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
        Ok(()) // A kernel that needs instructions says which: `cpu.require(&["avx2", "fma"])`.
    }

    fn install(&self, _: &CpuFeatures, table: &mut KernelTable) {
        table.put_matmul(NAME, &Lifted);
    }
}

/// Rows in a panel.
const ROWS: usize = 8;
/// Tokens that are multiplied with a block once it is widened.
const TOKENS: usize = 4;
/// Bytes of a block in the file: a scale in f16, then whole numbers.
const STORED: usize = Format::Q8_0.block_bytes();
/// Bytes of eight scales in f32.
const SCALES: usize = 4 * ROWS;
/// Bytes that hold a block of each row: the scales, then one row's numbers after the other.
const UNIT: usize = SCALES + ROWS * Q8_BLOCK;

/// The product of `Q8_0`.
#[derive(Debug)]
struct Lifted;

impl MatmulKernel for Lifted {
    fn id(&self) -> &'static str {
        "portable:q8_0·q8:8x4"
    }

    fn format(&self) -> Format {
        Format::Q8_0
    }

    fn activation(&self) -> ActivationKind {
        ActivationKind::Q8
    }

    fn layout(&self, n: usize, k: usize) -> Result<PackedLayout, Refusal> {
        if n < ROWS {
            return Err(Refusal::new(format!("{n} rows do not fill a panel of {ROWS}")));
        }
        if !k.is_multiple_of(Q8_BLOCK) {
            return Err(Refusal::new(format!("{k} columns are not whole blocks of {Q8_BLOCK}")));
        }
        let panel_bytes = (k / Q8_BLOCK).checked_mul(UNIT).ok_or_else(|| Refusal::new(format!("{k} columns are too many")))?;
        Ok(PackedLayout { panel_rows: ROWS, panel_bytes, in_place: false })
    }

    fn pack_panel(&self, src: &[u8], n_rows: usize, k: usize, dst: &mut [u8]) {
        let row_bytes = k / Q8_BLOCK * STORED;
        dst.fill(0); // the rows that are missing
        for (b, unit) in dst.chunks_exact_mut(UNIT).enumerate() {
            let (scales, quants) = unit.split_at_mut(SCALES);
            for r in 0..n_rows {
                let block = &src[r * row_bytes + b * STORED..][..STORED];
                let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                scales[4 * r..][..4].copy_from_slice(&scale.to_ne_bytes());
                quants[Q8_BLOCK * r..][..Q8_BLOCK].copy_from_slice(&block[2..]);
            }
        }
    }

    fn multiply(&self, w: &Weights<'_>, x: &Activations<'_>, out: &mut TileMut<'_>) {
        let ActivationData::Q8(q8) = x.data else { panic!("{} takes activations in q8", self.id()) };
        let (cols, k) = (out.cols(), x.k);
        for row in cols.clone().step_by(ROWS) {
            let panel = &w.bytes[row / ROWS * w.layout.panel_bytes..][..w.layout.panel_bytes];
            let n = ROWS.min(cols.end - row);
            let mut store = |i: usize, sums: &[f32; ROWS]| out.row(i)[row - cols.start..][..n].copy_from_slice(&sums[..n]);
            let whole = x.m / TOKENS * TOKENS;
            for i in (0..whole).step_by(TOKENS) {
                let tokens = [0, 1, 2, 3].map(|t| q8.row(i + t, k));
                sums(panel, &tokens).iter().enumerate().for_each(|(t, sums)| store(i + t, sums));
            }
            for i in whole..x.m {
                store(i, &sums(panel, &[q8.row(i, k)])[0]);
            }
        }
    }
}

/// Eight rows times a few tokens: the arithmetic of the reference, in its order.
fn sums<const N: usize>(panel: &[u8], tokens: &[Q8<'_>; N]) -> [[f32; ROWS]; N] {
    let mut acc = [[0.0_f32; ROWS]; N];
    for (b, unit) in panel.as_chunks::<UNIT>().0.iter().enumerate() {
        let (scales, quants) = unit.split_at(SCALES);
        let (scales, quants) = (scales.as_chunks::<4>().0, quants.as_chunks::<Q8_BLOCK>().0);
        for r in 0..ROWS {
            let (scale, w) = (f32::from_ne_bytes(scales[r]), &quants[r]);
            for t in 0..N {
                let x = &tokens[t].q.as_chunks::<Q8_BLOCK>().0[b];
                acc[t][r] = (scale * tokens[t].scale[b]).mul_add(dot(w, x) as f32, acc[t][r]);
            }
        }
    }
    acc
}

/// A loop of its own that is not inlined, so that compilers find the vector instructions for it.
#[inline(never)]
fn dot(w: &[u8; Q8_BLOCK], x: &[i8; Q8_BLOCK]) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| i32::from(w as i8) * i32::from(x)).sum()
}
