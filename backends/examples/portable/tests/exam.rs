//! The backend against the reference. `RML_EXAM` picks cases by the words that a failure prints.

use rml_backends::reference::format::Format;
use rml_backends::{CpuFeatures, Refusal, Registry};
use rml_portable as _; // linked, and so registered

#[test]
fn passes_the_exam() {
    rml_backends::exam::assert_passes("portable");
}

#[test]
fn few_rows_are_refused_with_a_reason() {
    let table = Registry::new(CpuFeatures::detect("").expect("features")).table_of("portable").expect("it runs anywhere");
    let (_, kernel) = table.matmul(Format::Q8_0).last().expect("its product");
    assert_eq!(kernel.layout(7, 64), Err(Refusal::new("7 rows do not fill a panel of 8")));
    assert!(kernel.layout(8, 64).is_ok());
}
