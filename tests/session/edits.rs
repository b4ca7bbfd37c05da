//! Random sequences of what a conversation may go through, each reply compared with a fresh run.

use std::ops::ControlFlow;

use proptest::prelude::*;
use rml::decode::KvType;

use crate::{StopReason, bits, reply, session, tokens};

const CONTEXT: usize = 48;

#[derive(Clone, Debug)]
enum Edit {
    /// So many tokens are said, and up to so many answered.
    Say(usize, usize),
    /// The same, but the reply is ended after so many tokens, by the callback or by the interrupt.
    End(usize, usize, bool),
    /// The conversation is cut to so many tokens.
    Truncate(usize),
    /// A token is another one.
    Change(usize, u32),
    /// The reply is asked for once more.
    Again,
    /// Everything is forgotten.
    Clear,
    /// The session is saved and gone on with as another.
    Save,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (1usize..12, 1usize..8).prop_map(|(n, limit)| Edit::Say(n, limit)),
        2 => (1usize..12, 1usize..4, any::<bool>()).prop_map(|(n, at, callback)| Edit::End(n, at, callback)),
        2 => (0usize..CONTEXT).prop_map(Edit::Truncate),
        1 => (0usize..CONTEXT, 3u32..269).prop_map(|(i, id)| Edit::Change(i, id)),
        1 => Just(Edit::Again),
        1 => Just(Edit::Clear),
        1 => Just(Edit::Save),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_reply_is_that_of_a_fresh_run(edits in prop::collection::vec(edit(), 1..14), kind in 0usize..3) {
        let kv = KvType::ALL[kind];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("session");
        let mut s = session(kv, CONTEXT);
        let mut said = tokens(1, 9);
        for (i, edit) in edits.into_iter().enumerate() {
            let (limit, end) = match edit {
                Edit::Say(n, limit) => {
                    said.extend(tokens(n, i as u32));
                    (limit, None)
                }
                Edit::End(n, at, callback) => {
                    said.extend(tokens(n, i as u32));
                    (9, Some((at, callback)))
                }
                Edit::Truncate(n) => {
                    said.truncate(n.max(1));
                    continue;
                }
                Edit::Change(at, id) => {
                    let at = at % said.len();
                    said[at] = id;
                    continue;
                }
                Edit::Again => (3, None),
                Edit::Clear => {
                    s.clear();
                    continue;
                }
                Edit::Save => {
                    s.save(&path, &[]).expect("a file");
                    s = session(kv, CONTEXT);
                    s.restore(&path).expect("the session");
                    continue;
                }
            };
            said.truncate(CONTEXT);
            s.reseed(i as u64);
            let (mut got, interrupt) = (Vec::new(), s.interrupt());
            let stats = s.generate(&said, limit, |id| {
                got.push(id);
                match end {
                    Some((at, true)) if got.len() == at => return ControlFlow::Break(()),
                    Some((at, false)) if got.len() == at => interrupt.set(),
                    _ => {}
                }
                ControlFlow::Continue(())
            }).expect("a reply");

            let mut fresh = session(kv, CONTEXT);
            fresh.reseed(i as u64);
            // An interrupt is seen when the token before it has been run, as that at the limit would be one later.
            let n = got.len() + usize::from(stats.stop == StopReason::Interrupted);
            let (expected, _) = reply(&mut fresh, &said, n);
            prop_assert_eq!(&got[..], &expected[..got.len()], "edit {}", i);
            prop_assert_eq!(bits(&s), bits(&fresh), "edit {}", i);
            prop_assert_eq!(s.cached(), fresh.cached());
            said.extend(got);
        }
    }
}
