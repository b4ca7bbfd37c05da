//! SmolLM2-135M-Instruct against llama.cpp, which ran the same weights in f32.
//!
//! The model is the file that `RML_TEST_MODEL` names, else the one that `rml-chat` keeps in its cache, fetched if need be.

#[allow(dead_code, reason = "each test takes a part")]
mod compare;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use compare::{best, digest, first_difference, ids, kl, load, log_sum_exp, mean, read_f32, read_json, run, runnable};
use rml::decode::{KvType, Rows, State};
use rml::exec::Team;
use rml::fetch::{DEFAULT_MODEL, Fetcher};
use rml::generate::speculative::{DraftLength, DraftModel, Drafter, Lookup};
use rml::generate::{Session, SessionOptions, SpeculativeSession};
use rml::model::Gguf;
use rml::model::gguf::{TensorType, Value as GgufValue, Writer};
use rml::model::quantize::{FileType, Quantized};
use rml::text::Encode;
use rml::{LoadOptions, Model};
use serde_json::Value;

/// Bound on the mean KL divergence over all positions, in nats; llama.cpp's own Q4_1 run has 4.7e-3 to 5.3e-3, by CPU.
const MEAN_KL: f64 = 4.3e-3;
/// Share of positions whose arg max is that of the f32 run; llama.cpp's own Q4_1 run has 0.974.
const TOP1: f64 = 0.96;
/// Where the two best of the f32 run are farther apart than this, the arg max must be the same.
const CLEAR_GAP: f32 = 0.5;
/// Perplexity of the f32 run on the text of the GPL, chunks of 512.
const PERPLEXITY: f64 = 18.299;
/// What is allowed beside it; llama.cpp's own Q4_1 run is 0.5 % off.
const PERPLEXITY_SHARE: f64 = 0.01;

/// Says aloud that something is not tested: to the terminal itself, as the harness keeps what `eprintln!` prints.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// The model's file, unless it is not on this machine.
fn model_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("RML_TEST_MODEL") {
        return Some(path.into());
    }
    let found = Fetcher::from_env().and_then(|fetcher| fetcher.resolve(DEFAULT_MODEL));
    found.inspect_err(|e| skipped(&e.to_string().replace('\n', "; "))).ok()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The prompts of a file of expected values.
fn prompts(document: &Value) -> &[Value] {
    document["prompts"].as_array().expect("prompts")
}

