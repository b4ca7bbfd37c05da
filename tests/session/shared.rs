//! Several sessions over one model at the same time, and a session that is interrupted from another thread.

use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Duration;

use rml::decode::KvType;

use crate::{StopReason, bits, model, options, reply, session, tokens};
use rml::{Session, SessionOptions};

#[test]
fn sessions_over_one_model_do_not_meet() {
    let talk = |seed: u32| {
        let mut s = session(KvType::ALL[seed as usize % 3], 200);
        let mut said = tokens(20 + seed as usize * 7, seed);
        for turn in 0..4 {
            said.extend(reply(&mut s, &said, 9).0);
            said.extend(tokens(5, turn));
        }
        (said, bits(&s))
    };
    let alone: Vec<_> = (0..6).map(talk).collect();
    let together = thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|seed| scope.spawn(move || talk(seed))).collect();
        threads.into_iter().map(|t| t.join().expect("a conversation")).collect::<Vec<_>>()
    });
    assert!(alone == together, "a session differs when others run");
}

/// Wherever in the prompt the interrupt comes, what follows is a fresh run's.
#[test]
fn a_long_prompt_can_be_interrupted_from_another_thread() {
    let prompt = tokens(900, 1);
    let options = || SessionOptions { chunk: 8, ..options(KvType::F16, 1000) };
    let expected = reply(&mut Session::new(model(), options()).expect("a session"), &prompt, 3).0;
    let mut in_prompt = 0;
    // When the other thread gets to run is the system's affair, so this is tried until it has been in time.
    for attempt in 0..200 {
        let mut s = Session::new(model(), options()).expect("a session");
        let interrupt = s.interrupt();
        let stats = thread::scope(|scope| {
            let (ended, end) = mpsc::channel::<()>();
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(attempt % 5));
                // One that comes before the reply begins is forgotten, so it is made until the reply has ended.
                while end.try_recv() == Err(TryRecvError::Empty) {
                    interrupt.set();
                    thread::yield_now();
                }
            });
            let stats = reply(&mut s, &prompt, 3).1;
            drop(ended);
            stats
        });
        assert_eq!(s.cached().len(), stats.prompt_tokens + stats.generated_tokens - usize::from(stats.stop == StopReason::Limit));
        if stats.prompt_tokens < prompt.len() {
            assert_eq!((stats.stop, stats.generated_tokens, stats.prompt_tokens % 8), (StopReason::Interrupted, 0, 0), "between chunks");
            in_prompt += 1;
        }
        s.reseed(1);
        assert_eq!(reply(&mut s, &prompt, 3).0, expected, "after {stats:?}");
        if in_prompt == 5 {
            break;
        }
    }
    assert!(in_prompt > 0, "no interrupt came before the prompt was through");
}
