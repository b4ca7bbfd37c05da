//! Distributions by the logits processors of Hugging Face's transformers; `fixtures/make_sampler.py` makes them.

use rml::generate::sampler::{Sampler, SamplerConfig};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    scale: f32,
    logits: Vec<Vec<f32>>,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
struct Case {
    row: usize,
    context: Vec<u32>,
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    penalty: f32,
    suppress: Vec<u32>,
    bias: Vec<(u32, f32)>,
    kept: Vec<u32>,
    p: Vec<f64>,
}

#[test]
fn the_default_chain_is_hugging_faces() {
    let fixture: Fixture = serde_json::from_str(include_str!("../../fixtures/sampler/huggingface.json")).unwrap();
    assert!(fixture.cases.len() > 80);
    for case in fixture.cases {
        let logits: Vec<f32> = fixture.logits[case.row].iter().map(|l| l / fixture.scale).collect();
        let config = SamplerConfig {
            temperature: case.temperature,
            top_k: case.top_k,
            top_p: case.top_p,
            min_p: case.min_p,
            repetition_penalty: case.penalty,
            suppress: case.suppress.clone(),
            logit_bias: case.bias.clone(),
            ..Default::default()
        };
        let mut got = vec![0.0; logits.len()];
        Sampler::new(config, logits.len()).unwrap().distribution(&logits, &case.context, &mut got).unwrap();
        let kept: Vec<u32> = (0..).zip(&got).filter(|&(_, &p)| p > 0.0).map(|(id, _)| id).collect();
        assert_eq!(kept, case.kept, "{case:?}");
        for (&id, &p) in case.kept.iter().zip(&case.p) {
            // Exponents reach -60 here, each rounded thrice; the fixture has eight digits.
            let error = (f64::from(got[id as usize]) - p).abs();
            assert!(error <= p * 68.0 * 2.0_f64.powi(-22) + 2.0_f64.powi(-42), "token {id}: {} is not {p}; {case:?}", got[id as usize]);
        }
    }
}
