//! Conversations without a terminal.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use rml::model::gguf::Value;

use crate::{ANY_TOKEN, changed_model, chat, endless_model, failure, model, plain_program, program, stderr, stdout, success};

/// Prompt tokens run and cached of each reply, from the statistics.
fn prompts(err: &str) -> Vec<(usize, usize)> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number");
    let lines = err.lines().filter_map(|l| l.strip_prefix("[prompt "));
    lines.map(|l| (number(l), number(&l[l.find('(').expect("a count of cached tokens") + 1..]))).collect()
}

#[test]
fn a_prompt_is_answered_once() {
    let output = success(chat(&["-p", "the rain"]).write_stdin("not read\n"));
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(out.ends_with('\n') && out.trim().len() > 1, "{out:?}");
    assert!(err.contains("q4_1.gguf") && err.contains(", 1 layer; kernels ") && err.contains("; 1 thread; "), "what runs is told: {err}");
    assert_eq!(prompts(&err).len(), 1);
    assert!(err.contains("tok/s; reply ") && err.contains("decode "), "{err}");
}

#[test]
fn a_seed_makes_a_reply_that_can_be_repeated() {
    let reply = |temp: &str, seed: &str, more: &[&str]| {
        let arguments = ["-p", "the rain", "--max-tokens", "40", "--temp", temp, "--seed", seed];
        stdout(&success(&mut chat(&[&arguments, more].concat())))
    };
    let first = reply("1", "7", &[]);
    assert_eq!(reply("1", "7", &[]), first);
    assert_eq!(reply("1", "7", &["--no-mmap"]), first);
    assert_eq!(reply("1", "7", &["--backend", "ref"]), first, "exact backends give the same bits");
    assert_ne!(reply("1", "8", &[]), first);
    assert_eq!(reply("0", "8", &[]), reply("0", "7", &[]), "without chance the seed does not matter");
    let mut threads = program("rml-chat");
    threads.arg(model()).args(["-p", "the rain", "--max-tokens", "40", "--temp", "1", "--seed", "7", "--threads", "3"]);
    assert_eq!(stdout(&success(&mut threads)), first, "threads do not change a reply");
}

#[test]
fn a_prompt_can_come_from_standard_input() {
    let given = stdout(&success(&mut chat(&["-p", "two\nlines"])));
    assert_eq!(stdout(&success(chat(&["-p", "-"]).write_stdin("two\nlines\n\n"))), given);
    failure(chat(&["-p", "-"]).write_stdin(" \n"), 2, &["the prompt is empty"]);
    failure(chat(&["-p", "-"]).write_stdin(b"\xff".to_vec()), 1, &["standard input is not UTF-8"]);
}

#[test]
fn lines_are_turns_and_a_turn_costs_its_new_tokens() {
    let output = success(chat(&[]).write_stdin("the rain\nin Spain\n/reset\nthe rain\n\nnot read\n"));
    assert_eq!(prompts(&stderr(&output)).len(), 3, "{}", stderr(&output));
    let turns = prompts(&stderr(&output));
    assert_eq!(turns[0].1, 0);
    assert!(turns[1].1 >= turns[0].0 - 1, "the second turn reuses the first: {turns:?}");
    let out = stdout(&output);
    let first = stdout(&success(chat(&[]).write_stdin("the rain\n")));
    assert!(out.starts_with(&first) && out.ends_with(&first), "after /reset the same line gets the same reply: {out:?}");
}

#[test]
fn a_system_message_comes_first() {
    let output = success(&mut chat(&["-p", "hi", "--system", "the rain in Spain"]));
    let alone = success(&mut chat(&["-p", "hi"]));
    assert!(prompts(&stderr(&output))[0].0 > prompts(&stderr(&alone))[0].0 + 10);
}

