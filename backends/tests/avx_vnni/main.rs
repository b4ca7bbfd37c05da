//! The products of `avx2` with and without AVX-VNNI, on any CPU: where the instruction is missing it is emulated.
//!
//! `RML_EXAM` picks cases by the words that a failure prints.
#![cfg(target_arch = "x86_64")]

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod emulated;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod instruction;

use std::io::Write;
use std::thread;

use rml_backends::{CpuFeatures, KernelTable, Registry, exam};
use rml_kernels_ref::format::Format;

const NO_VNNI: &str = "this CPU has no AVX2, or no AVX-VNNI, which is emulated on Linux alone";

/// The CPU's features and AVX-VNNI, emulated if need be; none if it cannot be had.
fn with_vnni() -> Option<CpuFeatures> {
    let cpu = CpuFeatures::detect("").unwrap();
    cpu.require(&["avx2", "fma", "f16c"]).ok()?;
    if cpu.has("avxvnni") {
        return Some(cpu);
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        emulated::install();
        // SAFETY: the instruction is emulated, in the whole process; kernels use no other of AVX-VNNI.
        Some(unsafe { cpu.claiming("avxvnni") })
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// For each quantized format the reference and the products of `avx2` alone; none if that cannot run.
fn products(cpu: CpuFeatures) -> Option<Vec<(Format, KernelTable)>> {
    let avx2 = Registry::new(cpu).table_of("avx2").ok()?;
    let alone = |format| {
        let mut table = KernelTable::reference();
        avx2.matmul(format).iter().filter(|(owner, _)| *owner == "avx2").for_each(|&(owner, kernel)| table.put_matmul(owner, kernel));
        (format, table)
    };
    Some(Format::ALL.into_iter().filter(|format| !format.is_float()).map(alone).collect())
}

fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

#[test]
fn features_of_the_cpu_choose_how_avx2_multiplies() {
    let (Some(plain), Some(vnni)) = (products(CpuFeatures::detect("vnni").unwrap()), with_vnni()) else { return skipped(NO_VNNI) };
    for (tables, tile) in [(plain, "16x4"), (products(vnni).expect("it has AVX2"), "16x4-vnni")] {
        for (format, table) in tables {
            let ids: Vec<_> = table.matmul(format).iter().map(|(_, kernel)| kernel.id()).collect();
            assert_eq!(ids[1..], [format!("avx2:{format}·q8:{tile}").to_lowercase()], "{format}");
        }
    }
}

/// The exam of all formats, on all cores: the cases of `RML_EXAM`, or those with one of `words`.
fn sit(tables: &[(Format, KernelTable)], words: &[&str]) {
    let asked = std::env::var("RML_EXAM").unwrap_or_default();
    let words = if asked.is_empty() { words } else { &[asked.as_str()] };
    let sittings: Vec<_> = tables.iter().flat_map(|(_, table)| words.iter().map(move |&only| (table, only))).collect();
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let mut reports = Vec::new();
    thread::scope(|scope| {
        let part = |sittings: Vec<&(&KernelTable, &str)>| {
            sittings.into_iter().map(|(table, only)| exam::sit(table, "avx2", only)).collect::<Vec<_>>()
        };
        let parts = (0..n_threads).map(|i| sittings.iter().skip(i).step_by(n_threads).collect());
        let threads: Vec<_> = parts.map(|sittings| scope.spawn(move || part(sittings))).collect();
        threads.into_iter().for_each(|thread| reports.extend(thread.join().expect("exams catch panics")));
    });
    reports.iter().filter(|report| !report.passed()).for_each(|report| eprintln!("{report}"));
    let cases: usize = reports.iter().map(|report| report.cases()).sum();
    let _ = writeln!(std::io::stderr(), "{cases} cases of {} formats", tables.len());
    assert!(cases > 0 || !asked.is_empty(), "no case was sat");
    assert!(reports.iter().all(|report| report.passed()), "see above");
}

#[test]
fn products_without_vnni_pass_the_exam() {
    match products(CpuFeatures::detect("vnni").unwrap()) {
        Some(tables) => sit(&tables, &[""]),
        None => skipped("this CPU has no AVX2"),
    }
}

#[test]
fn products_with_vnni_pass_the_exam() {
    let Some(cpu) = with_vnni() else { return skipped(NO_VNNI) };
    let tables = products(cpu).expect("it has AVX2");
    if is_x86_feature_detected!("avxvnni") {
        return sit(&tables, &[""]);
    }
    // Emulation takes long: tiles of every size, two tiles side by side, groups of panels, and panels that are unpacked.
    sit(&tables, &["m=1", "m=2", "m=3", "m=4", "m=7", "m=9", "m=33"]);
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let _ = writeln!(std::io::stderr(), "{} dot products were emulated", emulated::count());
    }
}
