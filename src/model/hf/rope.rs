//! Rotary embedding: `rope_parameters`, or `rope_scaling` and `rope_theta` as older files have them.
//!
//! Source: `modeling_rope_utils.py` of `transformers`.

use super::config::{Config, Out};
use super::fields::Fields;
use crate::Result;

/// Base where neither file nor class has one.
const THETA: f64 = 10_000.0;

/// Writes the keys of the rotation; returns the tensors that GGUF has for it.
pub(super) fn translate(config: &Config<'_>, d_head: usize, out: &mut Out) -> Result<Vec<(String, Vec<f32>)>> {
    let given = match config.fields.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => config.fields.object("rope_scaling")?,
    };
    // Where layers differ, there is an object for each kind.
    let by_layer = given
        .as_ref()
        .map(|given| Ok::<_, crate::Error>((given.object("full_attention")?, given.object("sliding_attention")?)))
        .transpose()?;
    let (full, sliding) = match by_layer {
        Some((None, None)) | None => (given, None),
        Some((full, sliding)) => (full, sliding),
    };
    let theta = |object: Option<&Fields>, key: &str| match object.map(|o| o.f64("rope_theta")).transpose()?.flatten() {
        Some(x) if x > 0.0 => Ok(x),
        Some(x) => Err(config.fields.wrong("rope_theta", &format!("is {x}; it must be positive"))),
        None => Ok(config.number(key)?.unwrap_or(THETA)),
    };
    let base = theta(full.as_ref(), "rope_theta")?;
    out.f32("rope.freq_base", base);
    if config.arch.gguf == "gemma3" {
        out.f32("rope.freq_base_swa", theta(sliding.as_ref(), "rope_local_base_freq")?);
        if let Some(sliding) = &sliding
            && let Some(kind) = kind(sliding)?.filter(|kind| *kind != "default")
        {
            return Err(sliding.unsupported("rope_type", &format!("is {kind:?} for layers with a window")));
        }
    }
    let n_rot = n_rot(config, full.as_ref(), d_head)?;
    out.size("rope.dimension_count", n_rot);
    match full {
        Some(parameters) => scaling(config, &parameters, base, n_rot, out),
        None => Ok(Vec::new()),
    }
}

/// Components of a head that are rotated.
fn n_rot(config: &Config<'_>, parameters: Option<&Fields>, d_head: usize) -> Result<usize> {
    let key = "partial_rotary_factor";
    let share = parameters.map(|p| p.f64(key)).transpose()?.flatten().or(config.fields.f64(key)?).unwrap_or(1.0);
    let n_rot = (d_head as f64 * share) as usize;
    if !(share > 0.0 && share <= 1.0) || n_rot == 0 || n_rot % 2 == 1 {
        return Err(config.fields.wrong(key, &format!("is {share}, which makes {n_rot} of the {d_head} components of a head")));
    }
    if n_rot != d_head && config.arch.gguf != "phi3" {
        return Err(config.fields.unsupported(key, &format!("is {share}")));
    }
    Ok(n_rot)
}

/// `rope_type`, or `type` as older files have it.
fn kind(parameters: &Fields) -> Result<Option<&str>> {
    Ok(parameters.str("rope_type")?.or(parameters.str("type")?))
}

