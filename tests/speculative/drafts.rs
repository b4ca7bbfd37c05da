//! Which drafts are taken, and how many guesses.

use super::*;

fn refusal(draft: &Arc<Model>, target: &Model) -> String {
    DraftModel::new(draft, target, &options()).expect_err("a refusal").to_string()
}

#[test]
fn another_vocabulary_is_refused_by_its_first_difference() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = load(&fixture("f32"));
    let mut tokens = spellings();
    tokens.swap(200, 201);
    let path = altered(&fixture("f32"), folder.path(), &[("tokenizer.ggml.tokens", strings(tokens))], |_, _, _| None);
    let other = load(&path);
    let reason = refusal(&other, &target);
    let spelled = |id: u32| format!("{:?}", target.tokenizer().piece(id).expect("a token"));
    let expected = format!("token 200 is {} in f32.gguf, and {} in altered.gguf", spelled(200), spelled(201));
    assert!(reason.contains(&expected), "{reason}");
    assert!(reason.starts_with("draft model: ") && reason.contains("take a draft of the same family"), "{reason}");
}

#[test]
fn a_vocabulary_that_ends_early_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = load(&fixture("f32"));
    let mut kinds = vec![1; N_VOCAB];
    kinds[N_VOCAB - 4] = 5; // unused
    let kinds = Value::Array(Array::I32(kinds));
    let other = load(&altered(&fixture("f32"), folder.path(), &[("tokenizer.ggml.token_type", kinds)], |_, _, _| None));
    let reason = refusal(&other, &target);
    assert!(reason.contains("token 265 is \"") && reason.contains("in f32.gguf, and unused in altered.gguf"), "{reason}");
    let reason = refusal(&target, &other);
    assert!(reason.contains("token 265 is unused in altered.gguf, and \""), "{reason}");
}

/// The fixture with rows of its embedding, which is its head too, repeated behind its vocabulary, and a bit larger: where one
/// of those tokens is the best, its double is better.
fn padded(folder: &Path, n: usize, named: bool) -> PathBuf {
    const D_MODEL: usize = 32;
    let (mut tokens, mut kinds) = (spellings(), vec![1; N_VOCAB]);
    tokens.extend((0..n).map(|i| format!("[PAD{}]", N_VOCAB + i)));
    kinds.extend(vec![5; n]);
    let keys = [("tokenizer.ggml.tokens", strings(tokens)), ("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))];
    let keys = if named { &keys[..] } else { &[] };
    altered(&fixture("f32"), folder, keys, |name, shape, bytes| {
        if name != "token_embd.weight" {
            return None;
        }
        let doubles = bytes[..n * D_MODEL * 4].as_chunks().0.iter().flat_map(|x| (f32::from_le_bytes(*x) * 1.01).to_le_bytes());
        Some((vec![shape[0], shape[1] + n], bytes.iter().copied().chain(doubles).collect()))
    })
}

#[test]
fn padding_may_differ_and_is_never_guessed() {
    let plain_model = load(&fixture("f32"));
    for named in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let padded_model = load(&padded(folder.path(), N_VOCAB, named));
        assert_eq!(padded_model.config().n_vocab, 2 * N_VOCAB);
        for options in
            [options(), warm(4), SessionOptions { sampler: SamplerConfig { temperature: 1.0, ..Default::default() }, ..options() }]
        {
            // A draft that would say nothing but padding.
            let mut with = session(&plain_model, &options, draft(&padded_model, &plain_model, &options), DraftLength::Fixed(4));
            let mut without = Session::new(&plain_model, options.clone()).expect("a session");
            let (got, stats) = guessed(&mut with, &prompts()[1], 40, go_on);
            assert!(stats.expect("a reply").accepted > 0);
            if options.sampler.is_greedy() {
                assert_eq!(got, plain(&mut without, &prompts()[1], 40, go_on));
            }
            // A target that says padding, which the draft does not have.
            let mut with = session(&padded_model, &options, draft(&plain_model, &padded_model, &options), DraftLength::Fixed(4));
            let mut without = Session::new(&padded_model, options.clone()).expect("a session");
            let (got, _) = guessed(&mut with, &prompts()[1], 40, go_on);
            assert!(got.reply.iter().any(|&id| id as usize >= N_VOCAB), "{:?}", got.reply);
            if options.sampler.is_greedy() {
                assert_eq!(got, plain(&mut without, &prompts()[1], 40, go_on));
            }
        }
    }
}

#[test]
fn lengths_out_of_range_are_refused() {
    let (target, options) = (load(&fixture("f32")), options());
    for length in [0, 17, usize::MAX].into_iter().flat_map(|n| [DraftLength::Fixed(n), DraftLength::UpTo(n)]) {
        let refused = SpeculativeSession::new(&target, options.clone(), lookup(&options), length);
        let reason = refused.expect_err("a refusal").to_string();
        assert_eq!(reason, format!("draft tokens: {}; it must be 1 to 16", length.most()));
    }
}

#[test]
fn a_draft_that_gives_no_numbers_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (target, options) = (load(&fixture("f32")), options());
    let broken = load(&altered(&fixture("f32"), folder.path(), &[], |name, shape, bytes| {
        let nan = f32::NAN.to_le_bytes().repeat(bytes.len() / 4);
        (name == "output_norm.weight").then(|| (shape.to_vec(), nan))
    }));
    let mut with = session(&target, &options, draft(&broken, &target, &options), DraftLength::Fixed(4));
    for _ in 0..2 {
        let left = guessed(&mut with, &prompts()[1], 40, go_on).0;
        let reason = left.ended.expect_err("an error");
        assert!(reason.contains("position 20: draft model: logits: that of token 0 is NaN"), "{reason}");
        assert_eq!(left.cached, prompts()[1], "the session is as after the prompt");
    }
}

#[test]
fn settings_that_name_tokens_the_draft_lacks_are_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (small, large) = (load(&fixture("f32")), load(&padded(folder.path(), 10, true)));
    let sampler =
        SamplerConfig { suppress: vec![3, 275], logit_bias: vec![(4, 1.0), (270, -9.0)], temperature: 1.0, ..SamplerConfig::default() };
    let options = SessionOptions { sampler, ..options() };
    let mut with = session(&large, &options, draft(&small, &large, &options), DraftLength::Fixed(4));
    assert!(guessed(&mut with, &prompts()[1], 40, go_on).1.expect("a reply").accepted > 0);
}
