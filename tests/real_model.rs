//! The real SmolLM2 against llama.cpp.

use rml::decode::{KvType, Rows, State};
use rml::{LoadOptions, Model};
use std::path::{Path, PathBuf};

#[test]
fn golden() {
    let model =
        Model::load(Path::new(&std::env::var("RML_TEST_MODEL").unwrap()), &LoadOptions { threads: 2, ..Default::default() }).unwrap();
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data/golden");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("smollm2-q4_1.json")).unwrap()).unwrap();
    let all: Vec<f32> =
        std::fs::read(dir.join("smollm2-q4_1.f32")).unwrap().chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    for (i, p) in json["prompts"].as_array().unwrap().iter().enumerate() {
        let ids: Vec<u32> = p["ids"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect();
        let mut state = State::new(&model, KvType::F16, 256).unwrap();
        let t = std::time::Instant::now();
        let got = state.forward(&model, &ids, Rows::Last).unwrap();
        let want = &all[i * 49152..][..49152];
        let soft = |x: &[f32]| {
            let m = x.iter().copied().fold(f32::MIN, f32::max) as f64;
            let e: Vec<f64> = x.iter().map(|&v| (v as f64 - m).exp()).collect();
            let s: f64 = e.iter().sum();
            e.into_iter().map(|v| v / s).collect::<Vec<_>>()
        };
        let (p, q) = (soft(want), soft(got));
        let kl: f64 = p.iter().zip(&q).map(|(p, q)| if *p > 0.0 { p * (p / q).ln() } else { 0.0 }).sum();
        eprintln!("{} tokens, kl {kl:.2e}, {:?}", ids.len(), t.elapsed());
    }
}