#[test]
fn a_full_context_is_told_and_the_conversation_goes_on() {
    let long = "the rain in Spain ".repeat(10);
    let input = format!("hi\n{long}\nhi\n");
    let output = failure(chat(&["--ctx", "100"]).write_stdin(input), 1, &["the context is full: ", "of 100", "--ctx", "/forget", "/reset"]);
    let turns = prompts(&stderr(&output));
    assert!(turns.len() == 2 && turns[1].1 > 0, "the third turn still has the first in its cache: {turns:?}");

    let err = stderr(&success(&mut chat(&["-p", "hi", "--ctx", "40", "--max-tokens", "100", "--repeat-penalty", "1"])));
    assert!(err.contains("the reply was cut, since the context is full"), "{err}");
    let err = stderr(&success(&mut chat(&["-p", "hi", "--max-tokens", "2", "--repeat-penalty", "1"])));
    assert!(err.contains("cut at --max-tokens"), "{err}");
}

/// With `shift` a conversation never ends for want of room, and says what it dropped.
#[test]
fn a_full_context_can_shift() {
    let lines = "the rain in Spain\n".repeat(8);
    let arguments = ["--ctx", "120", "--overflow", "shift", "--system", "be kind", "--max-tokens", "30", "--repeat-penalty", "1"];
    let err = stderr(&success(chat(&arguments).write_stdin(lines)));
    assert_eq!(prompts(&err).len(), 8, "{err}");
    assert!(err.contains("messages were dropped") && !err.contains("context is full:"), "{err}");
    let cut = failure(&mut chat(&["--ctx", "20", "--overflow", "shift", "-p", "the rain in Spain"]), 1, &["the context is full", "of 20"]);
    assert!(cut.stdout.is_empty());
}

#[test]
fn a_conversation_is_kept_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("talk.session");
    let file = file.to_str().expect("UTF-8");
    let whole = stdout(&success(chat(&["--temp", "1"]).write_stdin("the rain\nin Spain\n")));
    let kept = |arguments: &[&str]| chat(&[&["--session", file, "--temp", "1"], arguments].concat());
    let first = stdout(&success(&mut kept(&["-p", "the rain"])));
    let again = success(&mut kept(&["-p", "in Spain", "--seed", "9"]));
    assert_eq!(format!("{first}{}", stdout(&again)), whole, "as if the program had not ended in between");
    let err = stderr(&again);
    assert!(err.contains("going on with") && err.contains("1 turns") && prompts(&err)[0].1 > 10, "{err}");

    failure(&mut kept(&["--kv", "i8", "-p", "hi"]), 1, &["talk.session", "type f16", "--kv"]);
    failure(&mut kept(&["--ctx", "8", "-p", "hi"]), 1, &["talk.session", "context of 8", "--ctx"]);
    failure(&mut kept(&["--system", "be kind", "-p", "hi"]), 2, &["--system", "another system message"]);
    let mut bytes = std::fs::read(file).expect("the file");
    bytes[200] ^= 1;
    let broken = folder.path().join("broken");
    std::fs::write(&broken, bytes).expect("a file");
    failure(&mut chat(&["--session", broken.to_str().expect("UTF-8"), "-p", "hi"]), 1, &["broken", "damaged", "checksum"]);
    failure(&mut chat(&["--session", "/nonexistent/x", "-p", "hi"]), 1, &["/nonexistent/x", "cannot write"]);

    success(kept(&[]).write_stdin("/reset\n"));
    assert!(!Path::new(file).exists(), "nothing is kept after /reset");
}

#[test]
fn every_type_of_cache_talks() {
    for kv in ["f16", "f32", "i8"] {
        let err = stderr(&success(&mut chat(&["-p", "hi", "--kv", kv])));
        assert!(err.contains(&format!("kv {kv}")), "{err}");
    }
}

