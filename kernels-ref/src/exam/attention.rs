//! Attention over a cache that holds garbage wherever nothing was written.

use half::f16;

use super::buffers::{CANARY, Guarded};
use super::compare::{Fault, equal, equal_integers, mean_square, within};
use super::fills::{Fill, Random};
use super::{Exam, bounds};
use crate::attention;
use crate::kv::{AttendSpan, KEY_PANEL, KEY_SPAN, KvHead, KvHeadMut, KvType, SpanState, kv_groups};

type Attend = fn(&AttendSpan<'_>, &mut SpanState<'_>);

/// Tokens, heads, head size, position of the first token, window.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    m: usize,
    g: usize,
    d: usize,
    first: usize,
    window: usize,
    cap: Option<f32>,
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

/// What keeps scores within limits in every so many of the cases, as well as none.
const CAP: f32 = 1.5;
const CAPPED: usize = 3;

/// Examines attention.
pub fn attend(exam: &mut Exam, kernel: Attend) {
    let plain = CASES.map(|case| (case, None));
    for ((m, g, d, first, window), cap) in plain.into_iter().chain(CASES.into_iter().step_by(CAPPED).map(|case| (case, Some(CAP)))) {
        let sizes = Sizes { m, g, d, first, window, cap };
        let seen = if window == ALL { "all".to_owned() } else { window.to_string() };
        let capped = cap.map_or(String::new(), |cap| format!(" cap={cap}"));
        for kv in KvType::ALL {
            let line = format!("m={m} g={g} d={d} first={first} window={seen}{capped} kv={}", kv.name());
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

/// Examines the writing of a position into the cache: every number of the cache is compared, those of other positions too.
pub fn append(exam: &mut Exam, kernel: fn(&mut KvHeadMut<'_>, usize, &[f32], &[f32])) {
    for (d, position) in
        [1, 8, 15, 16, 31, 32, 33, 47, 64, 80, 128].into_iter().flat_map(|d| [0, 1, 15, 16, 30].map(|position| (d, position)))
    {
        for (kv, fill) in KvType::ALL.into_iter().flat_map(|kv| Fill::ALL.map(|fill| (kv, fill))) {
            let line = format!("d={d} position={position} kv={} fill={}", kv.name(), fill.name());
            exam.case("append", "append_equals_reference", &line, |random| {
                let (key, value) = (fill.numbers(d, random), fill.numbers(d, random));
                let older = Fill::Gaussian.numbers(2 * 32 * d, random);
                let mut caches = [kernel, attention::append].map(|append| {
                    let mut cache = Cache::new(kv, (32, d), random.below(16), &older);
                    append(&mut cache.view_mut(), position, &key, &value);
                    cache
                });
                let [got, want] = caches.each_mut().map(Cache::bits);
                equal_integers(&got?, &want?)
            });
        }
    }
}

/// Examines the merge of two spans, one of which may have seen nothing.
pub fn merge_spans(exam: &mut Exam, kernel: fn(&mut SpanState<'_>, &SpanState<'_>)) {
    for (rows, d) in [0, 1, 3, 8, 9].into_iter().flat_map(|rows| [1, 7, 16, 33, 64, 128].map(|d| (rows, d))) {
        for fill in [Fill::Gaussian, Fill::Outliers, Fill::Signs, Fill::Zeros, Fill::Broken, Fill::Bits] {
            exam.case("merge_spans", "merge_spans_equals_reference", &format!("rows={rows} d={d} fill={}", fill.name()), |random| {
                let span = |random: &mut Random| {
                    let (out, mut max) = (fill.numbers(rows * d, random), fill.numbers(rows, random));
                    let mut sum: Vec<f32> = Fill::Gaussian.numbers(rows, random).iter().map(|x| x.abs() + 1.0).collect();
                    for r in 0..rows {
                        if random.below(4) == 0 {
                            (max[r], sum[r]) = (f32::NEG_INFINITY, 0.0);
                        }
                    }
                    (out, max, sum)
                };
                let (so_far, mut later) = (span(random), span(random));
                let later = SpanState { out: &mut later.0, max: &mut later.1, sum: &mut later.2 };
                let [got, want] = [kernel, attention::merge_spans].map(|merge| {
                    let mut of = |x: &[f32]| Guarded::of(x, random.below(16), CANARY);
                    let mut state = State { out: of(&so_far.0), max: of(&so_far.1), sum: of(&so_far.2) };
                    merge(&mut state.view(), &later);
                    state
                });
                got.intact()?;
                equal(got.max.get(), want.max.get()).map_err(|fault| fault.of("max"))?;
                equal(got.sum.get(), want.sum.get()).map_err(|fault| fault.of("sum"))?;
                equal(got.out.get(), want.out.get()).map_err(|fault| fault.of("out"))
            });
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
    let Sizes { m, g, d, first, window, cap } = setting.sizes;
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
            let score = terms.map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>() * f64::from(setting.scale);
            cap.map_or(score, |cap| f64::from(cap) * libm::tanh(score / f64::from(cap)))
        };
        let weights: Vec<f64> = keys.clone().map(|t| libm::exp(score(t))).collect();
        let sum: f64 = weights.iter().sum();
        for j in 0..d {
            want.push(keys.clone().zip(&weights).map(|(t, w)| w * f64::from(setting.v[t * d + j])).sum::<f64>() / sum);
        }
    }
    let largest = setting.v.iter().fold(0.0_f32, |max, v| max.max(v.abs()));
    match setting.cache {
        Cache::F16(_) => within(total.out.get(), &want, |_| bounds::ATTENTION_F16 * f64::from(largest)),
        Cache::F32(_) => within(total.out.get(), &want, |_| bounds::ATTENTION_F32 * f64::from(largest)),
        Cache::I8(..) => mean_square(total.out.get(), &want, bounds::ATTENTION_I8),
    }
}

/// Queries, and a cache with keys and values up to the last token and NaN behind them.
struct Setting {
    sizes: Sizes,
    q: Guarded<f32>,
    q_stride: usize,
    k: Vec<f32>, // (positions, d)
    v: Vec<f32>, // (positions, d)
    cache: Cache,
    scale: f32,
}

/// What stands around integers.
const CANARY_I8: i8 = -86;

/// Keys and values of a head.
enum Cache {
    F16([Guarded<f16>; 2]),
    F32([Guarded<f32>; 2]),
    /// Numbers and scales.
    I8([Guarded<i8>; 2], [Guarded<f16>; 2]),
}

impl Cache {
    /// A cache of `positions` in whole panels whose keys and values start with `numbers`; NaN where those end.
    fn new(kv: KvType, (positions, d): (usize, usize), shift: usize, numbers: &[f32]) -> Self {
        let len = positions * d;
        let number = |i: usize| numbers.get(i).copied().unwrap_or(f32::NAN);
        let both = [0, len].map(|first| (first..first + len).map(number));
        match kv {
            KvType::F16 => Cache::F16(both.map(|x| Guarded::of(&x.map(f16::from_f32).collect::<Vec<_>>(), shift, f16::NAN))),
            KvType::F32 => Cache::F32(both.map(|x| Guarded::of(&x.collect::<Vec<_>>(), shift, f32::NAN))),
            KvType::I8 => {
                // Integers as they come; a scale is that of the number it happens to stand beside.
                let scales = [0, len].map(|first| (first..first + positions * kv_groups(d)).map(|i| f16::from_f32(number(i))));
                Cache::I8(
                    both.map(|x| Guarded::of(&x.map(|x| (x * 40.0) as i8).collect::<Vec<_>>(), shift, CANARY_I8)),
                    scales.map(|x| Guarded::of(&x.collect::<Vec<_>>(), shift, f16::NAN)),
                )
            }
        }
    }

    fn view(&self) -> KvHead<'_> {
        match self {
            Cache::F16([k, v]) => KvHead::F16 { k: k.get(), v: v.get() },
            Cache::F32([k, v]) => KvHead::F32 { k: k.get(), v: v.get() },
            Cache::I8([k, v], [k_scale, v_scale]) => KvHead::I8 { k: k.get(), v: v.get(), k_scale: k_scale.get(), v_scale: v_scale.get() },
        }
    }

    fn view_mut(&mut self) -> KvHeadMut<'_> {
        match self {
            Cache::F16([k, v]) => KvHeadMut::F16 { k: k.get_mut(), v: v.get_mut() },
            Cache::F32([k, v]) => KvHeadMut::F32 { k: k.get_mut(), v: v.get_mut() },
            Cache::I8([k, v], [k_scale, v_scale]) => {
                KvHeadMut::I8 { k: k.get_mut(), v: v.get_mut(), k_scale: k_scale.get_mut(), v_scale: v_scale.get_mut() }
            }
        }
    }

    /// The bits of keys and values, every NaN alike, if nothing was written around them.
    fn bits(&mut self) -> Result<Vec<u32>, Fault> {
        let quiet = |nan: bool, bits: u32| if nan { u32::MAX } else { bits };
        let halves = |both: &[Guarded<f16>; 2]| {
            both.iter().try_for_each(Guarded::intact)?;
            Ok(both.iter().flat_map(|x| x.get()).map(|x| quiet(x.is_nan(), x.to_bits().into())).collect::<Vec<u32>>())
        };
        match self {
            Cache::F16(both) => halves(both),
            Cache::F32(both) => {
                both.iter().try_for_each(Guarded::intact)?;
                Ok(both.iter().flat_map(|x| x.get()).map(|x| quiet(x.is_nan(), x.to_bits())).collect())
            }
            Cache::I8(both, scales) => {
                both.iter().try_for_each(Guarded::intact)?;
                Ok(both.iter().flat_map(|x| x.get()).map(|&q| q as u8 as u32).chain(halves(scales)?).collect())
            }
        }
    }
}

impl Setting {
    fn new(sizes: Sizes, kv: KvType, fill: Fill, random: &mut Random) -> Self {
        let Sizes { m, g, d, first, .. } = sizes;
        let positions = first + m;
        let q_stride = g * d + random.below(3) * 7;
        let q = Guarded::of(&fill.numbers(m * q_stride, random), random.below(16), f32::NAN);
        let (k, v) = (fill.numbers(positions * d, random), fill.numbers(positions * d, random));
        let mut cache = Cache::new(kv, (positions.next_multiple_of(KEY_PANEL), d), random.below(16), &[]);
        for t in 0..positions {
            attention::append(&mut cache.view_mut(), t, &k[t * d..][..d], &v[t * d..][..d]);
        }
        Setting { sizes, q, q_stride, k, v, cache, scale: 1.0 / (d as f32).sqrt() }
    }

    /// Calls `check` with every span up to the last token.
    fn each_span(&self, mut check: impl FnMut(&AttendSpan<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
        let Sizes { m, g, d, first, window, cap } = self.sizes;
        let kv = self.cache.view();
        for span in 0..(first + m).div_ceil(KEY_SPAN) {
            let span = AttendSpan { q: self.q.get(), q_stride: self.q_stride, m, g, d, kv, first, window, span, scale: self.scale, cap };
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
        state.intact()?;
        Ok(state)
    }

    fn intact(&self) -> Result<(), Fault> {
        self.out.intact()?;
        self.max.intact()?;
        self.sum.intact()
    }

    fn view(&mut self) -> SpanState<'_> {
        SpanState { out: self.out.get_mut(), max: self.max.get_mut(), sum: self.sum.get_mut() }
    }
}
