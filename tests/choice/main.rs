//! The choice of kernels at load, among backends that are made for it and registered like any other.

mod made;

use std::io::Write;
use std::path::{Path, PathBuf};

use made::{LOOSE, QUICK, REFUSING, SHY, SLOPPY, SLOW, WRONG, fast};
use rml::decode::{KvType, Rows, State};
use rml::exec::choice::{Candidate, FormatChoice};
use rml::model::registry;
use rml::{Error, LoadOptions, Model};
use rml_backends::reference_backend::Ref;
use rml_backends::{Backend, Registry};

/// Layers in Q4_1, the head in Q8_0.
fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/q4_1.gguf")
}

fn load(registry: &Registry, backend: &str) -> rml::Result<Model> {
    let options = LoadOptions { backend: Some(backend.to_owned()), threads: 2, ..LoadOptions::default() };
    Model::load_with(&model(), &options, registry)
}

/// A model on what `auto` takes of the reference and these.
fn auto(backends: &[&'static dyn Backend]) -> Model {
    let cpu = registry().unwrap().cpu().clone();
    let all = [&[&Ref as &'static dyn Backend], backends].concat();
    load(&Registry::of(cpu, all), "auto").expect("the reference is always left")
}

/// The backend of a kernel.
fn owner(id: &str) -> &str {
    id.split(':').next().expect("a name")
}

/// The candidate that a backend put up.
fn candidate<'a>(choice: &'a FormatChoice, name: &str) -> &'a Candidate {
    choice.candidates.iter().find(|c| owner(c.kernel.id()) == name).unwrap_or_else(|| panic!("{name} is not in the report"))
}

fn reason(choice: &FormatChoice, name: &str) -> String {
    candidate(choice, name).refusal.as_ref().unwrap_or_else(|| panic!("{name} was not refused")).to_string()
}

/// Logits of a few tokens.
fn logits(model: &Model) -> Vec<u32> {
    let mut state = State::new(model, KvType::F16, 8).expect("a state");
    state.forward(model, &[5, 80, 3, 200, 77], Rows::All).expect("a pass").iter().map(|x| x.to_bits()).collect()
}

/// Its rank is higher, but it takes the time of eight.
#[test]
fn one_that_is_slower_than_the_reference_is_not_chosen() {
    let model = auto(&[&SLOW]);
    assert_eq!(model.choice().formats().len(), 2);
    for choice in model.choice().formats() {
        assert_eq!(owner(choice.kernel.id()), "ref", "{choice:?}");
        let (reference, slow) = (candidate(choice, "ref").decode.unwrap(), candidate(choice, "slow").decode.unwrap());
        assert!(slow.us > reference.us, "{choice:?}");
        assert_eq!(candidate(choice, "slow").refusal, None);
    }
}

/// It has the lowest rank but the reference's, and wins by time alone.
#[test]
fn the_fastest_that_is_right_is_chosen() {
    if fast().is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: nothing that runs on this CPU is faster than ref");
        return;
    }
    let model = auto(&[&WRONG, &SLOPPY, &SHY, &SLOW, &QUICK]);
    for choice in model.choice().formats() {
        assert_eq!(owner(choice.kernel.id()), "quick", "{choice:?}");
        let quick = candidate(choice, "quick");
        assert!(quick.decode.is_some() && quick.prefill.is_some() && quick.refusal.is_none(), "{choice:?}");
    }
    assert_eq!(logits(&model), logits(&auto(&[])));
}

/// It is measured, and the fastest there is; but who did not name it gets the reference's bits.
#[test]
fn one_that_is_not_exact_is_taken_only_by_its_name() {
    if fast().is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: nothing that runs on this CPU is faster than ref");
        return;
    }
    for choice in auto(&[&LOOSE]).choice().formats() {
        let (reference, loose) = (candidate(choice, "ref").decode.unwrap(), candidate(choice, "loose").decode.unwrap());
        assert!(owner(choice.kernel.id()) == "ref" && loose.us < reference.us, "{choice:?}");
    }
    let registry = Registry::of(registry().unwrap().cpu().clone(), [&Ref as &'static dyn Backend, &LOOSE]);
    for request in ["loose", "auto,matmul=loose"] {
        for choice in load(&registry, request).unwrap().choice().formats() {
            assert_eq!(owner(choice.kernel.id()), "loose", "{request}: {choice:?}");
        }
    }
}

/// They take no time at all and have the highest ranks.
#[test]
fn one_that_is_wrong_is_dropped_with_a_reason() {
    let model = auto(&[&WRONG, &SLOPPY]);
    for choice in model.choice().formats() {
        assert_eq!(owner(choice.kernel.id()), "ref", "{choice:?}");
        let wrong = reason(choice, "wrong");
        assert!(wrong.starts_with("it computes 0 where the reference gives ") && wrong.ends_with("(output 0)"), "{wrong}");
        let sloppy = reason(choice, "sloppy");
        assert_eq!(sloppy, "its error is 1.0e0 of the result, more than 1e-4");
        for name in ["wrong", "sloppy"] {
            assert!(candidate(choice, name).decode.is_none() && candidate(choice, name).prefill.is_none(), "measured though it is wrong");
        }
    }
    assert_eq!(logits(&model), logits(&auto(&[])));
}

#[test]
fn a_kernel_that_refuses_the_shape_says_so_in_the_report() {
    for choice in auto(&[&SHY]).choice().formats() {
        assert_eq!((owner(choice.kernel.id()), reason(choice, "shy").as_str()), ("ref", made::SHY_OF));
    }
}

/// As `auto` meets them in a program: among whatever else can run here.
#[test]
fn registered_backends_are_considered_and_the_bad_ones_never_taken() {
    let registry = registry().unwrap();
    let model = load(&registry, "auto").unwrap();
    for choice in model.choice().formats() {
        for bad in ["slow", "wrong", "sloppy", "shy", "loose"] {
            assert_ne!(owner(choice.kernel.id()), bad);
            candidate(choice, bad);
        }
        assert!(choice.candidates.iter().all(|c| owner(c.kernel.id()) != "refusing"));
    }
    assert_eq!(logits(&model), logits(&load(&registry, "ref").unwrap()));
}

#[test]
fn one_that_is_named_is_taken_without_a_race() {
    let model = load(&registry().unwrap(), "slow").unwrap();
    for choice in model.choice().formats() {
        assert_eq!(owner(choice.kernel.id()), "slow");
        assert!(choice.candidates.iter().all(|c| c.decode.is_none() && c.prefill.is_none()), "{choice:?}");
    }
}

#[test]
fn one_that_refuses_is_an_error_when_named_and_lists_every_name_with_its_reason() {
    let options = LoadOptions { backend: Some("refusing".to_owned()), ..LoadOptions::default() };
    let Err(Error::Backend(error)) = Model::load(&model(), &options) else { panic!("it must fail") };
    assert!(error.starts_with(&format!("backend refusing cannot run here: {}; there are auto, ref, ", made::REFUSES)), "{error}");
    let registry = registry().unwrap();
    for r in registry.backends() {
        let listed = r.refusal.as_ref().map_or(r.backend.name().to_owned(), |why| format!("{} ({why})", r.backend.name()));
        assert!(error.contains(&format!(", {listed}")), "{listed:?} is not in: {error}");
    }
    assert!(registry.backends().iter().any(|r| r.backend.name() == REFUSING.name && r.refusal.is_some()));
}
