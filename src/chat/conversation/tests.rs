//! Conversations with a speaker that follows a script.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;

use super::*;
use crate::generate::Interrupt;

/// What the speaker does on its next turn.
enum Act {
    Say(&'static [&'static str]),
    /// Drops so many messages before it speaks.
    Drop(usize, &'static str),
    Stop(StopReason, &'static [&'static str]),
    Fail(Error),
}

struct Scripted {
    acts: VecDeque<Act>,
    heard: Vec<String>, // the transcript of each turn, a line a message
    resets: usize,
    kept: Option<Vec<Message>>,
    discards: usize,
}

impl Speaker for Scripted {
    fn reply(&mut self, transcript: &[Message], show: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Outcome<Reply> {
        self.heard.push(transcript.iter().map(|m| format!("{}: {}\n", m.role, m.content)).collect());
        let mut dropped = 0;
        let (stop, pieces) = match self.acts.pop_front().expect("no more turns than acts") {
            Act::Fail(error) => return Err(error),
            Act::Say(pieces) => (StopReason::StopId, pieces.to_vec()),
            Act::Drop(n, piece) => {
                dropped = n;
                (StopReason::StopId, vec![piece])
            }
            Act::Stop(stop, pieces) => (stop, pieces.to_vec()),
        };
        let text: String = pieces.iter().take_while(|p| show(p).is_continue()).copied().collect();
        let stats = GenerationStats {
            prompt_tokens: 1,
            reused_tokens: 0,
            generated_tokens: pieces.len(),
            prefill_seconds: 1.0,
            decode_seconds: 1.0,
            stop,
        };
        Ok(Reply { text, stats, dropped, guessing: None })
    }

    fn reset(&mut self) {
        self.resets += 1;
    }

    fn resume(&mut self) -> Outcome<Option<Vec<Message>>> {
        Ok(self.kept.clone())
    }

    fn keep(&mut self, transcript: &[Message]) -> Outcome<()> {
        self.kept = Some(transcript.to_vec());
        Ok(())
    }

    fn discard(&mut self) -> Outcome<()> {
        self.kept = None;
        self.discards += 1;
        Ok(())
    }
}

impl Scripted {
    fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Scripted { acts: acts.into_iter().collect(), heard: Vec::new(), resets: 0, kept: None, discards: 0 }
    }
}

struct Typed {
    lines: VecDeque<Line>,
    interactive: bool,
}

impl Lines for Typed {
    fn next_line(&mut self) -> Result<Line, Halt> {
        Ok(self.lines.pop_front().unwrap_or(Line::End))
    }

    fn is_interactive(&self) -> bool {
        self.interactive
    }
}

