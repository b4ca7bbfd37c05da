//! Every end of a reply, in the midst of a round: what is reported and what is left behind are those of a plain session.

use super::*;

/// Which places an oracle gets wrong: none; some, so that rounds end early; all.
const WRONG: [fn(usize) -> bool; 3] = [|_| false, |at| at % 3 == 0, |_| true];
const LENGTHS: [DraftLength; 3] = [DraftLength::Fixed(1), DraftLength::Fixed(4), DraftLength::Fixed(7)];

/// Compares two sessions over a first reply that `end` ends, and a second that goes on from what the first left.
fn compare(
    target: &Arc<Model>,
    options: &SessionOptions,
    knows: &SessionOptions, // what the oracle's reply is made with
    limit: usize,
    what: &str,
    end: impl Fn(usize, &Interrupt) -> ControlFlow<()>,
) -> Vec<Left> {
    let prompt = &prompts()[1];
    let whole = plain(&mut Session::new(target, knows.clone()).expect("a session"), prompt, 60, go_on).reply;
    let mut all = Vec::new();
    for wrong in WRONG {
        for length in LENGTHS {
            let mut without = Session::new(target, options.clone()).expect("a session");
            let mut with = session(target, options, Oracle::new(prompt, &whole, wrong), length);
            let (stop, stop_with) = (without.interrupt(), with.interrupt());
            let expected = plain(&mut without, prompt, limit, |n| end(n, &stop));
            let (got, _) = guessed(&mut with, prompt, limit, |n| end(n, &stop_with));
            assert_eq!(got, expected, "{what}, {length:?}");
            let context = [prompt, &expected.reply[..]].concat();
            if context.len() <= options.context_size && expected.ended.is_ok() {
                let next = plain(&mut without, &context, 9, go_on);
                assert_eq!(guessed(&mut with, &context, 9, go_on).0, next, "{what}, {length:?}: the reply after it");
            }
            all.push(expected);
        }
    }
    all
}

fn ended(all: &[Left], stop: StopReason, n: usize) {
    assert!(all.iter().all(|left| left.ended == Ok(stop) && left.reply.len() == n), "{stop:?} after {n}: {all:?}");
}

#[test]
fn limits() {
    let target = load(&fixture("f32"));
    for limit in 1..=12 {
        let all = compare(&target, &options(), &options(), limit, &format!("limit {limit}"), |_, _| ControlFlow::Continue(()));
        ended(&all, StopReason::Limit, limit);
    }
}

