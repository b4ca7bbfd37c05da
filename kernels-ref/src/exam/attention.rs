//! Attention over a cache that holds garbage wherever nothing was written.

use half::f16;

use super::buffers::{CANARY, Guarded};
use super::compare::{Fault, equal, within};
use super::fills::{Fill, Random};
use super::{Exam, bounds};
use crate::attention;
use crate::kv::{AttendSpan, KEY_PANEL, KEY_SPAN, KvHead, KvHeadMut, KvType, SpanState};

type Attend = fn(&AttendSpan<'_>, &mut SpanState<'_>);

/// Tokens, heads, head size, position of the first token, window.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    m: usize,
    g: usize,
    d: usize,
    first: usize,
    window: usize,
}

const ALL: usize = usize::MAX;

/// Positions at and around panels, blocks and spans; groups and heads at and around tiles.
const CASES: [(usize, usize, usize, usize, usize); 34] = [
    (0, 3, 64, 5, ALL),
    (1, 1, 1, 0, ALL),
    (1, 1, 64, 0, ALL),
    (1, 3, 64, 14, ALL),
    (1, 3, 64, 15, ALL),
    (1, 3, 64, 16, ALL),
    (1, 3, 64, 62, ALL),
    (1, 3, 64, 63, ALL),
    (1, 3, 64, 64, ALL),
    (1, 1, 33, 127, ALL),
    (1, 2, 80, 511, ALL),
    (1, 3, 64, 512, ALL),
    (1, 4, 128, 700, ALL),
    (1, 8, 96, 1030, ALL),
    (1, 9, 17, 100, ALL),
    (1, 3, 64, 100, 1),
    (1, 3, 64, 100, 2),
    (1, 3, 64, 129, 64),
    (1, 3, 64, 600, 100),
    (1, 3, 64, 50, 0),
    (2, 3, 64, 63, ALL),
    (3, 1, 31, 0, ALL),
    (4, 2, 32, 61, ALL),
    (5, 3, 15, 510, ALL),
    (7, 5, 16, 33, ALL),
    (8, 3, 64, 0, ALL),
    (9, 3, 64, 504, 70),
    (15, 1, 48, 1, ALL),
    (16, 3, 64, 0, 5),
    (17, 2, 65, 47, ALL),
    (31, 4, 8, 3, 16),
    (33, 3, 64, 0, ALL),
    (65, 3, 64, 0, ALL),
    (70, 1, 128, 480, 33),
];

/// Examines attention.
pub fn attend(exam: &mut Exam, kernel: Attend) {
    for (m, g, d, first, window) in CASES {
        let sizes = Sizes { m, g, d, first, window };
        let seen = if window == ALL { "all".to_owned() } else { window.to_string() };
        for kv in [KvType::F16, KvType::F32] {
            let line = format!("m={m} g={g} d={d} first={first} window={seen} kv={}", if kv == KvType::F16 { "f16" } else { "f32" });
            for fill in [Fill::Gaussian, Fill::Outliers, Fill::Signs, Fill::Zeros, Fill::Broken, Fill::Bits] {
                exam.case("attend", "attend_equals_reference", &format!("{line} fill={}", fill.name()), |random| {
                    let setting = Setting::new(sizes, kv, fill, random);
                    setting.each_span(|span| {
                        let got = State::of(kernel, span, random)?;
                        let want = State::of(attention::attend, span, random)?;
                        equal(got.max.get(), want.max.get()).map_err(|fault| fault.of("max"))?;
                        equal(got.sum.get(), want.sum.get()).map_err(|fault| fault.of("sum"))?;
                        equal(got.out.get(), want.out.get()).map_err(|fault| fault.of("out"))
                    })
                });
            }
            if m > 1 {
                exam.case("attend", "attend_is_independent_of_batch", &line, |random| {
                    let setting = Setting::new(sizes, kv, Fill::Gaussian, random);
                    setting.each_span(|span| tokens_alone(kernel, span, random))
                });
            }
            if m > 0 && window > 0 {
                exam.case("attend", "attend_is_accurate", &line, |random| {
                    accurate(kernel, &Setting::new(sizes, kv, Fill::Gaussian, random), random)
                });
            }
        }
    }
}

/// Every token alone gives what it gave among the others.
fn tokens_alone(kernel: Attend, span: &AttendSpan<'_>, random: &mut Random) -> Result<(), Fault> {
    let together = State::of(kernel, span, random)?;
    for i in 0..span.m {
        let alone = AttendSpan { q: &span.q[i * span.q_stride..], m: 1, first: span.first + i, ..*span };
        let alone = State::of(kernel, &alone, random)?;
        let part = format!("token {i}");
        equal(alone.sum.get(), &together.sum.get()[i * span.g..][..span.g]).map_err(|fault| fault.of(&part))?;
        equal(alone.out.get(), &together.out.get()[i * span.g * span.d..][..span.g * span.d]).map_err(|fault| fault.of(&part))?;
    }
    Ok(())
}

