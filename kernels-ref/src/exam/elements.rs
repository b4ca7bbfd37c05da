//! Operations that treat elements or blocks alone: gates, addition, quantization, embedding.

use super::bounds;
use super::buffers::{CANARY, Guarded};
use super::compare::{Fault, equal, equal_integers, within};
use super::fills::{Fill, Random, WeightFill};
use super::{Exam, rows::SIZES};
use crate::activation::{Q8_BLOCK, Q8RowMut};
use crate::format::Format;
use crate::{dequantize, gate};

/// Examines `gate = silu(gate) * up`.
pub fn silu_mul(exam: &mut Exam, kernel: fn(&mut [f32], &[f32])) {
    gated(exam, "silu_mul", ["silu_mul_equals_reference", "silu_mul_is_accurate"], kernel, gate::silu_mul, |x| {
        (x / (1.0 + libm::exp(-x)), bounds::SILU)
    });
}

/// Examines `gate = gelu(gate) * up`.
pub fn gelu_mul(exam: &mut Exam, kernel: fn(&mut [f32], &[f32])) {
    gated(exam, "gelu_mul", ["gelu_mul_equals_reference", "gelu_mul_is_accurate"], kernel, gate::gelu_mul, |x| {
        let exponent = 2.0 * libm::sqrt(2.0 / std::f64::consts::PI) * (x + 0.044715 * x * x * x);
        // The tanh form of the definition, but with the tails that 1 + tanh would cancel.
        (x / (1.0 + libm::exp(-exponent)), bounds::gelu(exponent))
    });
}

/// Examines the gate of gpt-oss.
pub fn limited_mul(exam: &mut Exam, kernel: fn(&mut [f32], &[f32])) {
    pairs(exam, "limited_mul", "limited_mul_equals_reference", kernel, gate::limited_mul);
    for n in SIZES {
        exam.case("limited_mul", "limited_mul_is_accurate", &format!("n={n}"), |random| {
            let [x, up] = [(); 2].map(|()| Fill::Gaussian.numbers(n, random).iter().map(|x| x * 7.0).collect::<Vec<f32>>());
            let mut got = Guarded::of(&x, random.below(16), CANARY);
            kernel(got.get_mut(), &up);
            got.intact()?;
            let want: Vec<f64> = (x.iter().zip(&up))
                .map(|(&x, &up)| {
                    let (x, up) = (f64::from(x).min(7.0), f64::from(up).clamp(-7.0, 7.0));
                    x / (1.0 + libm::exp(-1.702 * x)) * (up + 1.0)
                })
                .collect();
            // That of SiLU, whose argument is rounded once more, and the sum of 1; where it cancels, of the 1.
            within(got.get(), &want, |i| {
                let (x, up) = (f64::from(x[i]).min(7.0), f64::from(up[i]).clamp(-7.0, 7.0));
                bounds::limited(x) * want[i].abs() + (bounds::U * (up.abs() + 1.0) + bounds::GATE_CLAMP) * x.abs()
            })
        });
    }
}

/// Examines `x = cap * tanh(x / cap)`.
pub fn soft_cap(exam: &mut Exam, kernel: fn(&mut [f32], f32)) {
    for (n, fill) in SIZES.iter().flat_map(|&n| Fill::ALL.map(|fill| (n, fill))) {
        exam.case("soft_cap", "soft_cap_equals_reference", &format!("n={n} fill={}", fill.name()), |random| {
            let mut want = fill.numbers(n, random);
            let mut got = Guarded::of(&want, random.below(16), CANARY);
            kernel(got.get_mut(), 30.0);
            gate::soft_cap(&mut want, 30.0);
            got.intact()?;
            equal(got.get(), &want)
        });
        if fill == Fill::Gaussian {
            exam.case("soft_cap", "soft_cap_is_accurate", &format!("n={n}"), |random| {
                let x: Vec<f32> = fill.numbers(n, random).iter().map(|x| x * 20.0).collect();
                let mut got = Guarded::of(&x, random.below(16), CANARY);
                kernel(got.get_mut(), 30.0);
                got.intact()?;
                let want: Vec<f64> = x.iter().map(|&x| 30.0 * libm::tanh(f64::from(x) / 30.0)).collect();
                within(got.get(), &want, |_| bounds::SOFT_CAP * 30.0)
            });
        }
    }
}

/// Examines `acc += x`.
pub fn add(exam: &mut Exam, kernel: fn(&mut [f32], &[f32])) {
    pairs(exam, "add", "add_equals_reference", kernel, gate::add);
}

type Gated = fn(&mut [f32], &[f32]);

