//! Tiny random models against llama.cpp's logits, and against themselves on every backend, thread count and chunk size.
//!
//! What each file is for and how to remake it: `fixtures/README.md`.

mod compare;

use std::path::PathBuf;

use compare::{best, digest, first_difference, ids, kl, load, mean, read_f32, read_json, run, runnable};
use rml::decode::KvType;
use rml::text::Encode;

/// Bound of a model of floats, as mean squared error over mean squared logit. rml and llama.cpp both compute in f32 but sum
/// in other orders: sums of up to 96 products that differ by about sqrt(96) 2^-24 = 6e-7 of their size, a dozen of them in a
/// row, make 7e-6; llama.cpp iterates rotary angles in f32, which adds as much at position 600. Squared, 1e-10.
const F32_NMSE: f64 = 1e-10;
/// The same with keys and values rounded to f16, an error of up to 2^-12 = 2.4e-4 of each; four times that through scores and
/// layers, squared.
const F16_KV_NMSE: f64 = 1e-6;
/// The same with keys and values in 8 bits. Their step is the largest of 32 over 127, so a number is off by
/// `2.4 / 127 / sqrt(12)` = 0.55 % of a typical one. Keys, through scores, and values pass that on in each of two layers; four
/// of them in a row make 2.2 %, squared.
const I8_KV_NMSE: f64 = 5e-4;
/// Bound of a quantized model, mean KL divergence in nats. Activations are rounded to 8 bits a block of 32, an error of
/// about 0.3 % of the block's largest number or 0.7 % of a typical one. A layer's dozen roundings and the head's make
/// that 2 % of a logit's spread of 2.6; KL is half the variance, 1.4e-3. Twice that is allowed, for 16 rows are few.
const QUANTIZED_KL: f64 = 3e-3;
/// The arg max of a quantized model, or of a cache in 8 bits, is the expected one wherever the two best are farther apart than this: four standard
/// deviations of the difference of two logits that are each off by 2 % of 2.6.
const QUANTIZED_GAP: f32 = 0.3;

struct Fixture {
    name: String,
    path: PathBuf,
    expected: Vec<f32>, // (positions of all sequences, n_vocab)
}

struct Sequence {
    tokens: Vec<u32>,
    positions: Vec<usize>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/models")
}

fn fixtures() -> (Vec<Sequence>, Vec<Fixture>) {
    let all = read_json(&folder().join("expected.json"));
    let n_vocab = all["vocab"].as_u64().expect("vocab") as usize;
    let sequences: Vec<_> = (all["sequences"].as_array().expect("sequences").iter())
        .map(|s| Sequence { tokens: ids(&s["tokens"]), positions: ids(&s["positions"]).iter().map(|&p| p as usize).collect() })
        .collect();
    let fixtures = (all["models"].as_array().expect("models").iter())
        .map(|m| {
            let file = |key: &str| folder().join(m[key].as_str().expect("a file name"));
            let expected = read_f32(&file("logits"));
            assert_eq!(expected.len(), n_vocab * sequences.iter().map(|s| s.positions.len()).sum::<usize>(), "a row a position");
            Fixture { name: m["model"].as_str().expect("a name").to_owned(), path: file("model"), expected }
        })
        .collect();
    (sequences, fixtures)
}

/// The rows at these positions, one after the other.
fn rows(logits: &[f32], n_vocab: usize, positions: &[usize]) -> Vec<f32> {
    positions.iter().flat_map(|p| &logits[p * n_vocab..][..n_vocab]).copied().collect()
}

fn nmse(expected: &[f32], got: &[f32]) -> f64 {
    let error: f64 = expected.iter().zip(got).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / expected.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
}

