use proptest::prelude::*;

use super::*;

/// All parities of a stripe.
fn encode(codec: &Codec, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    (0..codec.parities())
        .map(|i| {
            let mut parity = vec![0; data[0].len()];
            for (j, block) in data.iter().enumerate() {
                fma(codec.encode_coef(i, j), block, &mut parity);
            }
            parity
        })
        .collect()
}

/// Overwrites the named blocks with 0xff, so that a plan that reads one is caught, and follows the
/// plan.
fn lose_and_rebuild(
    codec: &Codec,
    data: &[Vec<u8>],
    parity: &[Vec<u8>],
    lost_data: &[usize],
    lost_parity: &[usize],
) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let plan = codec.rebuild_plan(lost_data, lost_parity).unwrap();
    let (mut data, mut parity) = (data.to_vec(), parity.to_vec());
    lost_data.iter().for_each(|&j| data[j].fill(0xff));
    lost_parity.iter().for_each(|&i| parity[i].fill(0xff));
    let survivors = (data.clone(), parity.clone());
    for rebuild in &plan.data {
        let mut block = vec![0; data[0].len()];
        let parts = rebuild.from_data.iter().zip(&survivors.0);
        for (&coef, part) in parts.chain(rebuild.from_parity.iter().zip(&survivors.1)) {
            fma(coef, part, &mut block);
        }
        data[rebuild.block] = block;
    }
    let encoded = encode(codec, &data);
    for &i in &plan.parities {
        parity[i].clone_from(&encoded[i]);
    }
    (data, parity)
}

