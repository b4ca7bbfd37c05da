//! What the CPU can do, detected once and masked by `RML_DISABLE`.

use std::collections::BTreeSet;

/// Features this CPU and operating system offer, less those that the user disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFeatures {
    known: BTreeSet<&'static str>,
    present: BTreeSet<&'static str>,
    disabled: BTreeSet<&'static str>,
}

/// Rust's names of the features that backends ask about, and what a user may write for a group of them.
#[cfg(target_arch = "x86_64")]
macro_rules! detect {
    ($($name:tt),*) => { [$(($name, is_x86_feature_detected!($name))),*] };
}
#[cfg(target_arch = "aarch64")]
macro_rules! detect {
    ($($name:tt),*) => { [$(($name, std::arch::is_aarch64_feature_detected!($name))),*] };
}

#[cfg(target_arch = "x86_64")]
fn detected() -> impl IntoIterator<Item = (&'static str, bool)> {
    detect!("avx2", "fma", "f16c", "avxvnni", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vbmi", "avx512bf16")
}
#[cfg(target_arch = "aarch64")]
fn detected() -> impl IntoIterator<Item = (&'static str, bool)> {
    detect!("neon", "dotprod", "i8mm", "fp16", "bf16")
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detected() -> impl IntoIterator<Item = (&'static str, bool)> {
    []
}

/// Words of `RML_DISABLE` that stand for several features.
const GROUPS: [(&str, &[&str]); 4] = [
    ("avx512", &["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vbmi", "avx512bf16"]),
    ("vnni", &["avx512vnni", "avxvnni"]),
    ("avx2", &["avx2", "avxvnni", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vbmi", "avx512bf16"]),
    ("neon", &["neon", "dotprod", "i8mm", "fp16", "bf16"]),
];

impl CpuFeatures {
    /// What the CPU offers, less the comma-separated features and groups in `disable` (as in `RML_DISABLE=avx512,vnni`).
    ///
    /// # Errors
    /// Names the words that are neither a feature nor a group of this architecture.
    pub fn detect(disable: &str) -> Result<Self, String> {
        let mut present = BTreeSet::new();
        let mut known = BTreeSet::new();
        for (name, there) in detected() {
            known.insert(name);
            if there {
                present.insert(name);
            }
        }
        let mut disabled = BTreeSet::new();
        for word in disable.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            if let Some((_, group)) = GROUPS.iter().find(|(name, _)| *name == word) {
                disabled.extend(group.iter().filter(|f| known.contains(**f)));
            } else if let Some(&name) = known.get(word) {
                disabled.insert(name);
            } else {
                let words: Vec<_> = GROUPS.iter().map(|g| g.0).chain(known.iter().copied()).collect();
                return Err(format!("RML_DISABLE names {word:?}, which is no CPU feature known here; known are {}", words.join(", ")));
            }
        }
        present.retain(|f| !disabled.contains(f));
        Ok(CpuFeatures { known, present, disabled })
    }

    /// These, and `feature` though nobody detected it: for emulators, and for tests that emulate.
    ///
    /// # Safety
    /// The feature's instructions must do what they are specified to do, on every thread that runs kernels of a table made
    /// from this: that such kernels are safe functions rests on it.
    pub unsafe fn claiming(mut self, feature: &'static str) -> Self {
        self.disabled.remove(feature);
        self.present.insert(feature);
        self
    }

    /// Whether the feature (Rust's name, such as `avx2` or `dotprod`) may be used: there, not disabled, and among those looked for.
    pub fn has(&self, feature: &str) -> bool {
        self.present.contains(feature)
    }

    /// A refusal that names the first of `features` that is missing, and whether the user disabled it or nobody looks for it.
    ///
    /// Features that rml's backends ask about are looked for; of others ask `is_x86_feature_detected!` and its like.
    pub fn require(&self, features: &[&str]) -> Result<(), crate::Refusal> {
        match features.iter().find(|f| !self.has(f)) {
            None => Ok(()),
            Some(f) if self.disabled.contains(*f) => Err(crate::Refusal::new(format!("{f} is disabled by RML_DISABLE"))),
            Some(f) if self.known.contains(f) => Err(crate::Refusal::new(format!("this CPU has no {f}"))),
            Some(f) => {
                let known = self.known.iter().copied().collect::<Vec<_>>().join(", ");
                Err(crate::Refusal::new(format!("{f} is not among the features looked for on {}: {known}", std::env::consts::ARCH)))
            }
        }
    }

    /// The features that may be used, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &'static str> {
        self.present.iter().copied()
    }
}