#[test]
fn logits_are_those_of_llama_cpp() {
    let (sequences, fixtures) = fixtures();
    let mut wrong = Vec::new();
    for fixture in &fixtures {
        let model = load(&fixture.path, "ref", 2);
        let n_vocab = model.config().n_vocab;
        let quantized = fixture.name.starts_with(['q', 'k']);
        for kv in [KvType::F32, KvType::F16, KvType::I8] {
            let got: Vec<f32> = sequences.iter().flat_map(|s| rows(&run(&model, kv, &[512], &s.tokens), n_vocab, &s.positions)).collect();
            let pairs = || fixture.expected.chunks(n_vocab).zip(got.chunks(n_vocab));
            let nmse = nmse(&fixture.expected, &got);
            let mean_kl = mean(&pairs().map(|(a, b)| kl(a, b)).collect::<Vec<_>>());
            let allowed_gap = if quantized || kv == KvType::I8 { QUANTIZED_GAP } else { 0.0 };
            let turned = pairs().filter(|(a, b)| best(a).0 != best(b).0 && best(a).1 > allowed_gap).count();
            let line = format!("{} kv {kv:?}: nmse {nmse:.1e}, mean KL {mean_kl:.2e}, {turned} clear arg maxima differ", fixture.name);
            eprintln!("{line}");
            let close = match (quantized, kv) {
                (true, _) => mean_kl <= QUANTIZED_KL,
                (false, KvType::F32) => nmse <= F32_NMSE,
                (false, KvType::F16) => nmse <= F16_KV_NMSE,
                (false, KvType::I8) => nmse <= I8_KV_NMSE,
            };
            if !close || turned > 0 {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_text_has_the_ids_that_llama_cpp_gives() {
    let all = read_json(&folder().join("expected.json"));
    let text = all["text"].as_str().expect("a text");
    for fixture in &fixtures().1 {
        let got = load(&fixture.path, "ref", 1).tokenizer().encode(text, Encode { add_special: false, parse_special: true });
        assert_eq!(got.expect("ids"), ids(&all["sequences"][0]["tokens"]), "{}", fixture.name);
    }
}

#[test]
fn logits_are_the_same_bits_on_every_backend_thread_count_and_chunk_size() {
    /// Tokens: past one span of keys and one chunk of 512.
    const LENGTH: usize = 540;
    /// Lengths of the pieces that they are run in: small ones at the start, and at the end beyond the first span.
    fn pieces(chunk: usize) -> Vec<usize> {
        match chunk {
            1 | 7 => [vec![chunk; 20], vec![500 - 20 * chunk, chunk]].concat(),
            _ => vec![chunk],
        }
    }
    let (sequences, fixtures) = fixtures();
    let tokens = &sequences.last().expect("sequences").tokens[..LENGTH];
    let mut wrong = Vec::new();
    for fixture in &fixtures {
        let reference = load(&fixture.path, "ref", 1);
        let n_vocab = reference.config().n_vocab;
        let expected = KvType::ALL.map(|kv| (kv, run(&reference, kv, &[512], tokens)));
        for backend in runnable() {
            for threads in 1..=3 {
                let model = load(&fixture.path, backend, threads);
                // The type of the cache does not touch how work is split, so one number of threads does for f32; i8 has
                // scales beside its numbers, and f16 is the default.
                let types = expected.iter().filter(|(kv, _)| threads == 2 || *kv != KvType::F32);
                for chunk in [1, 7, 64, 512] {
                    for (kv, expected) in types.clone() {
                        let got = run(&model, *kv, &pieces(chunk), tokens);
                        if let Some(difference) = first_difference(expected, &got, n_vocab) {
                            let name = &fixture.name;
                            wrong.push(format!("{name} on {backend}, {threads} threads, chunks of {chunk}, kv {kv:?}: {difference}"));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ, such as {:#?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}

/// `models/bits.json` holds what `ref` gave on x86-64: emulated or real, any other machine has to give the same.
#[test]
fn logits_are_the_same_bits_on_every_machine() {
    let (sequences, fixtures) = fixtures();
    let recorded = read_json(&folder().join("bits.json"));
    let mut got = serde_json::Map::new();
    let mut wrong = Vec::new();
    for fixture in &fixtures {
        for backend in runnable() {
            let model = load(&fixture.path, backend, 2);
            for kv in KvType::ALL {
                let logits: Vec<f32> = sequences.iter().flat_map(|s| run(&model, kv, &[100, 1, 512], &s.tokens)).collect();
                let key = format!("{} kv {}", fixture.name, kv.name());
                let digest = digest(&logits);
                if recorded[&key] != digest {
                    wrong.push(format!("{key} on {backend}"));
                }
                got.entry(key).or_insert_with(|| digest.into());
            }
        }
    }
    let all = serde_json::to_string_pretty(&got).expect("JSON");
    assert!(wrong.is_empty(), "{wrong:#?} differ from what is recorded; here, the first backend gives {all}");
}
