//! The smallest sizes, the order of reasons to stop, and errors.

use std::ops::ControlFlow;

use rml::decode::KvType;
use rml::{Error, Session, SessionOptions};

use crate::StopReason::*;
use crate::{assert_stop, bits, model, options, reply, session, tokens};

#[test]
fn a_context_of_one_token() {
    for kv in KvType::ALL {
        let mut s = session(kv, 1);
        for _ in 0..2 {
            let (_, stats) = reply(&mut s, &[5], 9);
            assert_stop(&stats, ContextFull, 1);
            assert_eq!((stats.prompt_tokens, stats.reused_tokens), (1, 0), "one token is always run");
        }
        assert!(matches!(s.generate(&[5, 6], 1, |_| ControlFlow::Continue(())), Err(Error::OutOfRange { .. })));
    }
}

#[test]
fn prompts_that_fill_the_context_or_all_but_one() {
    for size in [2, 16, 17, 40] {
        let (_, stats) = reply(&mut session(KvType::F16, size), &tokens(size, 1), 9);
        assert_stop(&stats, ContextFull, 1);
        let mut s = session(KvType::F16, size);
        let (_, stats) = reply(&mut s, &tokens(size - 1, 1), 9);
        assert_stop(&stats, ContextFull, 2);
        assert_eq!(s.cached().len(), size, "the second token has no room and is reported all the same");
    }
}

#[test]
fn the_token_at_the_limit_is_reported_and_not_run() {
    let mut s = session(KvType::F16, 32);
    let prompt = tokens(10, 1);
    let (ids, stats) = reply(&mut s, &prompt, 1);
    assert_stop(&stats, Limit, 1);
    assert_eq!(s.cached(), prompt);
    let (_, stats) = reply(&mut s, &[&prompt[..], &ids].concat(), 1);
    assert_eq!((stats.reused_tokens, stats.prompt_tokens), (10, 1), "so the next call brings it");
    let (_, stats) = reply(&mut session(KvType::F16, 10), &prompt, 1);
    assert_stop(&stats, Limit, 1);
}

#[test]
fn a_prompt_that_is_all_cached_has_its_last_token_run() {
    let mut s = session(KvType::I8, 32);
    let prompt = tokens(9, 1);
    reply(&mut s, &prompt, 5);
    s.reseed(1);
    let (again, stats) = reply(&mut s, &prompt, 5);
    assert_eq!((stats.reused_tokens, stats.prompt_tokens), (8, 1));
    let mut fresh = session(KvType::I8, 32);
    assert_eq!((again, bits(&s)), (reply(&mut fresh, &prompt, 5).0, bits(&fresh)));
    let (_, stats) = reply(&mut s, &prompt[..1], 1);
    assert_eq!((stats.reused_tokens, stats.prompt_tokens), (0, 1), "a prompt of one token");
}

#[test]
fn a_stop_id_is_neither_reported_nor_counted() {
    let prompt = tokens(10, 2);
    let (ids, _) = reply(&mut session(KvType::F16, 32), &prompt, 4);
    for (i, &stop) in ids.iter().enumerate() {
        let n = ids.iter().position(|&id| id == stop).unwrap_or(i);
        let options = SessionOptions { stop_ids: vec![stop], ..options(KvType::F16, 32) };
        let (got, stats) = reply(&mut Session::new(model(), options).expect("a session"), &prompt, 4);
        assert_stop(&stats, StopId, n);
        assert_eq!(got, ids[..n]);
    }
}

/// First the stop id, then the callback, the limit, and a full context.
#[test]
fn reasons_to_stop_come_in_order() {
    let prompt = tokens(10, 2);
    let first = reply(&mut session(KvType::F16, 10), &prompt, 1).0[0];
    let run = |stop_ids: Vec<u32>, callback: ControlFlow<()>, limit| {
        let mut s = Session::new(model(), SessionOptions { stop_ids, ..options(KvType::F16, 10) }).expect("a session");
        s.generate(&prompt, limit, |_| callback).expect("a reply").stop
    };
    let (go_on, end) = (ControlFlow::Continue(()), ControlFlow::Break(()));
    assert_eq!(run(vec![first], end, 1), StopId);
    assert_eq!(run(vec![], end, 1), Callback);
    assert_eq!(run(vec![], go_on, 1), Limit);
    assert_eq!(run(vec![], go_on, 2), ContextFull);
}

#[test]
fn errors_leave_the_session_usable() {
    let mut s = session(KvType::F16, 16);
    let prompt = tokens(8, 3);
    let (expected, _) = reply(&mut s, &prompt, 4);
    let cached = s.cached().to_vec();
    let mut fail = |prompt: &[u32], limit: usize| s.generate(prompt, limit, |_| panic!("nothing is said")).expect_err("an error");
    assert!(matches!(fail(&[], 1), Error::InvalidArgument { name: "prompt", .. }));
    assert!(matches!(fail(&prompt, 0), Error::InvalidArgument { name: "token limit", .. }));
    assert!(matches!(fail(&[1, 269], 1), Error::InvalidArgument { name: "prompt", .. }));
    let long = fail(&tokens(17, 1), 1);
    assert!(matches!(&long, Error::OutOfRange { name: "prompt", reason } if reason.contains("17") && reason.contains("16")), "{long}");
    assert_eq!(s.cached(), cached, "nothing was forgotten");
    s.reseed(1);
    assert_eq!(reply(&mut s, &prompt, 4).0, expected);
    assert!(matches!(Session::new(model(), options(KvType::F16, 0)), Err(Error::InvalidArgument { .. })));
}
