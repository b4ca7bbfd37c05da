//! Which kernels a loaded model uses: the backend that was asked for, or for each weight format the fastest measured.
//!
//! `auto` times every candidate on pieces of the model's own largest matrix of the format, with all the threads that will
//! be used: one token (decode) and a batch of 48 (prefill). One layout serves both, so one kernel is chosen for both, by the
//! geometric mean of the two times. A candidate must first give what the reference gives. One that does not promise the
//! reference's bits is measured like the others, but taken only by who names it.

use std::time::{Duration, Instant};

use rml_backends::matmul::{MatmulKernel, PackedLayout, Weights};
use rml_backends::{KernelTable, Refusal, Registry, TileMut};
use rml_kernels_ref::activation::{ActivationData, ActivationKind, Activations, Q8, Q8_BLOCK, Q8RowMut};
use rml_kernels_ref::format::Format;

use super::{Block, Chunks, Pages, Pass, Team, Tiles, zeroed};
use crate::{Error, Result};

/// Tokens of the second measurement: more than kernels take the way they take one.
const BATCH: usize = 48;
/// Time for one format: a few formats make about 30 ms, which the user waits for.
const BUDGET: Duration = Duration::from_millis(10);
/// Bytes of weights multiplied between two looks at the clock.
const SLICE_BYTES: usize = 384 << 10;
/// Pieces measured in turn, so that each is met with a cold cache.
const SLICES: usize = 4;
/// A candidate this much slower than the best is not measured again at once,
const FAR_BEHIND: f64 = 4.0;
/// and one this much slower when it had every piece: a single time may be long by chance.
const HOPELESS: f64 = 1.25;
/// Of two that are this close the higher rank wins.
const ALIKE: f64 = 1.03;
/// Bound of a kernel that is not exact: normalized mean squared error against the reference on the same activations.
const INEXACT_NMSE: f64 = 1e-4;

/// What the user asked for: `auto` or a backend's name, then `slot=backend` for single operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    backend: Option<String>,
    slots: Vec<(String, String)>,
}

impl std::str::FromStr for Request {
    type Err = Error;

    /// Parses `avx512`, `auto`, or `avx2,attend=ref`. Names are checked when a registry is asked.
    fn from_str(text: &str) -> Result<Self> {
        let mut request = Request { backend: None, slots: Vec::new() };
        for (i, word) in text.split(',').map(str::trim).enumerate() {
            match word.split_once('=') {
                Some((slot, backend)) => request.slots.push((slot.to_owned(), backend.to_owned())),
                None if i == 0 => request.backend = (word != "auto").then(|| word.to_owned()),
                None => return Err(Error::Backend(format!("backend {text:?}: after the first name comes slot=backend, not {word:?}"))),
            }
        }
        Ok(request)
    }
}

/// A large matrix of the model, to measure on.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Its format.
    pub format: Format,
    /// Rows.
    pub n: usize,
    /// Columns.
    pub k: usize,
    /// Rows as GGUF stores them.
    pub bytes: &'a [u8],
}

/// How a candidate did.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The kernel.
    pub kernel: &'static dyn MatmulKernel,
    /// Why it was not measured, if it was not.
    pub refusal: Option<Refusal>,
    /// Shortest time of a slice with one token, and its bytes a second.
    pub decode: Option<Measured>,
    /// Shortest time of a slice with a batch, and its operations a second.
    pub prefill: Option<Measured>,
}

/// A time and a rate.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Microseconds for one slice of rows.
    pub us: f64,
    /// Decode: gigabytes of weights a second. Prefill: billions of operations (a multiplication and an addition are two) a second.
    pub rate: f64,
}

/// The choice for one format.
#[derive(Clone, Debug)]
pub struct FormatChoice {
    /// The format.
    pub format: Format,
    /// What will multiply it.
    pub kernel: &'static dyn MatmulKernel,
    /// All that were considered, the reference first. Empty times where there was nothing to choose.
    pub candidates: Vec<Candidate>,
}

/// The kernels of a loaded model.
#[derive(Clone, Debug)]
pub struct Choice {
    table: KernelTable,
    formats: Vec<FormatChoice>,
}

