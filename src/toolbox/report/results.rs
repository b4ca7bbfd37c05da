//! Criterion's results: `benchmark.json` says what was measured, `estimates.json` beside it how long it took.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Result};

/// One result. A bench's id is `operation/…/shape/…/backend`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measurement {
    /// The first word of the id.
    pub(super) operation: String,
    /// What stands between: format, sizes, tokens.
    pub(super) shape: String,
    /// The last part of the id.
    pub(super) backend: String,
    /// Nanoseconds an iteration.
    pub(super) ns: f64,
    /// What an iteration does.
    pub(super) work: Option<Work>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    Bytes(f64),
    Elements(f64),
}

#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
    throughput: Option<Value>,
}

#[derive(Deserialize)]
struct Estimates {
    mean: Estimate,
    slope: Option<Estimate>,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

/// Folders below criterion's own: `group/function/new`, or one more where a value belongs to the id.
const DEPTH: usize = 5;

/// All results below a folder, in the order of their ids.
///
/// # Errors
/// [`Error::Io`] if a folder or file cannot be read, [`Error::Malformed`] if a file is not what criterion writes.
pub(super) fn read(folder: &Path) -> Result<Vec<Measurement>> {
    let mut all = Vec::new();
    collect(folder, DEPTH, &mut all)?;
    all.sort_by_key(|(name, _)| natural(name));
    Ok(all.into_iter().map(|(_, measurement)| measurement).collect())
}

fn collect(folder: &Path, depth: usize, all: &mut Vec<(String, Measurement)>) -> Result<()> {
    let io = |source| Error::Io { path: folder.to_owned(), action: "read", source };
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if !path.is_dir() {
            continue;
        }
        if path.file_name().is_some_and(|name| name == "new") {
            all.extend(measurement(&path)?);
        } else if depth > 1 {
            collect(&path, depth - 1, all)?;
        }
    }
    Ok(())
}

/// The result in a folder `new`; none if a run broke off before it wrote all.
fn measurement(folder: &Path) -> Result<Option<(String, Measurement)>> {
    let (benchmark, estimates) = (folder.join("benchmark.json"), folder.join("estimates.json"));
    if !benchmark.exists() || !estimates.exists() {
        return Ok(None);
    }
    let (benchmark, estimates): (Benchmark, Estimates) = (json(&benchmark)?, json(&estimates)?);
    let id = benchmark.full_id;
    let (rest, backend) = id.rsplit_once('/').unwrap_or((&id, ""));
    let (operation, shape) = rest.split_once('/').unwrap_or((rest, ""));
    let number = |kind: &str| benchmark.throughput.as_ref()?.get(kind)?.as_f64();
    let measurement = Measurement {
        operation: operation.to_owned(),
        shape: shape.to_owned(),
        backend: backend.to_owned(),
        ns: estimates.slope.unwrap_or(estimates.mean).point_estimate,
        work: number("Bytes").map(Work::Bytes).or_else(|| number("Elements").map(Work::Elements)),
    };
    Ok(Some((id, measurement)))
}

fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), action: "read", source })?;
    serde_json::from_slice(&bytes).map_err(|e| Error::Malformed {
        path: path.to_owned(),
        reason: format!("it is not what criterion writes ({e}); run the bench again"),
    })
}

/// An id cut into words and numbers, so that `m4` comes before `m32`.
fn natural(id: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0_u64)];
    let mut in_number = false;
    for c in id.chars() {
        match c.to_digit(10) {
            Some(digit) => {
                let number = &mut parts.last_mut().expect("one at least").1;
                *number = number.saturating_mul(10).saturating_add(digit.into());
                in_number = true;
            }
            None => {
                if in_number {
                    parts.push((String::new(), 0));
                    in_number = false;
                }
                parts.last_mut().expect("one at least").0.push(c);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, benchmark: &str, estimates: &str) {
        let folder = folder.join(name).join("new");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("benchmark.json"), benchmark).unwrap();
        fs::write(folder.join("estimates.json"), estimates).unwrap();
    }

    /// Files as criterion 0.8 writes them, cut to what is read.
    #[test]
    fn what_criterion_writes_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let estimate = |ns: f64| format!(r#"{{"confidence_interval":{{}},"point_estimate":{ns},"standard_error":0.1}}"#);
        write(
            folder.path(),
            "matmul_q4_0/8x32_m32_ref",
            r#"{"group_id":"matmul/q4_0","full_id":"matmul/q4_0/8x32/m32/ref","throughput":{"Elements":512}}"#,
            &format!(r#"{{"mean":{},"median":{},"slope":null}}"#, estimate(7.0), estimate(1.0)),
        );
        write(
            folder.path(),
            "matmul_q4_0/8x32_m4_ref",
            r#"{"full_id":"matmul/q4_0/8x32/m4/ref","throughput":{"Bytes":144}}"#,
            &format!(r#"{{"mean":{},"slope":{}}}"#, estimate(7.0), estimate(5.5)),
        );
        fs::create_dir_all(folder.path().join("matmul_q4_0/broken/new")).unwrap();
        let of = |shape: &str, ns, work| Measurement {
            operation: "matmul".into(),
            shape: shape.into(),
            backend: "ref".into(),
            ns,
            work: Some(work),
        };
        let expected = [of("q4_0/8x32/m4", 5.5, Work::Bytes(144.0)), of("q4_0/8x32/m32", 7.0, Work::Elements(512.0))];
        assert_eq!(read(folder.path()).unwrap(), expected);
    }

    #[test]
    fn a_file_that_is_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a/b", "[]", "{}");
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("benchmark.json") && error.contains("not what criterion writes"), "{error}");
        assert!(read(&folder.path().join("nowhere")).unwrap_err().to_string().contains("nowhere"));
    }
}
