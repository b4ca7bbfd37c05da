//! Embedding rows.

use std::arch::x86_64::*;

use half::f16;
use rml_kernels_ref::dequantize::dequantize_row;
use rml_kernels_ref::format::Format;

use super::lanes::store;

pub(super) fn embed_row(format: Format, row: &[u8], out: &mut [f32]) {
    assert_eq!(format.row_bytes(out.len()), Some(row.len()), "a row of {} in {format}", out.len());
    // SAFETY: installed.
    unsafe {
        match format {
            Format::Q8_0 => q8_0(row, out),
            Format::Q4_0 => q4::<2>(row, out),
            Format::Q4_1 => q4::<4>(row, out),
            // A row a token is a trifle beside its products, so the rarer formats are left to the reference.
            _ => dequantize_row(format, row, out),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.as_chunks::<34>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let d = _mm256_set1_ps(half(block));
        for (q, out) in block[2..].as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: 8 readable bytes.
            let q = unsafe { _mm_loadl_epi64(q.as_ptr().cast()) };
            store(_mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q))), out);
        }
    }
}

/// `Q4_0` and `Q4_1`, told apart by the bytes before the quants.
#[target_feature(enable = "avx2,fma,f16c")]
fn q4<const HEAD: usize>(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(HEAD + 16).zip(out.as_chunks_mut::<32>().0) {
        let d = _mm256_set1_ps(half(block));
        let min = if HEAD == 4 { Some(_mm256_set1_ps(half(&block[2..]))) } else { None };
        for (i, q) in block[HEAD..].as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: 8 readable bytes.
            let q = _mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(q.as_ptr().cast()) });
            for (at, q) in [(8 * i, _mm256_and_si256(q, _mm256_set1_epi32(15))), (8 * i + 16, _mm256_srli_epi32::<4>(q))] {
                let weight = match min {
                    Some(min) => _mm256_add_ps(_mm256_mul_ps(d, _mm256_cvtepi32_ps(q)), min),
                    None => _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(8)))),
                };
                store(weight, &mut out[at..][..8]);
            }
        }
    }
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}