impl Choice {
    /// Chooses kernels for every format among `samples`.
    ///
    /// # Errors
    /// [`Error::Backend`] if a backend or slot asked for is unknown or refuses.
    pub fn new(registry: &Registry, request: &Request, samples: &[Sample<'_>], team: &Team) -> Result<Self> {
        let refused = |r: Refusal| Error::Backend(r.0);
        let mut table = match &request.backend {
            Some(name) => registry.table_of(name).map_err(refused)?,
            None => registry.table(),
        };
        for (slot, backend) in &request.slots {
            table.take_slot(slot, &registry.table_of(backend).map_err(refused)?).map_err(refused)?;
        }
        let mut pass = team.pass();
        let formats = samples.iter().map(|sample| choose(registry, &table, request, sample, &mut pass)).collect::<Result<_>>()?;
        Ok(Choice { table, formats })
    }

    /// The dispatch table.
    pub fn table(&self) -> &KernelTable {
        &self.table
    }

    /// The choice for each format of the model.
    pub fn formats(&self) -> &[FormatChoice] {
        &self.formats
    }

    /// The kernels for a format in the order to ask them for a shape: the chosen one, then the newest in the table down to the
    /// reference, without those that were refused or are not exact.
    pub(crate) fn kernels(&self, format: Format) -> impl Iterator<Item = &'static dyn MatmulKernel> {
        let choice = self.formats.iter().find(|c| c.format == format);
        let refused = move |id| choice.is_some_and(|c| c.candidates.iter().any(|c| c.kernel.id() == id && c.refusal.is_some()));
        let others =
            self.table.matmul(format).iter().rev().map(|(_, kernel)| *kernel).filter(move |kernel| kernel.exact() && !refused(kernel.id()));
        choice.map(|c| c.kernel).into_iter().chain(others)
    }
}

fn choose(registry: &Registry, table: &KernelTable, request: &Request, sample: &Sample<'_>, pass: &mut Pass<'_>) -> Result<FormatChoice> {
    let format = sample.format;
    let offered = table.matmul(format);
    let last = offered.last().expect("the table starts complete").1;
    // A backend that was named is used, not measured; so is the only one there is.
    if request.backend.is_some() || offered.len() == 1 {
        return Ok(FormatChoice { format, kernel: last, candidates: offered.iter().map(|&(_, k)| Candidate::unmeasured(k)).collect() });
    }
    let mut trials = Trials::new(table, sample, pass)?;
    let mut candidates: Vec<_> = offered.iter().map(|&(_, kernel)| trials.admit(kernel, pass)).collect();
    trials.measure(&mut candidates, pass);
    let rank = |c: &Candidate| {
        let owner = offered.iter().find(|(_, k)| k.id() == c.kernel.id()).map_or("", |(owner, _)| owner);
        registry.backends().iter().find(|r| r.backend.name() == owner).map_or(0, |r| r.backend.rank())
    };
    let score = |c: &Candidate| Some((c.decode?.us * c.prefill?.us).sqrt());
    let named = request.slots.iter().any(|(slot, _)| slot == "matmul");
    let eligible = || candidates.iter().filter(|c| named || c.kernel.exact());
    let best = eligible().filter_map(score).fold(f64::INFINITY, f64::min);
    let chosen = eligible().filter(|c| score(c).is_some_and(|s| s <= best * ALIKE)).max_by_key(|c| rank(c));
    let kernel = chosen.map_or(offered[0].1, |c| c.kernel);
    Ok(FormatChoice { format, kernel, candidates })
}

impl Candidate {
    fn unmeasured(kernel: &'static dyn MatmulKernel) -> Self {
        Candidate { kernel, refusal: None, decode: None, prefill: None }
    }

    fn refused(kernel: &'static dyn MatmulKernel, refusal: Refusal) -> Self {
        Candidate { refusal: Some(refusal), ..Candidate::unmeasured(kernel) }
    }
}

/// The measurement of one format.
struct Trials<'a> {
    sample: &'a Sample<'a>,
    slice_rows: usize,
    n_slices: usize,
    x: Vec<f32>,        // (BATCH, k)
    q8: OwnedQ8,        // of x
    expected: Vec<f32>, // (CHECK_TOKENS, check_rows), from the reference
    check_rows: usize,
    packed: Vec<(&'static str, PackedLayout, Block)>, // by kernel id: all slices
    out: Vec<f32>,                                    // (BATCH, slice_rows)
}

/// Tokens of the check against the reference: enough for what a kernel does with many, and a remainder.
const CHECK_TOKENS: usize = 37;
/// Rows of that check: two panels and a remainder.
const CHECK_ROWS: usize = 40;

struct OwnedQ8 {
    q: Vec<i8>,
    scale: Vec<f32>,
    scaled_sum: Vec<f32>,
    sum: Vec<i16>,
}

