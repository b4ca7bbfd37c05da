//! The two chains as the specifications tell them, in f64, with full sorts: slow and plain.

use rml::generate::sampler::{ChainOrder, SamplerConfig};

/// Logits after bias, penalties and suppression (`None`). Rounded to f32, since ranks are those of f32 numbers.
pub(crate) fn changed(logits: &[f32], context: &[u32], config: &SamplerConfig) -> Vec<Option<f64>> {
    let window = &context[context.len() - context.len().min(config.repetition_window)..];
    let each = logits.iter().enumerate().map(|(id, &logit)| {
        let mut l = f64::from(logit);
        for &(token, bias) in &config.logit_bias {
            if token as usize == id {
                l += f64::from(bias);
            }
        }
        let count = window.iter().filter(|&&token| token as usize == id).count();
        if count > 0 {
            let penalty = f64::from(config.repetition_penalty);
            l = if l > 0.0 { l / penalty } else { l * penalty };
            l -= f64::from(config.presence_penalty) + f64::from(config.frequency_penalty) * count as f64;
        }
        let l = f64::from((l.max(f64::from(f32::MIN)).min(f64::from(f32::MAX))) as f32);
        (!config.suppress.contains(&(id as u32))).then_some(l)
    });
    each.collect()
}

/// Ids, what ranks first in front.
pub(crate) fn ranked(changed: &[Option<f64>], order: ChainOrder) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..changed.len()).filter(|&i| changed[i].is_some()).collect();
    ids.sort_by(|&a, &b| {
        let by_logit = changed[b].partial_cmp(&changed[a]).unwrap();
        by_logit.then(if order == ChainOrder::HuggingFace { a.cmp(&b) } else { b.cmp(&a) })
    });
    ids
}

/// A distribution: the probability of each token, and the difference of its logit to the best in units of the temperature.
#[derive(Debug)]
pub(crate) struct Distribution {
    pub(crate) p: Vec<f64>,
    pub(crate) exponent: Vec<f64>,
}

/// The distribution after all steps. `give` moves the limits of top-p and min-p by that share, for those who compare with
/// sums and weights that are rounded elsewhere.
pub(crate) fn distribution(logits: &[f32], context: &[u32], config: &SamplerConfig, give: (f64, f64)) -> Distribution {
    let n = logits.len();
    let changed = changed(logits, context, config);
    let ranked = ranked(&changed, config.order);
    let best = ranked[0];
    if config.temperature == 0.0 {
        let mut p = vec![0.0; n];
        p[best] = 1.0;
        return Distribution { p, exponent: vec![0.0; n] };
    }
    let exponent: Vec<f64> =
        changed.iter().map(|l| l.map_or(f64::NEG_INFINITY, |l| (l - changed[best].unwrap()) / f64::from(config.temperature))).collect();
    let weight: Vec<f64> = exponent.iter().map(|x| x.exp()).collect();

    let top_k = |ids: Vec<usize>| if config.top_k == 0 { ids } else { ids.into_iter().take(config.top_k).collect::<Vec<_>>() };
    let top_p = |ids: Vec<usize>, whole: f64| {
        if config.top_p == 1.0 {
            return ids;
        }
        let target = f64::from(config.top_p) * whole * (1.0 + give.0);
        let mut sum = 0.0;
        let mut kept = Vec::new();
        for id in ids {
            if sum >= target {
                break;
            }
            sum += weight[id];
            kept.push(id);
        }
        kept
    };
    let min_p = |ids: Vec<usize>| {
        let least = f64::from(config.min_p) * (1.0 + give.1);
        ids.into_iter().filter(|&id| id == best || weight[id] >= least).collect::<Vec<_>>()
    };
    let kept = match config.order {
        ChainOrder::HuggingFace => {
            let ids = top_k(ranked);
            let whole = ids.iter().map(|&id| weight[id]).sum();
            min_p(top_p(ids, whole))
        }
        ChainOrder::MinPFirst => {
            let whole = ranked.iter().map(|&id| weight[id]).sum();
            top_p(top_k(min_p(ranked)), whole)
        }
    };
    let total: f64 = kept.iter().map(|&id| weight[id]).sum();
    let mut p = vec![0.0; n];
    kept.iter().for_each(|&id| p[id] = weight[id] / total);
    Distribution { p, exponent }
}
