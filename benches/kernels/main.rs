//! Every kernel of every backend that runs here, on one thread, over the shapes of models. An id ends in the backend that owns
//! the kernel, so that backends compare line by line:
//!
//! - `matmul/FORMAT/NxK/mM/BACKEND`: bytes of weights a second up to 8 tokens, from memory; beyond, operations a second.
//! - `attend/KV/GxD/mM/BACKEND`: one key-value head and one span; bytes of keys and values a second for one token, operations for 16.
//! - `OPERATION/SIZE/BACKEND` for the rest: elements a second.
//!
//! `cargo bench --bench kernels` takes a few formats and matrices, and of the reference little. With a filter (a regular
//! expression) everything is there to pick from: `cargo bench --bench kernels -- matmul/q5_k/4096x4096/m32`.

mod attention;
mod matmul;
mod numbers;
mod rows;
#[path = "../selection/mod.rs"]
mod selection;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rml::toolbox::synth::Shape;
use rml_backends::KernelTable;
use rml_backends::table::Slot;

/// What is measured on.
struct Setting {
    backends: Vec<(&'static str, KernelTable)>,
    shapes: Vec<Shape>,
    all: bool,
}

impl Setting {
    fn new() -> Self {
        let shapes = Shape::all().into_iter().filter(|s| s.name != "tiny").collect();
        Setting { backends: selection::backends(), shapes, all: selection::is_filtered() }
    }

    /// The sizes that `of` takes from the shapes, each once.
    fn sizes<T: Ord>(&self, of: impl Fn(&Shape) -> T) -> Vec<T> {
        let mut sizes: Vec<_> = self.shapes.iter().map(of).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The backends that own a slot, and their kernels.
    fn owners<F: Copy>(&self, slot: impl Fn(&KernelTable) -> Slot<F>) -> Vec<(&'static str, F)> {
        let slots = self.backends.iter().map(|(name, table)| (*name, slot(table)));
        slots.filter(|(name, slot)| slot.owner() == *name).map(|(name, slot)| (name, slot.get())).collect()
    }
}

fn kernels(c: &mut Criterion) {
    let setting = Setting::new();
    matmul::all(c, &setting);
    attention::all(c, &setting);
    rows::all(c, &setting);
}

criterion_group! { name = benches; config = selection::brief(Duration::from_secs(1)); targets = kernels }
criterion_main!(benches);