impl<'a> Trials<'a> {
    fn new(table: &'a KernelTable, sample: &'a Sample<'a>, _pass: &mut Pass<'_>) -> Result<Self> {
        let Sample { format, n, k, .. } = *sample;
        let row_bytes = sample.bytes.len() / n;
        let slice_rows = (SLICE_BYTES / row_bytes).next_multiple_of(64).min(n);
        let n_slices = (n / slice_rows).clamp(1, SLICES);
        let blocks = k / Q8_BLOCK;
        // Any activations serve; these are spread over both signs and several sizes.
        let x: Vec<f32> =
            (0..BATCH * k).map(|i| ((i * 2_654_435_761 % 4_294_967_296) as f32 / 2_147_483_648.0 - 1.0) * (1 + i % 7) as f32).collect();
        let mut q8 = OwnedQ8 {
            q: vec![0; BATCH * k],
            scale: vec![0.0; BATCH * blocks],
            scaled_sum: vec![0.0; BATCH * blocks],
            sum: vec![0; BATCH * 2 * blocks],
        };
        if blocks > 0 && k.is_multiple_of(Q8_BLOCK) {
            for i in 0..BATCH {
                let mut row = Q8RowMut {
                    q: &mut q8.q[i * k..][..k],
                    scale: &mut q8.scale[i * blocks..][..blocks],
                    scaled_sum: &mut q8.scaled_sum[i * blocks..][..blocks],
                    sum: &mut q8.sum[i * 2 * blocks..][..2 * blocks],
                };
                KernelTable::reference().quantize.get()(&x[i * k..][..k], &mut row);
            }
        }
        let check_rows = CHECK_ROWS.min(n);
        let mut trials = Trials {
            sample,
            slice_rows,
            n_slices,
            x,
            q8,
            expected: Vec::new(),
            check_rows,
            packed: Vec::new(),
            out: vec![0.0; BATCH * slice_rows],
        };
        let reference = table.matmul(format)[0].1;
        trials.expected = trials.check_product(reference).map_err(|r| Error::Backend(format!("{}: {r}", reference.id())))?;
        Ok(trials)
    }

    fn activations(&self, kind: ActivationKind, m: usize) -> Activations<'_> {
        let k = self.sample.k;
        let b = k / Q8_BLOCK;
        let data = match kind {
            ActivationKind::F32 => ActivationData::F32(&self.x[..m * k]),
            ActivationKind::Q8 => ActivationData::Q8(Q8 {
                q: &self.q8.q[..m * k],
                scale: &self.q8.scale[..m * b],
                scaled_sum: &self.q8.scaled_sum[..m * b],
                sum: &self.q8.sum[..m * 2 * b],
            }),
        };
        Activations { m, k, data }
    }

    /// The first rows times a few tokens, from a packing of their own.
    fn check_product(&self, kernel: &'static dyn MatmulKernel) -> std::result::Result<Vec<f32>, Refusal> {
        let (n, k) = (self.check_rows, self.sample.k);
        let layout = kernel.layout(n, k)?;
        let bytes = pack(kernel, layout, self.rows(0, n), n, k, None).map_err(|e| Refusal::new(e.to_string()))?;
        let weights = Weights { n, k, layout, bytes: bytes.as_deref().unwrap_or(self.rows(0, n)) };
        let mut out = vec![f32::NAN; CHECK_TOKENS * n];
        kernel.multiply(&weights, &self.activations(kernel.activation(), CHECK_TOKENS), &mut TileMut::whole(&mut out, CHECK_TOKENS, n));
        Ok(out)
    }

    fn rows(&self, first: usize, n: usize) -> &'a [u8] {
        let row_bytes = self.sample.bytes.len() / self.sample.n;
        &self.sample.bytes[first * row_bytes..][..n * row_bytes]
    }

    /// Checks a kernel against the reference and packs its slices.
    fn admit(&mut self, kernel: &'static dyn MatmulKernel, pass: &mut Pass<'_>) -> Candidate {
        let admitted = self.check_product(kernel).and_then(|got| agrees(kernel, &self.expected, &got)).and_then(|()| {
            let n = self.n_slices * self.slice_rows;
            let layout = kernel.layout(n, self.sample.k)?;
            let block = pack(kernel, layout, self.rows(0, n), n, self.sample.k, Some(pass)).map_err(|e| Refusal::new(e.to_string()))?;
            if let Some(block) = block {
                self.packed.push((kernel.id(), layout, block));
            }
            Ok(())
        });
        match admitted {
            Ok(()) => Candidate::unmeasured(kernel),
            Err(refusal) => Candidate::refused(kernel, refusal),
        }
    }

    /// Times the candidates in turns, from the highest rank down, and keeps the shortest time of each.
    fn measure(&mut self, candidates: &mut [Candidate], pass: &mut Pass<'_>) {
        let mut out = std::mem::take(&mut self.out);
        for m in [1, BATCH] {
            let start = Instant::now();
            let mut best = f64::INFINITY;
            'rounds: for round in 0.. {
                for i in (0..candidates.len()).rev() {
                    let kernel = candidates[i].kernel;
                    let so_far = if m == 1 { candidates[i].decode } else { candidates[i].prefill };
                    let patience = if round < SLICES { FAR_BEHIND } else { HOPELESS };
                    let hopeless = so_far.is_some_and(|t| t.us > best * patience);
                    // A first look is due to all, but not to one that took far too long with a single token.
                    let lost = m > 1 && candidates[i].decode.is_some_and(|t| t.us > 8.0 * self.fastest(candidates));
                    if candidates[i].refusal.is_some() || hopeless || lost {
                        continue;
                    }
                    let us = self.time(kernel, round % self.n_slices, m, &mut out, pass);
                    let us = so_far.map_or(us, |t| t.us.min(us));
                    best = best.min(us);
                    let numbers = (self.slice_rows * self.sample.k) as f64;
                    if m == 1 {
                        let bytes = self.rows(0, self.slice_rows).len() as f64;
                        candidates[i].decode = Some(Measured { us, rate: bytes / us / 1e3 });
                    } else {
                        candidates[i].prefill = Some(Measured { us, rate: 2.0 * numbers * m as f64 / us / 1e3 });
                    }
                }
                // At least every piece once: the first also warms the code.
                if round + 1 >= SLICES && start.elapsed() > BUDGET / 2 {
                    break 'rounds;
                }
            }
        }
        self.out = out;
    }

    fn fastest(&self, candidates: &[Candidate]) -> f64 {
        candidates.iter().filter_map(|c| c.decode).map(|t| t.us).fold(f64::INFINITY, f64::min)
    }

    /// Microseconds for one slice.
    fn time(&self, kernel: &'static dyn MatmulKernel, slice: usize, m: usize, out: &mut [f32], pass: &mut Pass<'_>) -> f64 {
        let (n, k) = (self.slice_rows, self.sample.k);
        let packed = self.packed.iter().find(|(id, ..)| *id == kernel.id());
        let (layout, all) = match packed {
            Some((_, layout, block)) => (*layout, &block[..]),
            None => match kernel.layout(n, k) {
                Ok(layout) => (layout, self.rows(0, self.n_slices * n)),
                Err(_) => return f64::INFINITY,
            },
        };
        let slice_bytes = all.len() / self.n_slices;
        let weights = Weights { n, k, layout, bytes: &all[slice * slice_bytes..][..slice_bytes] };
        let x = self.activations(kernel.activation(), m);
        let cols = n.div_ceil(pass.n_threads()).next_multiple_of(layout.panel_rows);
        let tiles = Tiles::columns(&mut out[..m * n], (m, n), cols);
        let start = Instant::now();
        pass.each(tiles, |_, _, mut tile| kernel.multiply(&weights, &x, &mut tile));
        start.elapsed().as_secs_f64() * 1e6
    }
}