fn scaling(config: &Config<'_>, parameters: &Fields, base: f64, n_rot: usize, out: &mut Out) -> Result<Vec<(String, Vec<f32>)>> {
    let positive = |key: &str| -> Result<Option<f64>> {
        match parameters.f64(key)? {
            Some(x) if x <= 0.0 => Err(parameters.wrong(key, &format!("is {x}; it must be positive"))),
            x => Ok(x),
        }
    };
    let factor = || -> Result<f64> { parameters.required("factor", positive("factor")?) };
    let original = || -> Result<usize> {
        let key = "original_max_position_embeddings";
        let n = match config.optional_size(key)? {
            Some(n) => Some(n),
            None => parameters.u32(key)?.map(|n| n as usize).or(config.optional_size("max_position_embeddings")?),
        };
        match n {
            Some(n @ 1..) => Ok(n),
            _ => Err(parameters.wrong(key, "is missing or 0")),
        }
    };
    let kind = kind(parameters)?.unwrap_or("default");
    // What phi3 calls yarn is longrope.
    let kind = if config.arch.gguf == "phi3" && ["su", "yarn"].contains(&kind) { "longrope" } else { kind };
    match kind {
        "default" => Ok(Vec::new()),
        "linear" => {
            out.str("rope.scaling.type", "linear");
            out.f32("rope.scaling.factor", factor()?);
            Ok(Vec::new())
        }
        "llama3" => {
            let (factor, original) = (factor()?, original()? as f64);
            let low = parameters.required("low_freq_factor", positive("low_freq_factor")?)?;
            let high = parameters.required("high_freq_factor", positive("high_freq_factor")?)?;
            if low >= high {
                return Err(parameters.wrong("high_freq_factor", &format!("is {high}; it must be more than low_freq_factor, {low}")));
            }
            let divisor = |j: usize| {
                let frequency = 1.0 / base.powf(2.0 * j as f64 / n_rot as f64);
                let turns = original * frequency / std::f64::consts::TAU;
                let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
            };
            Ok(vec![("rope_freqs.weight".into(), (0..n_rot / 2).map(divisor).collect())])
        }
        "yarn" => {
            let factor = factor()?;
            let usual = 0.1 * factor.ln() + 1.0;
            if let Some(x) = positive("attention_factor")?
                && (x - usual).abs() > 1e-6
            {
                return Err(parameters.unsupported("attention_factor", &format!("is {x}, where {usual} follows from the factor")));
            }
            if parameters.get("mscale").is_some() || parameters.get("mscale_all_dim").is_some() {
                return Err(parameters.unsupported("mscale", "is given"));
            }
            // gpt-oss alone does not round the ends of the ramp to whole components.
            let rounded = parameters.bool("truncate")?.unwrap_or(true);
            if rounded == (config.arch.gguf == "gpt-oss") {
                return Err(parameters.unsupported("truncate", &format!("is {rounded}")));
            }
            out.str("rope.scaling.type", "yarn");
            out.f32("rope.scaling.factor", factor);
            out.size("rope.scaling.original_context_length", original()?);
            for (key, name) in [("beta_fast", "rope.scaling.yarn_beta_fast"), ("beta_slow", "rope.scaling.yarn_beta_slow")] {
                if let Some(x) = positive(key)? {
                    out.f32(name, x);
                }
            }
            Ok(Vec::new())
        }
        "longrope" => {
            let original = original()?;
            let longest = config.size("max_position_embeddings")? as f64;
            let factor = positive("factor")?.unwrap_or(longest / original as f64);
            let usual = if factor > 1.0 { (1.0 + factor.ln() / (original as f64).ln()).sqrt() } else { 1.0 };
            out.size("rope.scaling.original_context_length", original);
            out.f32("rope.scaling.attn_factor", positive("attention_factor")?.unwrap_or(usual));
            ["long", "short"]
                .iter()
                .map(|which| {
                    let key = format!("{which}_factor");
                    let factors = parameters.required(&key, parameters.f64s(&key)?)?;
                    if factors.len() != n_rot / 2 || factors.iter().any(|x| !(*x as f32).is_finite() || *x as f32 <= 0.0) {
                        return Err(parameters.wrong(&key, &format!("must be {} positive numbers", n_rot / 2)));
                    }
                    Ok((format!("rope_factors_{which}.weight"), factors.iter().map(|&x| x as f32).collect()))
                })
                .collect()
        }
        other => Err(parameters.unsupported("rope_type", &format!("is {other:?}"))),
    }
}
