//! Conversations at a terminal: a pseudo-terminal, since line editing and Ctrl-C cannot be tested through a pipe.

use std::path::Path;

use rexpect::session::{PtySession, spawn_command};

use crate::{ANY_TOKEN, endless_model, model, plain_program};

/// A busy machine may take its time.
const TIMEOUT_MS: u64 = 120_000;

fn talk(arguments: &[&str]) -> PtySession {
    talk_with(&model(), arguments)
}

fn talk_with(model: &Path, arguments: &[&str]) -> PtySession {
    let mut command = plain_program("rml-chat");
    command.env("TERM", "xterm").arg(model).args(["--threads", "1"]).args(arguments);
    spawn_command(command, Some(TIMEOUT_MS)).expect("a terminal")
}

/// Waits for the prompt that comes with the editor's switch to its own mode.
fn prompt(session: &mut PtySession) -> String {
    session.exp_string("> ").expect("a prompt")
}

/// Presses keys that do not end a line.
fn press(session: &mut PtySession, keys: &str) {
    session.send(keys).and_then(|_| session.flush()).expect("keys");
}

/// Waits for the program to end by itself, with success.
fn ends(mut session: PtySession) {
    session.exp_eof().expect("an end");
    let status = format!("{:?}", session.process().wait().expect("a status"));
    assert!(status.starts_with("Exited(") && status.ends_with(", 0)"), "{status}");
}

#[test]
fn a_conversation_ends_with_an_empty_line() {
    let mut session = talk(&["--max-tokens", "4"]);
    prompt(&mut session);
    session.send_line("the rain").expect("a line");
    session.exp_string("[prompt ").expect("statistics");
    prompt(&mut session);
    session.send_line("/reset").expect("a line");
    session.exp_string("(starting over)").expect("a note");
    prompt(&mut session);
    session.send_line("").expect("a line");
    ends(session);
}

#[test]
fn the_end_of_the_input_quits() {
    let mut session = talk(&[]);
    prompt(&mut session);
    session.send_control('d').expect("a key");
    ends(session);
}

#[test]
fn lines_can_be_edited_and_called_back() {
    let mut session = talk(&["--max-tokens", "2"]);
    prompt(&mut session);
    // A typing error, taken back; then the arrow up.
    session.send_line("/resex\x7ft").expect("a line");
    session.exp_string("(starting over)").expect("the edited command");
    prompt(&mut session);
    press(&mut session, "\x1b[A");
    session.exp_string("/reset").expect("the line before");
    session.send_line("").expect("a line");
    session.exp_string("(starting over)").expect("the command again");
    prompt(&mut session);
    session.send_control('d').expect("a key");
    ends(session);
}

#[test]
fn ctrl_c_ends_a_reply_and_not_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut session = talk_with(&endless_model(folder.path()), &["--max-tokens", "1000000", "--ctx", "1000000"]);
    prompt(&mut session);
    for _ in 0..2 {
        session.send_line("the rain").expect("a line");
        session.exp_string("\n").expect("the line is taken");
        std::thread::sleep(std::time::Duration::from_millis(300));
        session.send_control('c').expect("a key");
        session.exp_string("(the reply was interrupted)").expect("a note");
        session.exp_string("[prompt ").expect("statistics");
        prompt(&mut session);
    }
    session.send_line("").expect("a line");
    ends(session);
}

#[test]
fn a_second_ctrl_c_at_an_empty_prompt_quits() {
    let mut session = talk(&["--max-tokens", "2"]);
    prompt(&mut session);
    session.send_control('c').expect("a key");
    session.exp_string("Ctrl-C again").expect("a hint");
    prompt(&mut session);
    // What is said in between starts the count anew, and a line half written is only thrown away.
    session.send_line("hi").expect("a line");
    session.exp_string("[prompt ").expect("statistics");
    prompt(&mut session);
    press(&mut session, "half a li");
    session.exp_string("half a li").expect("an echo");
    session.send_control('c').expect("a key");
    prompt(&mut session);
    session.send_control('c').expect("a key");
    session.exp_string("Ctrl-C again").expect("a hint");
    prompt(&mut session);
    session.send_control('c').expect("a key");
    ends(session);
}

#[test]
fn a_model_cannot_steer_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let question = ["-p", "hi", "--max-tokens", "900"];
    let mut session = talk_with(&endless_model(folder.path()), &[&question[..], &ANY_TOKEN].concat());
    // The session takes each byte for a character.
    let bytes: Vec<u8> = session.exp_eof().expect("a reply").chars().map(|c| c as u8).collect();
    let shown = String::from_utf8(bytes).expect("nothing invalid is ever printed");
    assert!(shown.contains('␛'), "the escape character shows as a symbol");
    // The terminal itself turns a newline into carriage return and newline.
    let steering: Vec<char> = shown.replace("\r\n", "\n").chars().filter(|c| c.is_control() && !"\n\t".contains(*c)).collect();
    assert!(steering.is_empty(), "{steering:?}");
}