#[test]
fn a_context_beyond_the_training_is_warned_of() {
    let err = stderr(&success(&mut chat(&["-p", "hi", "--ctx", "2000"])));
    assert!(err.contains("warning: --ctx 2000 is more than the 1024 tokens"), "{err}");
    let err = stderr(&success(&mut chat(&["-p", "hi"])));
    assert!(err.contains("context 1024") && !err.contains("warning"), "the default is what the model was trained for: {err}");
}

fn spawn(model: &Path, arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Child {
    let mut command = plain_program("rml-chat");
    command.arg(model).args(["--threads", "1"]).args(arguments).stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
    command.spawn().expect("the program runs")
}

#[test]
fn a_closed_pipe_is_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = endless_model(folder.path());
    let mut child = spawn(&model, &["-p", "hi", "--max-tokens", "1000000", "--ctx", "1000000"], Stdio::piped(), Stdio::null());
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut [0]).expect("a first byte");
    drop(pipe);
    assert_eq!(child.wait().expect("an end").code(), Some(0));
}

#[test]
fn a_closed_standard_error_harms_nothing() {
    let mut child = spawn(&model(), &["-p", "hi", "--max-tokens", "8"], Stdio::piped(), Stdio::piped());
    drop(child.stderr.take());
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("UTF-8");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert!(out.ends_with('\n'));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut child = spawn(&model(), &["-p", "hi"], full.into(), Stdio::piped());
    let mut err = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("UTF-8");
    assert_eq!(child.wait().expect("an end").code(), Some(1));
    assert!(err.contains("standard output: "), "{err}");
}

/// What comes is shown when it comes, not when the program ends.
#[test]
fn replies_are_shown_as_they_come() {
    let mut child = spawn(&model(), &["--max-tokens", "4"], Stdio::piped(), Stdio::null());
    let (mut to, mut from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    for _ in 0..2 {
        to.write_all(b"the rain\n").expect("a line");
        from.read_exact(&mut [0]).expect("a reply, though the input goes on");
    }
    drop((to, from));
    child.wait().expect("an end");
}

#[test]
fn a_pipe_gets_the_reply_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = program("rml-chat");
    command.arg(endless_model(folder.path())).args(["-p", "hi", "--max-tokens", "900"]).args(ANY_TOKEN);
    let out = success(&mut command).stdout;
    assert!(out.contains(&0x1b), "no escape character in {} bytes", out.len());
    assert!(std::str::from_utf8(&out).is_ok(), "nothing invalid is ever printed");
}

#[test]
fn a_model_without_a_template_needs_a_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = changed_model(folder.path(), &[("tokenizer.chat_template", None)]);
    let path = path.to_str().expect("UTF-8");
    let run = |format: &[&str]| {
        let mut command = program("rml-chat");
        command.args([path, "-p", "hi", "--max-tokens", "4", "--threads", "1"]).args(format);
        command
    };
    failure(&mut run(&[]), 1, &["chat template", "--format", "chatml"]);
    let named = stdout(&success(&mut run(&["--format", "chatml"])));
    assert_eq!(named, stdout(&success(&mut chat(&["-p", "hi", "--max-tokens", "4"]))), "chatml is what the model's own template says");
    let file = folder.path().join("mine.jinja");
    std::fs::write(&file, "{% for m in messages %}{{ m.content }}{% endfor %}").expect("a file");
    let own = success(&mut run(&["--format", file.to_str().expect("UTF-8")]));
    assert_eq!(prompts(&stderr(&own)), [(2, 0)], "`hi` alone");
}

#[test]
fn a_broken_template_hurts_only_who_uses_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = changed_model(folder.path(), &[("tokenizer.chat_template", Some(Value::String("{% for %}".into())))]);
    let run = |format: &[&str]| {
        let mut command = program("rml-chat");
        command.arg(&path).args(["-p", "hi", "--max-tokens", "4", "--threads", "1"]).args(format);
        command
    };
    failure(&mut run(&[]), 1, &["chat template"]);
    success(&mut run(&["--format", "chatml"]));
}
