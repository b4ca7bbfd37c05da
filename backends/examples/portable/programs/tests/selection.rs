//! The backend among others: linked, and chosen where it is the fastest.

use std::path::Path;

use rml::model::registry;
use rml::{LoadOptions, Model};
use rml_backends::reference::format::Format;
use rml_backends::reference_backend::Ref;
use rml_backends::{Backend, Registry};
use rml_portable::Portable;

/// A model whose layers are Q8_0, on what `auto` takes of these backends.
fn auto(backends: &[&'static dyn Backend]) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../fixtures/models/q8_0.gguf");
    let options = LoadOptions { backend: Some("auto".to_owned()), threads: 1, ..LoadOptions::default() };
    let cpu = registry().expect("a registry").cpu().clone();
    Model::load_with(&path, &options, &Registry::of(cpu, backends.iter().copied())).expect("the reference is always left")
}

#[test]
fn it_wins_against_the_reference_by_time() {
    let model = auto(&[&Ref, &Portable]);
    let choice = model.choice().formats().iter().find(|choice| choice.format == Format::Q8_0).expect("the layers' format");
    assert_eq!(choice.kernel.id(), "portable:q8_0·q8:8x4", "{choice:?}");
    let [reference, portable] = &choice.candidates[..] else { panic!("two candidates: {choice:?}") };
    let (reference, portable) = (reference.decode.expect("measured"), portable.decode.expect("measured"));
    assert!(portable.us < reference.us, "{choice:?}");
}

#[test]
fn it_is_linked_into_the_programs() {
    let registry = registry().expect("a registry");
    assert!(registry.backends().iter().any(|r| r.backend.name() == "portable" && r.refusal.is_none()));
}
