//! Every backend that runs here sits the exam. `RML_EXAM` picks cases by the words that a failure prints.

mod planted;

use rml_backends::{CpuFeatures, Registry, exam};
use std::io::Write;

#[test]
fn every_runnable_backend_passes() {
    let only = std::env::var("RML_EXAM").unwrap_or_default();
    let registry = Registry::new(CpuFeatures::detect(&std::env::var("RML_DISABLE").unwrap_or_default()).unwrap());
    let (mut failed, mut cases) = (false, 0);
    for runnable in registry.backends() {
        let name = runnable.backend.name();
        if let Some(refusal) = &runnable.refusal {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {refusal}");
            continue;
        }
        let report = exam::sit(&registry.table_of(name).unwrap(), name, &only);
        assert!(report.cases() > 0 || !only.is_empty(), "{name} sat nothing");
        eprintln!("{report}");
        cases += report.cases();
        failed |= !report.passed();
    }
    assert!(cases > 0, "no case has all the words of RML_EXAM={only:?}");
    assert!(!failed, "a backend failed its exam, see above");
}