/// Packs rows, on the team if one is given; `None` for a layout in place.
fn pack(
    kernel: &dyn MatmulKernel,
    layout: PackedLayout,
    rows: &[u8],
    n: usize,
    k: usize,
    pass: Option<&mut Pass<'_>>,
) -> Result<Option<Block>> {
    if layout.in_place {
        return Ok(None);
    }
    let row_bytes = rows.len() / n;
    let mut block = zeroed(n.div_ceil(layout.panel_rows) * layout.panel_bytes, "weights", Pages::Huge)?;
    let pack_panel = |panel: usize, dst: &mut [u8]| {
        let first = panel * layout.panel_rows;
        let n_rows = layout.panel_rows.min(n - first);
        kernel.pack_panel(&rows[first * row_bytes..][..n_rows * row_bytes], n_rows, k, dst);
    };
    match pass {
        Some(pass) => pass.each(Chunks::new(&mut block[..], layout.panel_bytes), |_, panel, dst| pack_panel(panel, dst)),
        None => block.chunks_exact_mut(layout.panel_bytes).enumerate().for_each(|(panel, dst)| pack_panel(panel, dst)),
    }
    Ok(Some(block))
}

/// Whether a product is what the reference gives: the same bits, or within the bound where the kernel does not promise them.
fn agrees(kernel: &dyn MatmulKernel, expected: &[f32], got: &[f32]) -> std::result::Result<(), Refusal> {
    if kernel.exact() {
        let differs = expected.iter().zip(got).position(|(a, b)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()));
        return match differs {
            None => Ok(()),
            Some(i) => Err(Refusal::new(format!("it computes {} where the reference gives {} (output {i})", got[i], expected[i]))),
        };
    }
    let error: f64 = expected.iter().zip(got).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let norm: f64 = expected.iter().map(|a| f64::from(*a).powi(2)).sum();
    if error <= norm * INEXACT_NMSE {
        Ok(())
    } else {
        Err(Refusal::new(format!("its error is {:.1e} of the result, more than {INEXACT_NMSE:.0e}", error / norm)))
    }
}