fn blocks(count: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let byte = |j: usize, b: usize| {
        let x = seed ^ ((j * 7919 + b) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
    };
    (0..count).map(|j| (0..bytes).map(|b| byte(j, b)).collect()).collect()
}

/// Tests a code with every subset of lost blocks: up to `parities` are rebuilt, more are refused.
/// Returns the number of subsets rebuilt.
fn every_erasure(codec: &Codec) -> usize {
    let (k, m) = (codec.data(), codec.parities());
    let data = blocks(k, 67, 5);
    let parity = encode(codec, &data);
    let mut patterns = 0;
    for mask in 0u32..1 << (k + m) {
        let lost: Vec<usize> = (0..k + m).filter(|b| mask >> b & 1 == 1).collect();
        let lost_data: Vec<usize> = lost.iter().copied().filter(|&b| b < k).collect();
        let lost_parity: Vec<usize> = lost.iter().filter(|&&b| b >= k).map(|b| b - k).collect();
        if lost.len() > m {
            let refused = codec.rebuild_plan(&lost_data, &lost_parity);
            assert!(matches!(refused, Err(CodecError::TooManyLost { .. })), "{codec:?} {lost:?}");
            continue;
        }
        let back = lose_and_rebuild(codec, &data, &parity, &lost_data, &lost_parity);
        assert_eq!(back, (data.clone(), parity.clone()), "{codec:?} {lost:?}");
        patterns += 1;
    }
    patterns
}

#[test]
fn exact_codes_survive_all_losses_up_to_m_and_refuse_others() {
    let mut patterns = 0;
    for n in 2..=10 {
        for m in 1..=n / 2 {
            patterns += every_erasure(&Codec::new(CodecKind::ReedSolomon, n - m, m).unwrap());
        }
        patterns += every_erasure(&Codec::new(CodecKind::Xor, n - 1, 1).unwrap());
    }
    println!("{patterns} erasure patterns");
}

#[test]
fn one_parity_of_reed_solomon_is_xor() {
    let data = blocks(9, 100, 1);
    let parity = |kind| encode(&Codec::new(kind, 9, 1).unwrap(), &data);
    assert_eq!(parity(CodecKind::ReedSolomon), parity(CodecKind::Xor));
}

proptest! {
    #[test]
    fn wide_stripes_survive_random_losses(
        k in 1usize..=200, m in 1usize..=55, seed: u64, pick: u64,
    ) {
        let codec = Codec::new(CodecKind::ReedSolomon, k, m).unwrap();
        let data = blocks(k, 19, seed);
        let parity = encode(&codec, &data);
        let mut order: Vec<usize> = (0..k + m).collect();
        order.sort_by_key(|&b| (b as u64 ^ pick).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (lost_data, lost_parity): (Vec<usize>, Vec<usize>) =
            order[..m].iter().partition(|&&b| b < k);
        let lost_parity: Vec<usize> = lost_parity.iter().map(|b| b - k).collect();
        let back = lose_and_rebuild(&codec, &data, &parity, &lost_data, &lost_parity);
        prop_assert_eq!(back, (data, parity));
    }

    /// Each rebuilt value is the true one up to a few units in the last place of the largest term
    /// of its sum.
    #[test]
    fn sum_rebuilds_up_to_rounding(
        stripe in prop::collection::vec(prop::collection::vec(-1e3f64..1e3, 5), 1..12),
        lost in 0usize..12,
    ) {
        let codec = Codec::new(CodecKind::Sum, stripe.len(), 1).unwrap();
        let lost = lost % stripe.len();
        let data: Vec<Vec<u8>> =
            stripe.iter().map(|b| bytemuck::cast_slice(b).to_vec()).collect();
        let parity = encode(&codec, &data);
        let (back, _) = lose_and_rebuild(&codec, &data, &parity, &[lost], &[]);
        let tolerance = 1e3 * (stripe.len() * stripe.len()) as f64 * f64::EPSILON;
        for (got, want) in back[lost].chunks_exact(8).zip(&stripe[lost]) {
            let got = f64::from_ne_bytes(got.try_into().unwrap());
            prop_assert!((got - want).abs() <= tolerance, "{got} for {want}");
        }
        let (_, parity_back) = lose_and_rebuild(&codec, &data, &parity, &[], &[0]);
        prop_assert_eq!(parity_back, parity);
    }
}

#[test]
fn sum_is_not_bit_exact() {
    let codec = Codec::new(CodecKind::Sum, 2, 1).unwrap();
    let data: Vec<Vec<u8>> = [0.1f64, 1e16].iter().map(|x| x.to_ne_bytes().to_vec()).collect();
    let (back, _) = lose_and_rebuild(&codec, &data, &encode(&codec, &data), &[0], &[]);
    assert_ne!(back[0], data[0]);
}

#[test]
fn shapes_out_of_range_are_refused() {
    for (kind, k, m) in [
        (CodecKind::Xor, 3, 2),
        (CodecKind::Sum, 3, 2),
        (CodecKind::Xor, 0, 1),
        (CodecKind::ReedSolomon, 3, 0),
        (CodecKind::ReedSolomon, 0, 1),
        (CodecKind::ReedSolomon, 200, 56),
        (CodecKind::ReedSolomon, usize::MAX, 1),
    ] {
        let refused = Codec::new(kind, k, m);
        assert!(matches!(refused, Err(CodecError::Shape { .. })), "{kind} {k} {m}");
    }
    assert!(Codec::new(CodecKind::ReedSolomon, 200, 55).is_ok());
    assert!(Codec::new(CodecKind::Xor, 1, 0).is_ok(), "a block alone");
}

#[test]
fn bad_indices_are_refused() {
    let codec = Codec::new(CodecKind::ReedSolomon, 4, 2).unwrap();
    let bad = |what, index, count| Err(CodecError::BadIndex { what, index, count });
    assert_eq!(codec.rebuild_plan(&[4], &[]), bad("data", 4, 4));
    assert_eq!(codec.rebuild_plan(&[1, 1], &[]), bad("data", 1, 4));
    assert_eq!(codec.rebuild_plan(&[], &[2]), bad("parity", 2, 2));
}

#[test]
fn names_parse_and_print() {
    for kind in CodecKind::ALL {
        assert_eq!(CodecKind::named(kind.name()), Some(kind));
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
    }
    assert_eq!(CodecKind::named("raid"), None);
}
