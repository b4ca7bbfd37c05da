//! What a bench measures: a set that takes a few minutes, or, with a filter on the command line, what that picks of everything.

use std::time::Duration;

use criterion::Criterion;
use rml_backends::{CpuFeatures, KernelTable, Registry};

/// Criterion's options that take a value as the next argument.
const WITH_VALUE: [&str; 19] = [
    "-b",
    "-c",
    "-s",
    "--baseline",
    "--baseline-lenient",
    "--color",
    "--confidence-level",
    "--format",
    "--load-baseline",
    "--measurement-time",
    "--noise-threshold",
    "--nresamples",
    "--output-format",
    "--plotting-backend",
    "--profile-time",
    "--sample-size",
    "--save-baseline",
    "--significance-level",
    "--warm-up-time",
];

/// Whether the command line has a filter: an argument that is neither an option nor the value of one.
pub(crate) fn is_filtered() -> bool {
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if WITH_VALUE.contains(&argument.as_str()) {
            arguments.next();
        } else if !argument.starts_with('-') {
            return true;
        }
    }
    false
}

/// The backends that run here, each over the reference, lowest rank first; `RML_DISABLE` counts.
pub(crate) fn backends() -> Vec<(&'static str, KernelTable)> {
    let disable = std::env::var("RML_DISABLE").unwrap_or_default();
    let registry = Registry::new(CpuFeatures::detect(&disable).unwrap_or_else(|e| panic!("{e}")));
    let runnable = registry.backends().iter().filter(|r| r.refusal.is_none()).map(|r| r.backend.name());
    runnable.map(|name| (name, registry.table_of(name).expect("it can run here"))).collect()
}

/// Short enough for many cases; the command line may ask for more.
pub(crate) fn brief(measurement: Duration) -> Criterion {
    Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(measurement).without_plots()
}
