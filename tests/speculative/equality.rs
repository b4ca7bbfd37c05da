//! Where nothing is drawn for a guess, no reply depends on it.

use super::*;

/// Replies of several turns, the later ones with all that was said and something new, and what was drafted and accepted.
fn compare(target: &Arc<Model>, options: &SessionOptions, length: DraftLength, drafter: Box<dyn Drafter>, what: &str) -> (usize, usize) {
    let mut with = session(target, options, drafter, length);
    let mut without = Session::new(target, options.clone()).expect("a session");
    let (mut drafted, mut accepted) = (0, 0);
    for prompt in prompts() {
        let mut context = prompt;
        for limit in [1, 2, 40] {
            let expected = plain(&mut without, &context, limit, go_on);
            let (got, stats) = guessed(&mut with, &context, limit, go_on);
            assert_eq!(got, expected, "{what}, {length:?}, after {context:?}");
            let stats = stats.expect("a reply");
            (drafted, accepted) = (drafted + stats.drafted, accepted + stats.accepted);
            context.extend_from_slice(&expected.reply);
            context.extend([80, 81]);
        }
    }
    (drafted, accepted)
}

const LENGTHS: [DraftLength; 4] = [DraftLength::Fixed(1), DraftLength::Fixed(4), DraftLength::Fixed(16), DraftLength::UpTo(4)];

#[test]
fn greedy_replies_are_the_same_with_any_draft() {
    for target in ["f32", "q4_1"].map(|name| load(&fixture(name))) {
        let other = load(&fixture("q8_0"));
        let penalized = SamplerConfig { repetition_penalty: 1.3, ..SamplerConfig::default() };
        for sampler in [SamplerConfig::default(), penalized] {
            let options = SessionOptions { sampler, ..options() };
            for length in LENGTHS {
                let fixed = matches!(length, DraftLength::Fixed(_));
                let (drafted, accepted) = compare(&target, &options, length, draft(&target, &target, &options), "the model itself");
                assert!(drafted == accepted && (drafted > 0 || !fixed), "{length:?}: {accepted} of {drafted}");
                let (drafted, accepted) = compare(&target, &options, length, draft(&other, &target, &options), "another model");
                assert!(accepted < drafted || !fixed, "{length:?}: {accepted} of {drafted}");
                let (drafted, accepted) = compare(&target, &options, length, lookup(&options), "lookup");
                // With a penalty nothing is repeated.
                let usual = if options.sampler.repetition_penalty > 1.0 { accepted < drafted } else { accepted > 0 && accepted < drafted };
                assert!(usual || !fixed, "{length:?}: {accepted} of {drafted}");
            }
        }
    }
}

#[test]
fn lookup_changes_no_reply_at_any_temperature() {
    let target = load(&fixture("q4_1"));
    let filters = [
        SamplerConfig { temperature: 1.0, ..SamplerConfig::default() },
        SamplerConfig { temperature: 0.3, top_k: 5, repetition_penalty: 1.1, ..SamplerConfig::default() },
    ];
    for (sampler, seed) in filters.into_iter().zip(1..) {
        let options = SessionOptions { sampler, seed, ..options() };
        for length in LENGTHS {
            let (drafted, accepted) = compare(&target, &options, length, lookup(&options), "lookup");
            assert!(accepted > 0 && accepted < drafted || length == DraftLength::UpTo(4), "{length:?}: {accepted} of {drafted}");
        }
    }
}

#[test]
fn small_chunks_only_make_rounds_shorter() {
    let target = load(&fixture("f32"));
    for chunk in [1, 2, 3, 5] {
        let options = SessionOptions { chunk, ..options() };
        let (drafted, _) = compare(&target, &options, DraftLength::Fixed(4), draft(&target, &target, &options), "chunks");
        assert_eq!(drafted > 0, chunk > 1, "{chunk}");
    }
}

#[test]
fn a_round_gives_what_was_kept_and_one_more() {
    let target = load(&fixture("f32"));
    let options = options();
    let prompt = &prompts()[1];
    let reply = plain(&mut Session::new(&target, options.clone()).expect("a session"), prompt, 41, go_on).reply;
    let run = |drafter: Box<dyn Drafter>| {
        let mut session = session(&target, &options, drafter, DraftLength::Fixed(4));
        let stats = guessed(&mut session, prompt, 41, go_on).1.expect("a reply");
        (stats.rounds, stats.drafted, stats.accepted, stats.tokens_a_round())
    };
    // The first token is the prompt's; 40 more are 8 rounds of 5.
    assert_eq!(run(Oracle::new(prompt, &reply, |_| false)), (8, 32, 32, 5.0));
    assert_eq!(run(draft(&target, &target, &options)), (8, 32, 32, 5.0));
    // Nothing is kept; as many are guessed as the reply can still have, less the token that comes anyway.
    assert_eq!(run(Oracle::new(prompt, &reply, |_| true)), (40, 36 * 4 + 3 + 2 + 1, 0, 1.0));
}

#[test]
fn replies_with_a_draft_of_fixed_length_repeat_from_their_seed() {
    let (target, other) = (load(&fixture("f32")), load(&fixture("q8_0")));
    let prompt = &prompts()[1];
    let reply = |options: &SessionOptions| {
        let mut session = session(&target, options, draft(&other, &target, options), DraftLength::Fixed(3));
        let first = guessed(&mut session, prompt, 40, go_on).0.reply;
        session.reseed(options.seed);
        assert_eq!(guessed(&mut session, prompt, 40, go_on).0.reply, first);
        first
    };
    assert_eq!(reply(&warm(3)), reply(&warm(3)));
    assert_ne!(reply(&warm(3)), reply(&warm(4)));
}
