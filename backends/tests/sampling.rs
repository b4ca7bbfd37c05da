//! Sampling's slots: every backend that runs here against `ref`, bit for bit.

use proptest::prelude::*;
use rml_backends::{CpuFeatures, KernelTable, Registry};
use rml_kernels_ref::sampling as reference;
use std::io::Write;

/// A table of each backend but `ref`.
fn tables() -> Vec<(&'static str, KernelTable)> {
    let registry = Registry::new(CpuFeatures::detect("").unwrap());
    let names = registry.backends().iter().filter(|r| r.refusal.is_none()).map(|r| r.backend.name());
    let tables: Vec<_> = names.filter(|n| *n != "ref").map(|n| (n, registry.table_of(n).unwrap())).collect();
    if tables.is_empty() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: nothing but ref runs here");
    }
    tables
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Numbers of one kind: spread out, from a small set, or any bits at all.
fn numbers() -> impl Strategy<Value = Vec<f32>> {
    let n = prop_oneof![0..20_usize, 60..70_usize, 120..300_usize, Just(4096_usize)];
    (n, 0..4).prop_flat_map(|(n, kind)| {
        let number = match kind {
            0 => (-30.0..30.0_f32).boxed(),
            1 => prop::sample::select(vec![0.0, -0.0, 1.0, -1.0, f32::MAX, f32::MIN, 1e-40]).boxed(),
            2 => prop::sample::select(vec![-0.0, f32::NEG_INFINITY, -2.0]).boxed(),
            _ => any::<u32>().prop_map(f32::from_bits).boxed(),
        };
        prop::collection::vec(number, n)
    })
}

/// Sizes about those of registers and blocks.
const SIZES: [usize; 13] = [1, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 129, 200];

#[test]
fn what_is_not_finite_is_seen_wherever_it_stands() {
    for (name, table) in tables() {
        for n in SIZES {
            // Finite, though no sum of them is.
            let mut x = vec![f32::MAX; n];
            let mut out = vec![0.0; n.div_ceil(reference::BLOCK)];
            assert!(table.block_max.get()(&x, &mut out), "{name}: {n}");
            for i in 0..n {
                for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    x[i] = odd;
                    assert!(!table.block_max.get()(&x, &mut out), "{name}: {odd} at {i} of {n}");
                }
                x[i] = if i % 2 == 0 { 0.0 } else { f32::MAX };
            }
        }
    }
}

#[test]
fn every_number_of_hits_in_a_block_is_found() {
    for (name, table) in tables() {
        for n_hits in 0..=64 {
            for stride in [1, 5, 37] {
                let mut x = vec![-1.0; 64 + 64 + 9]; // two blocks and an end
                (0..n_hits).for_each(|i| x[64 + i * stride % 64] = 1.0);
                let want: Vec<u32> = (0..x.len() as u32).filter(|&i| x[i as usize] == 1.0).collect();
                let mut found = vec![0; x.len()];
                let n = table.at_least.get()(&x, 1.0, &mut found);
                assert_eq!(found[..n], want, "{name}");
            }
        }
    }
}

#[test]
fn halves_of_a_unit_go_to_the_even_neighbour() {
    let unit = 1.0 / (1_u64 << reference::FIXED_BITS) as f32;
    let halves: Vec<f32> = (0..200).map(|i| i as f32 * 0.5 * unit).chain([1.0, 1.999, f32::MIN_POSITIVE, 1e-40]).collect();
    for (name, table) in tables() {
        for scale in [1.0, 0.5, 0.25, 0.75] {
            for n in 1..=halves.len() {
                let x = &halves[n - 1..];
                assert_eq!(table.weight_sum.get()(x, scale), reference::weight_sum(x, scale), "{name}: {n} at {scale}");
                assert_eq!(table.weight_sum.get()(&x[..1], scale), reference::fixed(x[0] * scale), "{name}: {} at {scale}", x[0]);
            }
        }
    }
}

#[test]
fn a_signaling_nan_hides_nothing() {
    for (name, table) in tables() {
        for at in 0..32 {
            for nan in (0..32).filter(|nan| *nan != at) {
                let mut x = [0.0; 32];
                (x[at], x[nan]) = (5.0, f32::from_bits(0x7fa0_0000));
                let mut found = [0; 32];
                assert_eq!(table.at_least.get()(&x, 5.0, &mut found), 1, "{name}: {at} beside {nan}");
                assert_eq!(found[0], at as u32, "{name}: {at} beside {nan}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn block_max_and_at_least_are_the_reference(x in numbers(), offset in 0..3_usize, pick in any::<prop::sample::Index>()) {
        let x = &x[offset.min(x.len())..]; // not aligned
        let n_blocks = x.len().div_ceil(reference::BLOCK);
        let mut want = vec![f32::NAN; n_blocks];
        let finite = reference::block_max(x, &mut want);
        prop_assert_eq!(finite, x.iter().all(|x| x.is_finite()));
        let threshold = if x.is_empty() { 0.0 } else { x[pick.index(x.len())] };
        let mut want_found = vec![0; x.len()];
        let n_want = reference::at_least(x, threshold, &mut want_found);
        for (name, table) in tables() {
            let mut got = vec![f32::NAN; n_blocks + 1]; // and a canary
            prop_assert_eq!(table.block_max.get()(x, &mut got[..n_blocks]), finite, "{}", name);
            prop_assert!(got[n_blocks].is_nan());
            prop_assert_eq!(bits(&got[..n_blocks]), bits(&want), "{}", name);

            for spare in [0, 5] {
                let mut found = vec![0; x.len() + spare];
                let n = table.at_least.get()(x, threshold, &mut found);
                prop_assert_eq!(&found[..n], &want_found[..n_want], "{}", name);
            }
        }
    }

    #[test]
    fn weights_and_their_sums_are_the_reference(x in numbers(), best in -10.0..30.0_f32, sharpness in prop_oneof![0.1..10.0_f32, Just(f32::MAX)]) {
        let mut want = vec![f32::NAN; x.len()];
        reference::exp_weights(&x, best, sharpness, &mut want);
        // Sums are of weights up to 2, so take what is within.
        let weights: Vec<f32> = want.iter().map(|&w| if w < 2.0 { w } else { 0.0 }).collect();
        for (name, table) in tables() {
            let mut got = vec![f32::NAN; x.len()];
            table.exp_weights.get()(&x, best, sharpness, &mut got);
            let same = want.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
            prop_assert!(same, "{} {:?} is not {:?}", name, got, want);
            for scale in [1.0, 0.37, 0.0] {
                prop_assert_eq!(table.weight_sum.get()(&weights, scale), reference::weight_sum(&weights, scale), "{}", name);
            }
        }
    }
}
