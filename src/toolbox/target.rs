//! The model of a subcommand, and what it runs on.

use std::path::PathBuf;

use crate::fetch::Fetcher;
use crate::model::quantize::FileType;
use crate::program::{Halt, file_type, thread_count};
use crate::{LoadOptions, Model};

/// The file that a MODEL argument names, fetched if need be.
pub(super) fn file(model: &str) -> crate::Result<PathBuf> {
    Fetcher::from_env()?.resolve(model)
}

/// Flags of the subcommands that run a model.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Target {
    /// Kernels: auto measures and takes the fastest. Without it RML_BACKEND decides.
    #[arg(long, value_name = "NAME")]
    pub(super) backend: Option<String>,

    /// Threads; as many as this process may use unless given
    #[arg(short, long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,

    /// Read the model into memory rather than mapping the file
    #[arg(long)]
    no_mmap: bool,

    /// Turn the weights into q8_0, q4_0, q4_k or another type of rml quantize while loading
    #[arg(long, value_name = "TYPE", value_parser = file_type)]
    quantize: Option<FileType>,
}

impl Target {
    pub(super) fn load(&self, model: &str) -> Result<Model, Halt> {
        let options = LoadOptions {
            backend: self.backend.clone(),
            threads: self.threads.unwrap_or(0),
            no_mmap: self.no_mmap,
            quantize: self.quantize,
        };
        Ok(Model::load(&file(model)?, &options)?)
    }
}