fn gated(exam: &mut Exam, slot: &str, properties: [&'static str; 2], kernel: Gated, reference: Gated, exact: fn(f64) -> (f64, f64)) {
    pairs(exam, slot, properties[0], kernel, reference);
    for n in SIZES {
        exam.case(slot, properties[1], &format!("n={n}"), |random| {
            let x: Vec<f32> = Fill::Gaussian.numbers(n, random).iter().map(|x| x * 7.0).collect();
            let up = Fill::Gaussian.numbers(n, random);
            let mut got = Guarded::of(&x, random.below(16), CANARY);
            kernel(got.get_mut(), &up);
            got.intact()?;
            let (want, bound): (Vec<f64>, Vec<f64>) = (0..n)
                .map(|i| {
                    let (x, up) = (f64::from(x[i]), f64::from(up[i]));
                    let (gate, relative) = exact(x);
                    (gate * up, relative * (gate * up).abs() + bounds::GATE_CLAMP * (x * up).abs())
                })
                .unzip();
            within(got.get(), &want, |i| bound[i])
        });
    }
}

/// Bit-equality of an operation that overwrites its first operand.
fn pairs(exam: &mut Exam, slot: &str, property: &'static str, kernel: Gated, reference: Gated) {
    for (n, fill) in SIZES.iter().flat_map(|&n| Fill::ALL.map(|fill| (n, fill))) {
        exam.case(slot, property, &format!("n={n} fill={}", fill.name()), |random| {
            let a = fill.numbers(n, random);
            let b = Guarded::of(&fill.numbers(n, random), random.below(16), f32::NAN);
            let mut got = Guarded::of(&a, random.below(16), CANARY);
            kernel(got.get_mut(), b.get());
            let mut want = a;
            reference(&mut want, b.get());
            got.intact()?;
            equal(got.get(), &want)
        });
    }
}

/// Examines the quantization of activations.
pub fn quantize(exam: &mut Exam, kernel: fn(&[f32], &mut Q8RowMut<'_>)) {
    for (blocks, fill) in [0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 33].iter().flat_map(|&b| Fill::ALL.map(|fill| (b, fill))) {
        let k = blocks * Q8_BLOCK;
        let sizes = format!("k={k} fill={}", fill.name());
        exam.case("quantize", "quantize_equals_reference", &sizes, |random| {
            let mut x = fill.numbers(k, random);
            put_ties(&mut x, fill);
            let got = Quantized::by(kernel, &x, random.below(16))?;
            let want = Quantized::by(crate::quantize::quantize, &x, 0)?;
            equal_integers(got.q.get(), want.q.get()).map_err(|fault| fault.of("q"))?;
            equal_integers(got.sum.get(), want.sum.get()).map_err(|fault| fault.of("sum"))?;
            equal(got.scale.get(), want.scale.get()).map_err(|fault| fault.of("scale"))?;
            equal(got.scaled_sum.get(), want.scaled_sum.get()).map_err(|fault| fault.of("scaled_sum"))
        });
        if matches!(fill, Fill::Gaussian | Fill::Outliers | Fill::Signs | Fill::Zeros) {
            exam.case("quantize", "quantize_is_within_half_a_step", &sizes, |random| {
                let x = fill.numbers(k, random);
                let got = Quantized::by(kernel, &x, random.below(16))?;
                let (q, scale) = (got.q.get(), got.scale.get());
                let want: Vec<f64> = (0..k).map(|i| f64::from(scale[i / Q8_BLOCK]) * f64::from(q[i])).collect();
                // Half a step, and the roundings of the inverse, the product and the scale, each of up to 127 steps.
                within(&x, &want, |i| f64::from(scale[i / Q8_BLOCK]) * (0.5 + 3.0 * 127.0 * bounds::U))
            });
        }
    }
}

/// Puts numbers that lie half way between two steps into ordinary rows: the largest is 127 steps of 1.
fn put_ties(x: &mut [f32], fill: Fill) {
    if fill == Fill::Gaussian {
        for (block, x) in x.chunks_exact_mut(Q8_BLOCK).enumerate().filter(|(block, _)| block % 2 == 1) {
            for (i, x) in x.iter_mut().enumerate() {
                *x = (i as f32 - 16.0) + 0.5;
            }
            x[block % Q8_BLOCK] = 127.0;
        }
    }
}

/// One row of quantized activations.
#[derive(Debug)]
pub(super) struct Quantized {
    pub(super) q: Guarded<i8>,
    pub(super) scale: Guarded<f32>,
    pub(super) scaled_sum: Guarded<f32>,
    pub(super) sum: Guarded<i16>,
}

impl Quantized {
    fn by(kernel: fn(&[f32], &mut Q8RowMut<'_>), x: &[f32], shift: usize) -> Result<Self, Fault> {
        let blocks = x.len() / Q8_BLOCK;
        let x = Guarded::of(x, shift, f32::NAN);
        let mut row = Quantized {
            q: Guarded::new(x.get().len(), shift, -128),
            scale: Guarded::new(blocks, shift, CANARY),
            scaled_sum: Guarded::new(blocks, shift, CANARY),
            sum: Guarded::new(2 * blocks, shift, i16::MIN),
        };
        let (q, scale, scaled_sum, sum) = (row.q.get_mut(), row.scale.get_mut(), row.scaled_sum.get_mut(), row.sum.get_mut());
        kernel(x.get(), &mut Q8RowMut { q, scale, scaled_sum, sum });
        row.q.intact()?;
        row.scale.intact()?;
        row.scaled_sum.intact()?;
        row.sum.intact()?;
        Ok(row)
    }
}

/// Examines the widening of a row of weights.
pub fn embed_row(exam: &mut Exam, kernel: fn(Format, &[u8], &mut [f32])) {
    for format in Format::ALL {
        let sizes: &[usize] = if format.is_float() { &SIZES } else { &[0, 1, 2, 3, 5, 8, 9, 17] };
        for (&n, fill) in sizes.iter().flat_map(|n| WeightFill::ALL.map(|fill| (n, fill))) {
            let k = n * format.block_len();
            exam.case("embed_row", "embed_row_equals_reference", &format!("{format} k={k} fill={}", fill.name()), |random: &mut Random| {
                let row = Guarded::of(&fill.rows(format, 1, k, random), random.below(16), 0xff);
                let mut got = Guarded::new(k, random.below(16), CANARY);
                kernel(format, row.get(), got.get_mut());
                let mut want = vec![0.0; k];
                dequantize::dequantize_row(format, row.get(), &mut want);
                got.intact()?;
                equal(got.get(), &want)
            });
        }
    }
}
