//! The tiny model in a context that is soon full.

use std::path::Path;

use clap::Parser;

use super::*;
use crate::LoadOptions;

fn speaker(ctx: usize, overflow: &str, file: Option<&Path>) -> ModelSpeaker {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/q4_1.gguf");
    let model = Model::load(&path, &LoadOptions { threads: 1, ..LoadOptions::default() }).expect("the tiny model");
    let ctx = ctx.to_string();
    let mut flags = vec!["rml-chat", "--ctx", &ctx, "--overflow", overflow, "--temp", "0", "--max-tokens", "24"];
    if let Some(file) = file {
        flags.extend(["--session", file.to_str().expect("UTF-8")]);
    }
    let flags = Flags::parse_from(flags);
    ModelSpeaker::new(model, Draft::None, flags.sampler().expect("a sampler"), KvType::F16, Format::default(), &flags).expect("a speaker")
}

fn said(speaker: &mut ModelSpeaker, transcript: &[Message]) -> Result<Reply> {
    speaker.reply(transcript, &mut |_| ControlFlow::Continue(()))
}

/// A system message and `n` turns, the last one not answered.
fn transcript(n: usize) -> Vec<Message> {
    let turn = |i: usize| [Message::new("user", &format!("the rain {i}")), Message::new("assistant", &format!("in Spain {i}"))];
    let mut all = vec![Message::new(SYSTEM, "be kind")];
    all.extend((0..n).flat_map(turn));
    all.pop();
    all
}

/// A transcript without its oldest turns.
fn without(transcript: &[Message], dropped: usize) -> Vec<Message> {
    [&transcript[..1], &transcript[1 + dropped..]].concat()
}

fn prompt_len(speaker: &ModelSpeaker, transcript: &[Message]) -> usize {
    speaker.prompt(&Window::new(transcript)).expect("a prompt").ids.len()
}

#[test]
fn a_prompt_that_is_too_long_loses_its_oldest_turns_and_nothing_else() {
    let all = transcript(6);
    let mut large = speaker(1000, "stop", None);
    let size = prompt_len(&large, &all) - 1;
    assert!(matches!(said(&mut speaker(size, "stop", None), &all), Err(Error::OutOfRange { name: "prompt", .. })));
    let mut shifting = speaker(size, "shift", None);
    let reply = said(&mut shifting, &all).expect("a reply");
    assert!(reply.dropped >= 2 && reply.dropped.is_multiple_of(2) && reply.dropped < all.len() - 2, "{}", reply.dropped);
    let left = without(&all, reply.dropped);
    let room = 24.min(size / 4);
    assert!(prompt_len(&large, &left) + room <= size, "there is room for a reply");
    assert!(prompt_len(&large, &without(&all, reply.dropped - 2)) + room > size, "and no more was dropped than that takes");
    let expected = said(&mut large, &left).expect("a reply");
    assert_eq!((reply.text, reply.stats.stop), (expected.text, expected.stats.stop), "as if the rest had never been said");
}

#[test]
fn a_reply_that_fills_the_context_goes_on_after_a_shift() {
    let all = transcript(5);
    let mut large = speaker(1000, "stop", None);
    let size = prompt_len(&large, &all) + 3;
    let stopped = said(&mut speaker(size, "stop", None), &all).expect("a reply");
    assert_eq!((stopped.stats.stop, stopped.stats.generated_tokens, stopped.dropped), (StopReason::ContextFull, 4, 0));
    let mut shifting = speaker(size, "shift", None);
    let reply = said(&mut shifting, &all).expect("a reply");
    assert!(reply.dropped >= 2 && reply.stats.generated_tokens > 4, "{reply:?}");
    assert!(reply.text.starts_with(&stopped.text));
    // By hand: what is left of the conversation, the four tokens of the reply, and then whatever the model says.
    let cached = shifting.session.session().cached().to_vec();
    let left = without(&all, reply.dropped);
    let mut prompt = large.prompt(&Window::new(&left)).expect("a prompt").ids;
    let n = prompt.len();
    prompt.extend_from_slice(&cached[n..n + 4]);
    let mut rest = Vec::new();
    let on_token = |id| {
        rest.push(id);
        ControlFlow::Continue(())
    };
    large.session.generate(&prompt, reply.stats.generated_tokens - 4, on_token).expect("a reply");
    let n_run = cached.len() - prompt.len();
    assert!(n_run + 1 >= rest.len() && cached[..prompt.len()] == prompt && cached[prompt.len()..] == rest[..n_run]);
}

#[test]
fn one_question_that_is_too_long_is_an_error_all_the_same() {
    let all = transcript(3);
    let system_and_question = prompt_len(&speaker(1000, "stop", None), &without(&all, 4));
    let mut shifting = speaker(system_and_question - 1, "shift", None);
    assert!(matches!(said(&mut shifting, &all), Err(Error::OutOfRange { name: "prompt", .. })));
    let mut just = speaker(system_and_question, "shift", None);
    let reply = said(&mut just, &all).expect("a reply");
    assert_eq!((reply.dropped, reply.stats.stop, reply.stats.generated_tokens), (4, StopReason::ContextFull, 1), "nothing is left to drop");
}

#[test]
fn a_conversation_is_kept_and_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("session");
    let mut first = speaker(500, "stop", Some(&file));
    assert_eq!(first.resume().expect("nothing"), None);
    let mut all = transcript(2);
    let reply = said(&mut first, &all).expect("a reply");
    all.push(Message::new("assistant", &reply.text));
    first.keep(&all).expect("a file");
    let mut second = speaker(500, "stop", Some(&file));
    assert_eq!(second.resume().expect("the conversation").as_deref(), Some(&all[..]));
    all.push(Message::new("user", "mainly"));
    let (one, other) = (said(&mut first, &all).expect("a reply"), said(&mut second, &all).expect("a reply"));
    assert_eq!(one.text, other.text);
    assert_eq!(one.stats.reused_tokens, other.stats.reused_tokens);
    assert!(other.stats.reused_tokens > 20, "the cache came back");
    second.discard().expect("the file goes");
    assert!(!file.exists() && second.resume().expect("nothing").is_none());
    second.discard().expect("it is gone already");
    first.session.save(&file, b"a shopping list").expect("a file");
    assert!(matches!(second.resume(), Err(Error::SavedSession { .. })));
}