/// Standard output that is kept, and fails as told once it holds so many bytes.
#[derive(Clone, Default)]
struct Kept(Rc<RefCell<Vec<u8>>>, Option<(usize, io::ErrorKind)>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.1 {
            Some((room, kind)) if self.0.borrow().len() >= room => Err(kind.into()),
            _ => self.0.borrow_mut().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Outcomes {
    ended: Result<(), Halt>,
    shown: String,
    noted: String,
    speaker: Scripted,
    left: usize, // lines that were not read
}

fn talk(system: Option<&str>, acts: impl IntoIterator<Item = Act>, lines: impl IntoIterator<Item = Line>) -> Outcomes {
    talk_to(Kept::default(), true, system, acts, lines)
}

fn talk_to(
    kept: Kept,
    interactive: bool,
    system: Option<&str>,
    acts: impl IntoIterator<Item = Act>,
    lines: impl IntoIterator<Item = Line>,
) -> Outcomes {
    let mut speaker = Scripted::new(acts);
    let notes = Kept::default();
    let mut screen = Screen::of(kept.clone(), notes.clone());
    let mut lines = Typed { lines: lines.into_iter().collect(), interactive };
    let ctrl_c = CtrlC::new(Interrupt::default(), true);
    let ended = Conversation::new(&mut speaker, &mut screen, &ctrl_c, system.map(str::to_owned)).run(&mut lines);
    let text = |kept: &Kept| String::from_utf8(kept.0.borrow().clone()).unwrap();
    Outcomes { ended, shown: text(&kept), noted: text(&notes), speaker, left: lines.lines.len() }
}

fn said(text: &str) -> Line {
    Line::Text(text.into())
}

#[test]
fn each_turn_brings_all_that_was_said() {
    let acts = [Act::Say(&["Hel", "lo"]), Act::Say(&["Fine\n"])];
    let done = talk(Some("be kind"), acts, [said("hi"), said("how are you?  ")]);
    assert_eq!(done.shown, "Hello\nFine\n", "a reply ends its line, once");
    assert_eq!(done.speaker.heard[0], "system: be kind\nuser: hi\n");
    assert_eq!(done.speaker.heard[1], "system: be kind\nuser: hi\nassistant: Hello\nuser: how are you?\n");
    assert!(done.ended.is_ok());
}

#[test]
fn an_empty_line_quits() {
    for empty in ["", "  ", "\t"] {
        let done = talk(None, [Act::Say(&["a"])], [said("hi"), said(empty), said("more")]);
        assert!(done.ended.is_ok() && done.left == 1, "{empty:?}");
    }
}

#[test]
fn reset_starts_over_with_the_system_message() {
    let acts = [Act::Say(&["a"]), Act::Say(&["b"])];
    let done = talk(Some("be kind"), acts, [said("one"), said("/reset"), said("two")]);
    assert_eq!(done.speaker.heard[1], "system: be kind\nuser: two\n");
    assert_eq!(done.speaker.resets, 2, "at the start and when asked");
}

#[test]
fn forget_takes_back_the_oldest_turn_alone() {
    for system in [None, Some("s")] {
        let acts = ["a", "b", "c"].map(|_| Act::Say(&["ok"]));
        let done = talk(system, acts, [said("/forget"), said("one"), said("two"), said("/forget"), said("three")]);
        let expected = "user: two\nassistant: ok\nuser: three\n";
        assert!(done.speaker.heard[2].ends_with(expected) && !done.speaker.heard[2].contains("one"), "{}", done.speaker.heard[2]);
        assert_eq!(done.speaker.heard[2].starts_with("system: s\n"), system.is_some());
    }
}

#[test]
fn only_one_word_after_a_slash_is_a_command() {
    let lines = ["/help", "/nonsense", "/etc/hosts", "/reset now", "/ 2", " /reset"].map(said);
    let done = talk(None, ["", "", "", ""].map(|_| Act::Say(&["ok"])), lines);
    let users: Vec<_> = done.speaker.heard.iter().map(|t| t.lines().last().unwrap().to_owned()).collect();
    assert_eq!(users, ["user: /etc/hosts", "user: /reset now", "user: / 2", "user: /reset"]);
    assert_eq!(done.speaker.resets, 1, "not when asked with a space in front");
    assert!(done.noted.contains(HELP) && done.noted.contains("there is no command /nonsense"));
}

#[test]
fn a_full_context_keeps_the_conversation() {
    let full = || Act::Fail(Error::out_of_range("prompt", "9 tokens are more than the context of 8"));
    let acts = [Act::Say(&["a"]), full(), Act::Say(&["b"])];
    let done = talk(None, acts, [said("one"), said("a very long line"), said("two")]);
    assert_eq!(done.speaker.heard[2], "user: one\nassistant: a\nuser: two\n");
    assert!(done.ended.is_ok(), "a person was told when it happened");
    assert!(done.noted.contains("the context is full"), "{}", done.noted);
}

#[test]
fn a_full_context_says_what_can_be_done() {
    let full = || Act::Fail(Error::out_of_range("prompt", "9 tokens are more than the context of 8"));
    let mut speaker = Scripted::new([full(), Act::Say(&["a"]), full()]);
    let mut screen = Screen::of(Kept::default(), io::sink());
    let ctrl_c = CtrlC::new(Interrupt::default(), false);
    let mut conversation = Conversation::new(&mut speaker, &mut screen, &ctrl_c, None);
    let reason = |outcome: Result<StopReason, Halt>| match outcome {
        Err(Halt::Failed(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let alone = reason(conversation.turn("long"));
    assert!(alone.contains("the context is full: 9 tokens") && alone.contains("--ctx") && !alone.contains("/forget"), "{alone}");
    conversation.turn("short").unwrap();
    let later = reason(conversation.turn("long"));
    assert!(["/forget", "/reset", "--ctx", "conversation is kept"].iter().all(|way| later.contains(way)), "{later}");
}

#[test]
fn a_script_with_a_failed_turn_fails_in_the_end() {
    let acts = || [Act::Fail(Error::Template("no system role".into())), Act::Say(&["b"])];
    let done = talk_to(Kept::default(), false, None, acts(), [said("one"), said("two")]);
    assert_eq!(done.shown, "b\n", "the turns after it are taken");
    assert!(matches!(done.ended, Err(Halt::Failed(_))));
}

#[test]
fn a_closed_pipe_ends_the_reply_and_is_success() {
    let done = talk_to(
        Kept(Rc::default(), Some((3, io::ErrorKind::BrokenPipe))),
        false,
        None,
        [Act::Say(&["abc", "def", "ghi"])],
        [said("hi"), said("more")],
    );
    assert!(matches!(done.ended, Err(Halt::Closed)));
    assert_eq!((done.shown.as_str(), done.left), ("abc", 1));
    let done = talk_to(Kept(Rc::default(), Some((0, io::ErrorKind::StorageFull))), false, None, [Act::Say(&["abc"])], [said("hi")]);
    assert!(matches!(done.ended, Err(Halt::Failed(_))), "a full disk is not");
}

#[test]
fn an_interrupted_reply_is_kept_as_far_as_it_came() {
    let acts = [Act::Stop(StopReason::Interrupted, &[]), Act::Stop(StopReason::Interrupted, &["half a"]), Act::Say(&["ok"])];
    let done = talk(None, acts, [said("one"), said("two"), said("three")]);
    assert_eq!(done.speaker.heard[2], "user: two\nassistant: half a\nuser: three\n");
}

#[test]
fn the_second_ctrl_c_in_a_row_at_an_empty_prompt_quits() {
    let at = |empty| Line::Interrupted { empty };
    let left = |lines: Vec<Line>| talk(None, [Act::Say(&["a"])], lines).left;
    assert_eq!(left(vec![at(true), at(true), at(true)]), 1);
    assert_eq!(left(vec![at(true), said("hi"), at(true), at(true), at(true)]), 1, "a turn in between starts the count anew");
    assert_eq!(left(vec![at(false), at(false), at(false)]), 0, "in mid-line it only throws the line away");
}

#[test]
fn dropped_messages_are_gone_and_told_of() {
    for system in [None, Some("s")] {
        let acts = [Act::Say(&["a"]), Act::Say(&["b"]), Act::Drop(2, "c"), Act::Say(&["d"])];
        let done = talk(system, acts, ["one", "two", "three", "four"].map(said));
        assert!(done.speaker.heard[3].ends_with("user: two\nassistant: b\nuser: three\nassistant: c\nuser: four\n"));
        assert!(!done.speaker.heard[3].contains("one") && done.speaker.heard[3].starts_with("system: s\n") == system.is_some());
        assert!(done.noted.contains("the oldest 2 messages were dropped"), "{}", done.noted);
    }
}

#[test]
fn every_turn_is_kept_and_reset_throws_it_away() {
    let kept = |done: &Outcomes| done.speaker.kept.as_ref().map(|t| t.iter().map(|m| m.content.clone()).collect::<Vec<_>>().join(" "));
    let acts = || [Act::Say(&["a"]), Act::Fail(Error::Template("no".into())), Act::Say(&["b"])];
    let done = talk(Some("s"), acts(), ["one", "two", "three"].map(said));
    assert_eq!(kept(&done).as_deref(), Some("s one a three b"));
    let done = talk(Some("s"), acts(), ["one", "two", "three", "/forget"].map(said));
    assert_eq!(kept(&done).as_deref(), Some("s three b"));
    let done = talk(Some("s"), acts(), ["one", "/reset"].map(said));
    assert_eq!((kept(&done), done.speaker.discards), (None, 1));
}

#[test]
fn a_kept_conversation_is_gone_on_with_and_has_its_own_system_message() {
    let kept = || vec![Message::new(SYSTEM, "be kind"), Message::new("user", "one"), Message::new("assistant", "a")];
    let ctrl_c = CtrlC::new(Interrupt::default(), false);
    let resume = |system: Option<&str>| {
        let mut speaker = Scripted::new([Act::Say(&["b"]), Act::Say(&["c"])]);
        speaker.kept = Some(kept());
        let mut screen = Screen::of(Kept::default(), io::sink());
        let mut conversation = Conversation::new(&mut speaker, &mut screen, &ctrl_c, system.map(str::to_owned));
        let turns = conversation.resume()?;
        conversation.turn("two")?;
        conversation.command("/reset")?;
        conversation.turn("three")?;
        Ok((turns, speaker.heard))
    };
    for system in [None, Some("be kind")] {
        let (turns, heard) = resume(system).unwrap();
        assert_eq!((turns, heard[0].as_str()), (1, "system: be kind\nuser: one\nassistant: a\nuser: two\n"));
        assert_eq!(heard[1], "system: be kind\nuser: three\n");
    }
    let other: Result<_, Halt> = resume(Some("be terse"));
    assert!(matches!(other, Err(Halt::Usage(reason)) if reason.contains("--system")));
}
