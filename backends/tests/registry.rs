//! Which backends there are, what each says of the CPU, and what happens to a name that cannot be had.

use rml_backends::{Backend, CpuFeatures, KernelTable, Refusal, Registry};
use rml_kernels_ref::format::Format;
use rml_kernels_ref::gate;

/// A backend that takes one slot, or refuses.
#[derive(Debug)]
struct Made {
    name: &'static str,
    rank: u32,
    refusal: Option<&'static str>,
}

impl Backend for Made {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn probe(&self, _: &CpuFeatures) -> Result<(), Refusal> {
        self.refusal.map_or(Ok(()), |reason| Err(Refusal::new(reason)))
    }

    fn install(&self, _: &CpuFeatures, table: &mut KernelTable) {
        assert_eq!(self.refusal, None, "installed though it refused");
        table.add.put(self.name, gate::add);
    }
}

static HIGH: Made = Made { name: "high", rank: 9, refusal: None };
static LOW: Made = Made { name: "low", rank: 5, refusal: None };
static ALSO_LOW: Made = Made { name: "also-low", rank: 5, refusal: None };
static REFUSING: Made = Made { name: "refusing", rank: 99, refusal: Some("this CPU has no luck") };

fn registry() -> Registry {
    let backends: [&'static dyn Backend; 4] = [&HIGH, &REFUSING, &LOW, &ALSO_LOW];
    Registry::of(CpuFeatures::detect("").unwrap(), backends)
}

#[test]
fn backends_stand_in_order_of_rank_then_name() {
    let names: Vec<_> = registry().backends().iter().map(|r| r.backend.name()).collect();
    assert_eq!(names, ["also-low", "low", "high", "refusing"]);
}

#[test]
fn the_highest_that_can_run_owns_a_slot_and_the_rest_is_ref() {
    let table = registry().table();
    assert_eq!((table.add.owner(), table.softmax.owner()), ("high", "ref"));
    assert_eq!(registry().table_of("low").unwrap().add.owner(), "low");
    assert_eq!(Registry::of(CpuFeatures::detect("").unwrap(), []).table().add.owner(), "ref");
}

#[test]
fn an_unknown_name_lists_every_name_with_its_reason() {
    let error = registry().table_of("sse9").unwrap_err().to_string();
    assert_eq!(error, "unknown backend \"sse9\"; there are auto, also-low, low, high, refusing (this CPU has no luck)");
}

#[test]
fn a_refusal_is_an_error_that_says_why() {
    let error = registry().table_of("refusing").unwrap_err().to_string();
    let list = "there are auto, also-low, low, high, refusing (this CPU has no luck)";
    assert_eq!(error, format!("backend refusing cannot run here: this CPU has no luck; {list}"));
}

#[test]
fn ref_is_linked_runs_anywhere_and_has_the_lowest_rank() {
    let registry = Registry::new(CpuFeatures::detect("").unwrap());
    let first = &registry.backends()[0];
    assert_eq!((first.backend.name(), first.backend.rank(), &first.refusal), ("ref", 0, &None));
    let table = registry.table_of("ref").unwrap();
    for format in Format::ALL {
        let [(owner, kernel)] = table.matmul(format) else { panic!("one product of {format}") };
        assert_eq!((*owner, kernel.format()), ("ref", format));
        assert!(kernel.id().starts_with(&format!("ref:{format}·")), "{}", kernel.id());
    }
}

#[test]
fn a_backend_of_another_architecture_is_known_and_says_so() {
    let registry = Registry::new(CpuFeatures::detect("").unwrap());
    let (names, wanted): (&[&str], _) = match std::env::consts::ARCH {
        "x86_64" => (&["neon"], "it is for 64-bit Arm, and this CPU is x86_64"),
        "aarch64" => (&["avx2", "avx512"], "it is for x86-64, and this CPU is aarch64"),
        other => panic!("{other}: say here what is known of it"),
    };
    for name in names {
        let error = registry.table_of(name).unwrap_err().to_string();
        assert!(error.starts_with(&format!("backend {name} cannot run here: {wanted}; there are auto, ref, ")), "{error}");
    }
}

#[test]
#[cfg(not(target_os = "macos"))]
fn accelerate_is_known_everywhere_and_says_where_it_runs() {
    let error = Registry::new(CpuFeatures::detect("").unwrap()).table_of("accelerate").unwrap_err().to_string();
    let wanted = format!("backend accelerate cannot run here: it is for macOS, and this system is {}; there are ", std::env::consts::OS);
    assert!(error.starts_with(&wanted), "{error}");
}

#[test]
fn names_and_ranks_do_not_collide() {
    let registry = Registry::new(CpuFeatures::detect("").unwrap());
    let mut names: Vec<_> = registry.backends().iter().map(|r| r.backend.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), registry.backends().len());
    assert!(!names.contains(&"auto"), "auto is what a user writes for the choice");
}