#[test]
fn callbacks() {
    let target = load(&fixture("f32"));
    for n in 1..=12 {
        let end = |reported, _: &Interrupt| if reported == n { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        ended(&compare(&target, &options(), &options(), 40, &format!("callback {n}"), end), StopReason::Callback, n);
    }
}

#[test]
fn interrupts() {
    let target = load(&fixture("f32"));
    for sampler in [SamplerConfig::default(), warm(0).sampler] {
        let options = SessionOptions { sampler, ..options() };
        for n in 1..=12 {
            let end = |reported, interrupt: &Interrupt| {
                if reported == n {
                    interrupt.set();
                }
                ControlFlow::Continue(())
            };
            ended(&compare(&target, &options, &options, 40, &format!("interrupt {n}"), end), StopReason::Interrupted, n);
        }
    }
}

#[test]
fn full_contexts() {
    let target = load(&fixture("f32"));
    for room in 0..=12 {
        let small = SessionOptions { context_size: prompts()[1].len() + room, ..options() };
        let all = compare(&target, &small, &options(), 40, &format!("room for {room}"), |_, _| ControlFlow::Continue(()));
        // The last token of a full context is reported, though it does not fit in.
        ended(&all, StopReason::ContextFull, room + 1);
    }
}

#[test]
fn stop_ids() {
    // Drawn, as a greedy reply of the fixture soon repeats itself.
    let (target, options) = (load(&fixture("f32")), warm(6));
    let reply = plain(&mut Session::new(&target, options.clone()).expect("a session"), &prompts()[1], 12, go_on).reply;
    for (n, id) in reply.iter().enumerate() {
        let first = reply.iter().position(|x| x == id).expect("it is there");
        let stopping = SessionOptions { stop_ids: vec![300, *id], ..options.clone() };
        let all = compare(&target, &stopping, &options, 40, &format!("stop id {n}"), |_, _| ControlFlow::Continue(()));
        ended(&all, StopReason::StopId, first);
    }
}

/// A token whose embedding is no number: the logits after it are none either.
#[test]
fn logits_that_are_no_numbers() {
    let (good, options) = (load(&fixture("q4_1")), warm(2));
    let prompt = &prompts()[1];
    let reply = plain(&mut Session::new(&good, options.clone()).expect("a session"), prompt, 12, go_on).reply;
    let folder = tempfile::tempdir().expect("a folder");
    let places: Vec<usize> = (0..10).filter(|&n| !prompt.contains(&reply[n])).collect();
    assert!(places.len() > 4, "{places:?} are places of all kinds in a round");
    for n in places {
        let path = altered(&fixture("q4_1"), folder.path(), &[], |name, shape, bytes| {
            if name != "token_embd.weight" {
                return None;
            }
            let (row_bytes, mut bytes) = (bytes.len() / N_VOCAB, bytes.to_vec());
            // The scale of the first block, an f16.
            bytes[reply[n] as usize * row_bytes..][..2].copy_from_slice(&[0, 0x7e]);
            Some((shape.to_vec(), bytes))
        });
        let target = load(&path);
        let all = compare(&target, &options, &options, 40, &format!("NaN after token {n}"), |_, _| ControlFlow::Continue(()));
        let first = reply.iter().position(|x| *x == reply[n]).expect("it is there");
        for left in all {
            let reason = left.ended.expect_err("an error");
            assert!(reason.starts_with(&format!("forward pass failed at position {}:", prompt.len() + first)), "{reason}");
            assert_eq!(left.reply.len(), first + 1);
        }
    }
}

#[test]
fn an_interrupt_between_guessing_and_checking() {
    let (target, options) = (load(&fixture("f32")), warm(9));
    let prompt = &prompts()[1];
    let mut without = Session::new(&target, options.clone()).expect("a session");
    let whole = plain(&mut without, prompt, 60, go_on).reply;
    let mut oracle = Oracle::new(prompt, &whole, |_| false);
    oracle.interrupts = true;
    let mut with = session(&target, &options, oracle, DraftLength::Fixed(4));
    let (left, stats) = guessed(&mut with, prompt, 40, go_on);
    assert_eq!((left.reply.as_slice(), left.ended), (&whole[..1], Ok(StopReason::Interrupted)));
    assert_eq!(left.cached, [prompt, &whole[..1]].concat(), "the pending token was run, the guesses after it are forgotten");
    assert_eq!(stats.map(|s| (s.rounds, s.drafted, s.accepted)), Some((1, 4, 0)));
    // The same draws go on where they were left.
    let (next, _) = guessed(&mut with, &[&left.cached[..], &[66]].concat(), 1, go_on);
    without.reseed(9);
    let first = plain(&mut without, prompt, 1, go_on);
    assert_eq!(first.reply, whole[..1]);
    assert_eq!(next.reply, plain(&mut without, &[&left.cached[..], &[66]].concat(), 1, go_on).reply);
}

#[test]
fn a_bad_call_is_refused_as_a_session_does() {
    let (target, options) = (load(&fixture("f32")), options());
    let mut with = session(&target, &options, lookup(&options), DraftLength::Fixed(4));
    let mut without = Session::new(&target, options).expect("a session");
    let too_long = vec![65; 257];
    for (prompt, limit) in [(&[][..], 5), (&[65][..], 0), (&too_long, 5), (&[N_VOCAB as u32], 5), (&[65, u32::MAX], 5)] {
        let expected = plain(&mut without, prompt, limit, go_on);
        assert!(expected.ended.is_err());
        assert_eq!(guessed(&mut with, prompt, limit, go_on).0.ended, expected.ended);
    }
    assert_eq!(guessed(&mut with, &[65], 5, go_on).0, plain(&mut without, &[65], 5, go_on), "both are usable afterwards");
}