/// Merged spans against a softmax in f64 over keys and values as they were before they went into the cache.
fn accurate(kernel: Attend, setting: &Setting, random: &mut Random) -> Result<(), Fault> {
    let Sizes { m, g, d, first, window } = setting.sizes;
    let mut total: Option<State> = None;
    setting.each_span(|span| {
        let mut state = State::of(kernel, span, random)?;
        match &mut total {
            None => total = Some(state),
            Some(total) => attention::merge_spans(&mut total.view(), &state.view()),
        }
        Ok(())
    })?;
    let Some(mut total) = total else { return Ok(()) };
    attention::finish(&mut total.view());
    let mut want = Vec::new();
    for (i, h) in (0..m).flat_map(|i| (0..g).map(move |h| (i, h))) {
        let position = first + i;
        let keys = (position + 1).saturating_sub(window)..position + 1;
        let q = &setting.q.get()[i * setting.q_stride + h * d..][..d];
        let score = |t: usize| {
            let terms = q.iter().zip(&setting.k[t * d..][..d]);
            terms.map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>() * f64::from(setting.scale)
        };
        let weights: Vec<f64> = keys.clone().map(|t| libm::exp(score(t))).collect();
        let sum: f64 = weights.iter().sum();
        for j in 0..d {
            want.push(keys.clone().zip(&weights).map(|(t, w)| w * f64::from(setting.v[t * d + j])).sum::<f64>() / sum);
        }
    }
    let largest = setting.v.iter().fold(0.0_f32, |max, v| max.max(v.abs()));
    let bound = if setting.f32_cache.is_some() { bounds::ATTENTION_F32 } else { bounds::ATTENTION_F16 };
    within(total.out.get(), &want, |_| bound * f64::from(largest))
}

/// Queries, and a cache with keys and values up to the last token and NaN behind them.
struct Setting {
    sizes: Sizes,
    q: Guarded<f32>,
    q_stride: usize,
    k: Vec<f32>, // (positions, d)
    v: Vec<f32>, // (positions, d)
    f16_cache: Option<[Guarded<f16>; 2]>,
    f32_cache: Option<[Guarded<f32>; 2]>,
    scale: f32,
}

impl Setting {
    fn new(sizes: Sizes, kv: KvType, fill: Fill, random: &mut Random) -> Self {
        let Sizes { m, g, d, first, .. } = sizes;
        let positions = first + m;
        let q_stride = g * d + random.below(3) * 7;
        let q = Guarded::of(&fill.numbers(m * q_stride, random), random.below(16), f32::NAN);
        let (k, v) = (fill.numbers(positions * d, random), fill.numbers(positions * d, random));
        let capacity = positions.next_multiple_of(KEY_PANEL) * d;
        let shift = random.below(16);
        let mut f16_cache = (kv == KvType::F16).then(|| [0; 2].map(|_| Guarded::new(capacity, shift, f16::NAN)));
        let mut f32_cache = (kv == KvType::F32).then(|| [0; 2].map(|_| Guarded::new(capacity, shift, f32::NAN)));
        for t in 0..positions {
            let cache = match (&mut f16_cache, &mut f32_cache) {
                (Some([k, v]), _) => KvHeadMut::F16 { k: k.get_mut(), v: v.get_mut() },
                (_, Some([k, v])) => KvHeadMut::F32 { k: k.get_mut(), v: v.get_mut() },
                (None, None) => unreachable!("one of the two is there"),
            };
            attention::append(&mut { cache }, t, &k[t * d..][..d], &v[t * d..][..d]);
        }
        Setting { sizes, q, q_stride, k, v, f16_cache, f32_cache, scale: 1.0 / (d as f32).sqrt() }
    }

    /// Calls `check` with every span up to the last token.
    fn each_span(&self, mut check: impl FnMut(&AttendSpan<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
        let Sizes { m, g, d, first, window } = self.sizes;
        let kv = match (&self.f16_cache, &self.f32_cache) {
            (Some([k, v]), _) => KvHead::F16 { k: k.get(), v: v.get() },
            (_, Some([k, v])) => KvHead::F32 { k: k.get(), v: v.get() },
            (None, None) => unreachable!("one of the two is there"),
        };
        for span in 0..(first + m).div_ceil(KEY_SPAN) {
            let span = AttendSpan { q: self.q.get(), q_stride: self.q_stride, m, g, d, kv, first, window, span, scale: self.scale };
            check(&span).map_err(|fault| fault.of(&format!("span {}", span.span)))?;
        }
        Ok(())
    }
}

/// What a span yields.
struct State {
    out: Guarded<f32>,
    max: Guarded<f32>,
    sum: Guarded<f32>,
}

impl State {
    fn of(kernel: Attend, span: &AttendSpan<'_>, random: &mut Random) -> Result<State, Fault> {
        let rows = span.m * span.g;
        let mut room = |len| Guarded::new(len, random.below(16), CANARY);
        let mut state = State { out: room(rows * span.d), max: room(rows), sum: room(rows) };
        kernel(span, &mut state.view());
        state.out.intact()?;
        state.max.intact()?;
        state.sum.intact()?;
        Ok(state)
    }

    fn view(&mut self) -> SpanState<'_> {
        SpanState { out: self.out.get_mut(), max: self.max.get_mut(), sum: self.sum.get_mut() }
    }
}
