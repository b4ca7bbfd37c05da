//! Whole steps, on all threads, with models of random weights: `decode/SHAPE/FORMAT/mM/BACKEND`, in tokens a second.
//!
//! One token after 128 others is decode, 4 and 8 are what a draft is checked with, 512 of an empty cache are prefill.
//! Without a filter Q4_0 is measured with the kernels that are chosen at load (`auto`). With one (a regular expression), every
//! format and backend is there to pick from: `cargo bench --bench decode -- smollm2-135m/q8_0/m1/`. Models of 8 billion weights
//! are left out unless `RML_BENCH_LARGE` is set. Models are written once, to `target/tmp`.

#[path = "selection/mod.rs"]
mod selection;

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rml::decode::{KvType, Rows, State};
use rml::toolbox::synth::{Shape, Synthetic, write_file};
use rml::{LoadOptions, Model};
use rml_kernels_ref::format::Format;

/// Tokens of a step.
const STEPS: [usize; 4] = [1, 4, 8, 512];
/// Tokens before a step that is no prefill.
const DEPTH: usize = 128;
/// What counts as large.
const LARGE: usize = 4_000_000_000;

fn decode(c: &mut Criterion) {
    let all = selection::is_filtered();
    let large = std::env::var_os("RML_BENCH_LARGE").is_some();
    let mut backends = vec!["auto"];
    if all {
        backends.extend(selection::backends().iter().map(|(name, _)| name));
    }
    for shape in Shape::all().iter().filter(|s| s.name != "tiny" && (large || s.n_weights() < LARGE)) {
        for format in Format::ALL.into_iter().filter(|f| all || *f == Format::Q4_0) {
            for backend in &backends {
                let mut model = None;
                let mut group = c.benchmark_group(format!("decode/{}/{format}", shape.name));
                for m in STEPS {
                    group.throughput(Throughput::Elements(m as u64));
                    let mut step = None;
                    group.bench_function(format!("m{m}/{backend}"), |b| {
                        let model = model.get_or_insert_with(|| load(shape, format, backend));
                        let step = step.get_or_insert_with(|| Step::new(model, m));
                        b.iter(|| step.run(model));
                    });
                }
                group.finish();
            }
        }
    }
}

fn load(shape: &Shape, format: Format, backend: &str) -> Model {
    let options = LoadOptions { backend: Some(backend.to_owned()), ..LoadOptions::default() };
    written(shape, format).and_then(|path| Model::load(&path, &options)).unwrap_or_else(|e| panic!("{e}"))
}

/// The file of a model, written if it is not there.
fn written(shape: &Shape, format: Format) -> rml::Result<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{format}.gguf", shape.name));
    if !path.exists() {
        write_file(&Synthetic::new(shape, format)?, 0, &path, false)?;
    }
    Ok(path)
}

/// A cache and the tokens of a step at its end.
struct Step {
    state: State,
    tokens: Vec<u32>,
    depth: usize,
    rows: Rows,
}

impl Step {
    fn new(model: &Model, m: usize) -> Self {
        let (depth, rows) = match m {
            1 => (DEPTH, Rows::Last),
            2..=DEPTH => (DEPTH, Rows::All),
            _ => (0, Rows::Last),
        };
        let n_vocab = model.config().n_vocab;
        // A stride through the vocabulary: no two rows of the embedding in a row are neighbours.
        let token = |i: usize| ((100 + i * 7919) % n_vocab) as u32;
        let mut state = State::new(model, KvType::F16, depth + m).unwrap_or_else(|e| panic!("{e}"));
        if depth > 0 {
            let before: Vec<u32> = (0..depth).map(token).collect();
            state.forward(model, &before, Rows::Last).unwrap_or_else(|e| panic!("{e}"));
        }
        Step { state, tokens: (depth..depth + m).map(token).collect(), depth, rows }
    }

    fn run(&mut self, model: &Model) {
        self.state.truncate(self.depth);
        self.state.forward(model, &self.tokens, self.rows).unwrap_or_else(|e| panic!("{e}"));
    }
}

criterion_group! { name = benches; config = selection::brief(Duration::from_secs(3)); targets = decode }
criterion_main!(benches);
