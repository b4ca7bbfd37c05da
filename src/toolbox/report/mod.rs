//! `rml report`: one page of what the benches measured, operation by operation, shape by shape, backend by backend.

mod page;
mod results;

use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

use super::Output;
use super::new_file::write_new;
use crate::Error;
use crate::program::{Halt, counted};

/// Make one page of the results of cargo bench
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where criterion keeps its results
    #[arg(default_value = "target/criterion")]
    folder: PathBuf,

    /// The page to write
    #[arg(default_value = "report.html")]
    page: PathBuf,

    /// Overwrite the page if it is there
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) fn run(&self, out: &mut Output) -> Result<(), Halt> {
        let results = results::read(&self.folder)?;
        if results.is_empty() {
            return Err(Halt::Failed(format!("{}: no results of criterion; run cargo bench --bench kernels first", self.folder.display())));
        }
        let html = page::html(&results);
        write_new(&self.page, self.force, |file| {
            file.write_all(html.as_bytes()).map_err(|source| Error::Io { path: self.page.clone(), action: "write", source })
        })?;
        out.either(
            || json!({"page": self.page.to_string_lossy(), "results": results.len()}),
            || format!("{}: {}", self.page.display(), counted(results.len(), "result")),
        )
    }
}
