//! What a MODEL argument means, before anything is fetched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::MODEL_SYNTAX;
use super::catalog::Known;
use crate::model::{BESIDE_WEIGHTS, CONFIG, TEMPLATES, is_weights};
use crate::{Error, Result};

#[derive(Debug)]
pub(super) enum Source {
    Path(PathBuf),
    Known(&'static Known),
    /// `file` is a name, or a part of one such as `Q4_K_M`.
    Hub {
        repo: String,
        file: Option<String>,
    },
}

impl Source {
    pub(super) fn parse(model: &str) -> Result<Source> {
        if let Some(known) = Known::named(model) {
            return Ok(Source::Known(known));
        }
        let Some(name) = model.strip_prefix("hf:") else { return Ok(Source::Path(model.into())) };
        let (repo, file) = match name.split_once(':') {
            Some((repo, file)) => (repo, Some(file)),
            None => (name, None),
        };
        let well_formed = repo.split('/').count() == 2 && is_safe(repo) && file.is_none_or(is_safe);
        if !well_formed {
            return Err(Error::invalid("MODEL", format!("{model:?} is not of the form hf:OWNER/REPO or hf:OWNER/REPO:FILE")));
        }
        Ok(Source::Hub { repo: repo.to_owned(), file: file.map(str::to_owned) })
    }
}

/// Whether a name from outside may become a path below the cache.
fn is_safe(path: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_.+ ()[]=,@".contains(c);
    path.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && part.chars().all(plain))
}

pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}

/// Whether a path is of a GGUF file, and not of a later file of a set.
fn is_model(path: &Path) -> bool {
    is_gguf(path) && is_first(&path.to_string_lossy())
}

/// All files of the set that `file` is one of, in order: itself alone, as a rule. A set's files are `NAME-00001-of-00003.gguf` and so on.
pub(super) fn parts(file: &str) -> Vec<String> {
    match set(file) {
        Some((name, count, extension)) => (1..=count).map(|i| format!("{name}-{i:05}-of-{count:05}{extension}")).collect(),
        None => vec![file.to_owned()],
    }
}

/// Whether a file is a model's only or first one.
fn is_first(file: &str) -> bool {
    parts(file)[0] == file
}

/// Name, number of files, and extension of a set.
fn set(file: &str) -> Option<(&str, usize, &str)> {
    let (stem, extension) = file.split_at_checked(file.len().checked_sub(5)?)?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    let counted = |digits: &str| (digits.len() == 5).then(|| digits.parse::<usize>().ok()).flatten();
    let (number, count) = (counted(number)?, counted(count)?);
    (1..=count).contains(&number).then_some((name, count, extension))
}

/// The model at `path`: the file itself, the one GGUF file in a directory, or a Hugging Face directory.
pub(super) fn model_file(path: PathBuf) -> Result<PathBuf> {
    let about = fs::metadata(&path).map_err(|source| {
        let source = match source.kind() {
            io::ErrorKind::NotFound => {
                io::Error::new(io::ErrorKind::NotFound, format!("there is no such file or directory; a model is {MODEL_SYNTAX}"))
            }
            _ => source,
        };
        Error::Io { path: path.clone(), action: "open", source }
    })?;
    if !about.is_dir() {
        return Ok(path);
    }
    let entries = fs::read_dir(&path).map_err(|source| Error::Io { path: path.clone(), action: "read", source })?;
    let mut names: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    names.sort();
    let models: Vec<&PathBuf> = names.iter().filter(|p| is_model(p)).collect();
    match models[..] {
        [one] => Ok(one.clone()),
        [] if path.join(CONFIG).exists() => Ok(path),
        [] => Err(Error::Malformed {
            path,
            reason: format!("the directory holds neither a .gguf file nor {CONFIG}; a model is {MODEL_SYNTAX}"),
        }),
        _ => {
            let list = models.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy()).collect::<Vec<_>>().join(", ");
            Err(Error::Malformed { path, reason: format!("the directory holds several models; name one of {list}") })
        }
    }
}

/// Whether a repository is a model as a Hugging Face directory, and has none as GGUF.
pub(super) fn is_directory(files: &[String]) -> bool {
    files.iter().any(|f| f == CONFIG) && files.iter().any(|f| is_weights(f)) && !files.iter().any(|f| is_gguf(f.as_ref()))
}

/// The files of a repository that belong to a directory, without its weights and [`CONFIG`].
pub(super) fn beside_weights(files: &[String]) -> impl Iterator<Item = &str> {
    let belongs = |file: &str| BESIDE_WEIGHTS.contains(&file) || file.starts_with(TEMPLATES) && file.ends_with(".jinja");
    // The one is made of the other, which holds more.
    let replaced = |file: &str| file == "tokenizer.model" && files.iter().any(|f| f == "tokenizer.json");
    files.iter().map(String::as_str).filter(move |file| is_safe(file) && belongs(file) && !replaced(file))
}

/// The file of a repository that `wanted` means: the only one, or the only one with `wanted` in its name.
pub(super) fn pick<'a>(repo: &str, wanted: Option<&str>, files: &'a [String]) -> Result<&'a str> {
    let files: Vec<&String> = files.iter().filter(|f| is_safe(f) && is_model(f.as_ref())).collect();
    let fits = |f: &str| wanted.is_none_or(|w| f.to_lowercase().contains(&w.to_lowercase()));
    let fitting: Vec<&&String> = files.iter().filter(|f| fits(f)).collect();
    let list = || files.iter().map(|f| format!("\n  hf:{repo}:{f}")).collect::<String>();
    match fitting[..] {
        [one] => Ok(one),
        [] if files.is_empty() => Err(Error::Fetch(format!(
            "hf:{repo} holds no .gguf file, nor {CONFIG} with .safetensors; look for a repository with GGUF in its name"
        ))),
        [] => Err(Error::Fetch(format!("hf:{repo} has no file like {:?}; name one of{}", wanted.unwrap_or_default(), list()))),
        _ => Err(Error::Fetch(format!("hf:{repo} holds several models; name one of{}", list()))),
    }
}

/// The one model of `folder` that `wanted` can mean.
pub(super) fn only_cached(folder: &Path, wanted: Option<&str>) -> Option<PathBuf> {
    let paths: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path())).filter(|p| is_model(p)).collect();
    let fits = |p: &&PathBuf| wanted.is_none_or(|w| p.to_string_lossy().to_lowercase().contains(&w.to_lowercase()));
    match paths.iter().filter(fits).collect::<Vec<_>>()[..] {
        [one] => Some(one.clone()),
        [] if wanted.is_none() && folder.join(CONFIG).exists() => Some(folder.to_owned()),
        _ => None,
    }
}
