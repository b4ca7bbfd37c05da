//! What both programs share: how they speak, which values their flags take, and how they end.

mod screen;
mod values;

use std::io;
use std::process::ExitCode;

use crate::Error;

pub(crate) use screen::{Screen, note};
pub(crate) use values::{KV_NAMES, at_least_one, file_type, kv_type, template_variables, thread_count};

/// Why a program ends before its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The command line asks for what cannot be: exit code 2.
    Usage(String),
    /// Exit code 1.
    Failed(String),
    /// Whoever read the output has seen enough: success.
    Closed,
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidArgument { .. } | Error::Backend(_) => Halt::Usage(error.to_string()),
            _ => Halt::Failed(error.to_string()),
        }
    }
}

/// Of standard output.
impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Halt::Closed,
            _ => Halt::Failed(format!("standard output: {error}")),
        }
    }
}

/// `1 layer`, `30 layers`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// The exit code of a program, after telling why if it is not success.
pub(crate) fn exit_code(program: &str, outcome: Result<(), Halt>) -> ExitCode {
    match outcome {
        Ok(()) | Err(Halt::Closed) => ExitCode::SUCCESS,
        Err(Halt::Failed(reason)) => {
            note(&format!("{program}: {reason}"));
            ExitCode::from(1)
        }
        Err(Halt::Usage(reason)) => {
            note(&format!("{program}: {reason}\nFor the flags and their ranges, try --help."));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "layer")), ["0 layers", "1 layer", "2 layers"]);
    }

    #[test]
    fn errors_of_usage_are_told_from_failures() {
        let is_usage = |e: Error| matches!(Halt::from(e), Halt::Usage(_));
        assert!(is_usage(Error::invalid("top-p", "2")) && is_usage(Error::Backend("unknown".into())));
        assert!(!is_usage(Error::out_of_range("prompt", "long")) && !is_usage(Error::Fetch("no".into())));
        assert!(matches!(Halt::from(io::Error::from(io::ErrorKind::BrokenPipe)), Halt::Closed));
        assert!(matches!(Halt::from(io::Error::from(io::ErrorKind::StorageFull)), Halt::Failed(_)));
    }
}