#[test]
fn a_name_is_one_backends_and_can_be_asked_for() {
    static SECOND: Made = Made { name: "high", rank: 10, refusal: None };
    static AUTO: Made = Made { name: "auto", rank: 11, refusal: None };
    static TWO: Made = Made { name: "a,b", rank: 12, refusal: None };
    let backends: [&'static dyn Backend; 4] = [&SECOND, &TWO, &AUTO, &HIGH];
    let registry = Registry::of(CpuFeatures::detect("").unwrap(), backends);
    let refusals = registry.backends().iter().map(|r| r.refusal.as_ref().map(|r| r.0.as_str()));
    let wanted = [
        None,
        Some("high is another backend's name, or it is registered twice"),
        Some("auto is what the choice among all is called"),
        Some("a name is of letters, digits, - and _, and \"a,b\" is not"),
    ];
    assert_eq!(refusals.collect::<Vec<_>>(), wanted);
    assert_eq!(registry.table_of("high").unwrap().add.owner(), "high");
}

#[test]
fn a_kernel_of_the_same_name_takes_the_place_of_the_first() {
    let mut table = KernelTable::reference();
    let (_, kernel) = table.matmul(Format::Q4_0)[0];
    table.put_matmul("another", kernel);
    assert_eq!(table.matmul(Format::Q4_0).iter().map(|(owner, _)| *owner).collect::<Vec<_>>(), ["another"]);
}

#[test]
fn words_of_rml_disable() {
    let all = CpuFeatures::detect("").unwrap();
    assert_eq!(CpuFeatures::detect(" , ,").unwrap(), all);
    for feature in all.iter() {
        let without = CpuFeatures::detect(feature).unwrap();
        assert!(!without.has(feature));
        // Where a feature is also the name of a group, such as `avx2`, what is built on it goes with it.
        let is_group = ["avx2", "neon"].contains(&feature);
        assert!(without.iter().count() + 1 == all.iter().count() || is_group, "only {feature} is gone");
        let refusal = without.require(&[feature]).unwrap_err().to_string();
        assert_eq!(refusal, format!("{feature} is disabled by RML_DISABLE"));
        assert_eq!(all.require(&[feature]), Ok(()));
    }
    let refusal = all.require(&["warp-drive"]).unwrap_err().to_string();
    assert!(refusal.starts_with("warp-drive is not among the features looked for on "), "{refusal}");
    let error = CpuFeatures::detect("avx512,warp-drive").unwrap_err();
    assert!(error.contains("\"warp-drive\"") && error.contains("known are") && error.contains("vnni"), "{error}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn groups_of_rml_disable() {
    let has_none = |disable: &str, words: &[&str]| {
        let cpu = CpuFeatures::detect(disable).unwrap();
        assert!(!cpu.iter().any(|f| words.iter().any(|w| f.contains(w))), "{disable} leaves {:?}", cpu.iter().collect::<Vec<_>>());
    };
    has_none("avx512", &["avx512"]);
    has_none("vnni", &["vnni"]);
    has_none("avx2", &["avx"]);
    has_none("vnni, avx512", &["vnni", "avx512"]);
    // AVX-512 without what it is built on would be no machine there is.
    let registry = Registry::new(CpuFeatures::detect("avx2").unwrap());
    for r in registry.backends().iter().filter(|r| r.backend.name().starts_with("avx")) {
        let reason = r.refusal.as_ref().expect("refused").to_string();
        assert!(reason.contains("disabled by RML_DISABLE") || reason.contains("has no"), "{reason}");
    }
}

#[cfg(target_arch = "aarch64")]
#[test]
fn features_of_the_cpu_choose_how_neon_multiplies() {
    let every = CpuFeatures::detect("").unwrap();
    for (disable, wanted) in [("dotprod,i8mm", "16x4"), ("i8mm", "16x4-sdot"), ("dotprod", "16x4"), ("", "16x4-smmla")] {
        if !every.has("dotprod") && wanted != "16x4" || !every.has("i8mm") && wanted == "16x4-smmla" {
            continue;
        }
        let table = Registry::new(CpuFeatures::detect(disable).unwrap()).table_of("neon").unwrap();
        let ids: Vec<_> = table.matmul(Format::Q4_0).iter().map(|(_, kernel)| kernel.id()).collect();
        assert_eq!(ids, ["ref:q4_0·q8:1x1".to_owned(), format!("neon:q4_0·q8:{wanted}")], "without {disable:?}");
    }
    let error = Registry::new(CpuFeatures::detect("neon").unwrap()).table_of("neon").unwrap_err().to_string();
    assert!(error.contains("neon is disabled by RML_DISABLE"), "{error}");
}
