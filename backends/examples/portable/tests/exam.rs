//! The backend against the reference. `RML_EXAM` picks cases by the words that a failure prints.

use rml_portable as _; // linked, and so registered

#[test]
fn passes_the_exam() {
    rml_backends::exam::assert_passes("portable");
}