/// A JSON list of floats.
fn floats(v: &Value) -> Vec<f32> {
    v.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

/// KL divergence between distributions over the recorded best tokens and everything else taken as one.
fn kl_of_recorded(log_sum: f64, top_ids: &[u32], top: &[f32], got: &[f32]) -> f64 {
    let got_log_sum = log_sum_exp(got);
    let (mut kl, mut p_rest, mut q_rest) = (0.0, 1.0, 1.0);
    for (&id, &logit) in top_ids.iter().zip(top) {
        let (p, q) = (f64::from(logit) - log_sum, f64::from(got[id as usize]) - got_log_sum);
        kl += p.exp() * (p - q);
        p_rest -= p.exp();
        q_rest -= q.exp();
    }
    // Recorded logits are rounded, so what is left of the sum may be a little below nothing.
    if p_rest > 1e-6 { kl + p_rest * (p_rest / f64::max(q_rest, 1e-9)).ln() } else { kl }
}

#[test]
fn every_position_is_close_to_the_f32_run() {
    let Some(path) = model_path() else { return };
    let model = load(&path, "auto", 0);
    let n_vocab = model.config().n_vocab;
    let document = read_json(&here("fixtures/smollm2.json"));
    let (mut kls, mut same) = (Vec::new(), 0);
    for prompt in prompts(&document) {
        let logits = run(&model, KvType::F16, &[512], &ids(&prompt["ids"]));
        let last = logits.len() / n_vocab - 1;
        for (i, got) in logits.chunks(n_vocab).enumerate() {
            let (top_ids, top) = (ids(&prompt["top_ids"][i]), floats(&prompt["top_logits"][i]));
            kls.push(kl_of_recorded(prompt["log_sum_exp"][i].as_f64().expect("a number"), &top_ids, &top, got));
            same += usize::from(best(got).0 == top_ids[0] as usize);
            if i == last && top[0] - top[1] > CLEAR_GAP {
                assert_eq!(best(got).0, top_ids[0] as usize, "after {}", prompt["prompt"]);
            }
        }
    }
    let (mean_kl, top1) = (mean(&kls), same as f64 / kls.len() as f64);
    eprintln!("{} positions: mean KL {mean_kl:.2e}, arg max {top1:.3}", kls.len());
    assert!(mean_kl <= MEAN_KL && top1 >= TOP1);
}

/// Every clear step of recorded replies: the tokens before it are given, so one near tie does not hide the rest.
fn clear_steps_are_the_same(model: &Model, prompt: &Value, reply: &[u32], gaps: &[f32]) {
    let tokens = [ids(&prompt["ids"]), reply.to_vec()].concat();
    let n_vocab = model.config().n_vocab;
    let logits = run(model, KvType::F16, &[512], &tokens);
    let first = tokens.len() - reply.len() - 1;
    let steps = logits.chunks(n_vocab).skip(first).zip(reply).zip(gaps);
    for (i, ((got, &id), _)) in steps.enumerate().filter(|(_, (_, gap))| **gap > CLEAR_GAP) {
        assert_eq!(best(got).0, id as usize, "step {i} after {}", prompt["prompt"]);
    }
}

#[test]
fn replies_are_those_of_the_f32_run_at_every_clear_step() {
    let Some(path) = model_path() else { return };
    let model = load(&path, "auto", 0);
    for prompt in prompts(&read_json(&here("fixtures/smollm2.json"))) {
        clear_steps_are_the_same(&model, prompt, &ids(&prompt["greedy"]), &floats(&prompt["gaps"]));
    }
}

#[test]
fn eight_more_prompts_agree() {
    let Some(path) = model_path() else { return };
    let golden = here("../shared/data/golden/smollm2-q4_1.json");
    if !golden.exists() {
        return skipped(&format!("{} is not there", golden.display()));
    }
    let model = load(&path, "auto", 0);
    let n_vocab = model.config().n_vocab;
    let (document, last_logits) = (read_json(&golden), read_f32(&golden.with_extension("f32")));
    let mut kls = Vec::new();
    for (prompt, expected) in prompts(&document).iter().zip(last_logits.chunks(n_vocab)) {
        let logits = run(&model, KvType::F16, &[512], &ids(&prompt["ids"]));
        let got = &logits[logits.len() - n_vocab..];
        kls.push(kl(expected, got));
        let (token, gap) = best(expected);
        assert!(gap <= CLEAR_GAP || best(got).0 == token, "after {}", prompt["prompt"]);
        clear_steps_are_the_same(&model, prompt, &ids(&prompt["greedy_f32"]), &floats(&prompt["greedy_gap"]));
    }
    eprintln!("last positions: mean KL {:.2e}", mean(&kls));
    assert!(mean(&kls) <= MEAN_KL, "mean KL {}", mean(&kls));
}

#[test]
#[ignore = "needs every logit: make_fixtures.py --smollm2 MODEL.gguf --all fixtures/smollm2-all.f32"]
fn whole_distributions_are_close_to_the_f32_run() {
    let path = model_path().expect("the model");
    let model = load(&path, "auto", 0);
    let n_vocab = model.config().n_vocab;
    let expected = read_f32(&here("fixtures/smollm2-all.f32"));
    let document = read_json(&here("fixtures/smollm2.json"));
    for kv in [KvType::F32, KvType::F16] {
        let got: Vec<f32> = prompts(&document).iter().flat_map(|p| run(&model, kv, &[512], &ids(&p["ids"]))).collect();
        assert_eq!(expected.len(), got.len(), "remake the file");
        let rows = || expected.chunks(n_vocab).zip(got.chunks(n_vocab));
        let kls: Vec<f64> = rows().map(|(a, b)| kl(a, b)).collect();
        let top1 = rows().filter(|(a, b)| best(a).0 == best(b).0).count() as f64 / kls.len() as f64;
        eprintln!("kv {kv:?}, {} positions: mean KL {:.2e}, arg max {top1:.3}", kls.len(), mean(&kls));
        assert!(mean(&kls) <= MEAN_KL && top1 >= TOP1);
    }
}

#[test]
fn logits_are_the_same_bits_on_every_backend() {
    let Some(path) = model_path() else { return };
    let tokens = ids(&read_json(&here("fixtures/smollm2.json"))["prompts"][1]["ids"]);
    let reference = load(&path, "ref", 2);
    let n_vocab = reference.config().n_vocab;
    let expected = run(&reference, KvType::F16, &[512], &tokens);
    drop(reference);
    for backend in runnable() {
        for (threads, pieces) in [(1, [30, 1]), (2, [3, 7]), (3, [16, 512])] {
            let got = run(&load(&path, backend, threads), KvType::F16, &pieces, &tokens);
            let difference = first_difference(&expected, &got, n_vocab);
            assert!(difference.is_none(), "{backend}, {threads} threads, pieces of {pieces:?}: {difference:?}");
        }
    }
}

/// What `ref` gave on x86-64: emulated or real, any other machine has to give the same.
#[test]
fn the_first_greedy_tokens_are_those_of_every_machine() {
    const REPLY: [u32; 8] = [7042, 30, 198, 198, 504, 1797, 1918, 553];
    /// Of the prompt and the reply, f16 cache.
    const LOGITS: &str = "efac1cb5937fc206a8f6da98c9267b4e093e8c724d51bb093ec19e6d36bdf6c9";
    let Some(path) = model_path() else { return };
    let prompt = ids(&read_json(&here("fixtures/smollm2.json"))["prompts"][0]["ids"]);
    for backend in runnable() {
        let model = Arc::new(load(&path, backend, 2));
        let options = SessionOptions { context_size: prompt.len() + REPLY.len(), ..SessionOptions::default() };
        let mut reply = Vec::new();
        let keep = |id| {
            reply.push(id);
            ControlFlow::Continue(())
        };
        Session::new(&model, options).expect("a session").generate(&prompt, REPLY.len(), keep).expect("a reply");
        let logits = run(&model, KvType::F16, &[prompt.len(), 1], &[&prompt[..], &reply[..]].concat());
        assert_eq!((&reply[..], &digest(&logits)[..]), (&REPLY[..], LOGITS), "{backend}");
    }
}

/// The model's first layers and its head, as a file of their own.
fn first_layers(model: &Model, n_layers: usize, path: &Path) {
    let (file, mut writer) = (model.file(), Writer::new());
    file.metadata().iter().for_each(|(key, value)| writer.set(key, value.clone()));
    writer.set("llama.block_count", GgufValue::U32(n_layers as u32));
    let layer = |name: &str| name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    let kept: Vec<_> = file.tensors().iter().filter(|t| layer(&t.name).is_none_or(|i| i < n_layers)).collect();
    kept.iter().for_each(|t| _ = writer.tensor(&t.name, TensorType(t.kind.0), &t.shape).expect("a sound tensor"));
    let mut out = std::fs::File::create(path).expect("a new file");
    let fill = |i: usize, out: &mut dyn Write| {
        out.write_all(file.bytes(kept[i])).expect("room for a tensor");
        Ok(())
    };
    writer.write_streamed(path, &mut out, fill).expect("a written file");
}

#[test]
fn greedy_replies_are_the_same_with_any_draft() {
    const REPLY: usize = 200;
    let Some(path) = model_path() else { return };
    let model = Arc::new(load(&path, "auto", 0));
    let folder = tempfile::tempdir().expect("a folder");
    let small = folder.path().join("small.gguf");
    first_layers(&model, 4, &small);
    let small = Arc::new(Model::load_beside(&small, &LoadOptions::default(), &model).expect("a draft"));
    let (mut drafted, mut accepted) = ([0; 3], [0; 3]);
    // Some of the prompts, for time; `rml speculate --task fixtures/smollm2.json` takes all.
    for prompt in prompts(&read_json(&here("fixtures/smollm2.json"))).iter().step_by(3) {
        let prompt = ids(&prompt["ids"]);
        let options = SessionOptions { context_size: prompt.len() + REPLY, ..SessionOptions::default() };
        let mut expected = Vec::new();
        let mut session = Session::new(&model, options.clone()).expect("a session");
        let keep = |reply: &mut Vec<u32>, id| {
            reply.push(id);
            ControlFlow::Continue(())
        };
        session.generate(&prompt, REPLY, |id| keep(&mut expected, id)).expect("a reply");
        let draft = |draft| DraftModel::new(draft, &model, &options).expect("a draft");
        let drafters: [(Box<dyn Drafter>, _); 3] = [
            (Box::new(draft(&model)), DraftLength::Fixed(4)),
            (Box::new(draft(&small)), DraftLength::Fixed(2)),
            (Box::new(Lookup::new(options.context_size).expect("an index")), DraftLength::Fixed(4)),
        ];
        for (i, (drafter, length)) in drafters.into_iter().enumerate() {
            let mut reply = Vec::new();
            let mut session = SpeculativeSession::new(&model, options.clone(), drafter, length).expect("a session");
            let stats = session.generate(&prompt, REPLY, |id| keep(&mut reply, id)).expect("a reply");
            assert_eq!(reply, expected, "draft {i}, {length:?}, after {prompt:?}");
            drafted[i] += stats.drafted;
            accepted[i] += stats.accepted;
        }
    }
    eprintln!("{accepted:?} of {drafted:?} guesses of the model, its first layers and lookup are kept");
    assert!(accepted[0] == drafted[0] && accepted[1] < drafted[1] && accepted[2] < drafted[2]);
}

/// What `rml perplexity` says of a text.
fn perplexity(model: &Path, text: &Path, arguments: &[&str]) -> f64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rml"));
    let out = command.arg("perplexity").arg(model).arg("--file").arg(text).arg("--json").args(arguments).output().expect("rml runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let document: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    document["perplexity"].as_f64().expect("a number")
}

#[test]
fn perplexity_is_that_of_the_f32_run() {
    let Some(path) = model_path() else { return };
    let text = here("../shared/data/golden/gpl-3.txt");
    if !text.exists() {
        return skipped(&format!("{} is not there", text.display()));
    }
    let got = perplexity(&path, &text, &[]);
    eprintln!("perplexity {got}");
    assert!((got / PERPLEXITY - 1.0).abs() <= PERPLEXITY_SHARE, "{got} where {PERPLEXITY} is expected");
}

/// Keys and values in 8 bits: what they cost is to be less than what the weights' format costs.
#[test]
fn an_i8_cache_keeps_perplexity() {
    const SHARE: f64 = 0.005;
    let Some(path) = model_path() else { return };
    let [f16, i8] = ["f16", "i8"].map(|kv| perplexity(&path, &here("LICENSE-APACHE"), &["--ctx", "2048", "--kv", kv]));
    assert!((i8 / f16 - 1.0).abs() <= SHARE, "{i8} with i8, {f16} with f16");
    assert!(i8.to_bits() != f16.to_bits());
}

/// The same by whole distributions, with weights that keep their bits: products of quantized weights round what goes into them,
/// and a difference of any size in the cache moves a few of these roundings.
#[test]
fn an_i8_cache_keeps_distributions() {
    const CONTEXT: usize = 2048;
    const MEAN_KL: f64 = 2e-3;
    let Some(path) = model_path() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let wide = dir.path().join("f16.gguf");
    let file = Gguf::open(&path).expect("a model");
    let plan = Quantized::new(&file, FileType::named("f16").expect("a type")).expect("a plan");
    let mut out = std::fs::File::create(&wide).expect("a file");
    plan.write(&wide, &mut out, &Team::new(0).expect("threads"), |_| ()).expect("a model");
    let model = load(&wide, "auto", 0);
    let text = std::fs::read_to_string(here("LICENSE-APACHE")).expect("a text");
    let tokens = model.tokenizer().encode(&text, Encode::default()).expect("ids");
    assert!(tokens.len() >= CONTEXT, "{} tokens", tokens.len());
    let mut states = [KvType::F16, KvType::I8].map(|kv| State::with_chunk(&model, kv, CONTEXT, 64).expect("a state"));
    let n_vocab = model.config().n_vocab;
    let mut kls = Vec::new();
    for part in tokens[..CONTEXT].chunks(64) {
        let [f16, i8] = states.each_mut().map(|state| state.forward(&model, part, Rows::All).expect("logits"));
        kls.extend(f16.chunks_exact(n_vocab).zip(i8.chunks_exact(n_vocab)).map(|(f16, i8)| kl(f16, i8)));
    }
    eprintln!("{} positions: mean KL {:.2e}", kls.len(), mean(&kls));
    assert!(kls.len() == CONTEXT && mean(&kls) <= MEAN_KL && mean(&kls) > 0.0);
}
