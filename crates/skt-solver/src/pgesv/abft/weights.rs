//! The weights of the checksums, and how lost columns are decoded with them.
//!
//! Any d process columns that hold the matrix can be decoded from any d checksums, if each d x d
//! part of the weights is invertible. Decoding multiplies an error of a checksum by at most the
//! norm of the inverse, whose largest value is the amplification:
//!
//! ```text
//! m     weights                                                amplification, Q = 4, 16, 32
//! 1     1                                                        1
//! 2     points on a half circle, as far apart from each other
//!       and from both axes as possible                           2.7, 8.1, 15
//! 3     random vectors, the best of many seeds                   6.3, 210, 1500
//! ```
//!
//! Vandermonde and Cauchy matrices have larger factors. All weights are multiples of 2^-24, so that
//! they do not depend on a host's mathematical library.

use std::f64::consts::PI;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// With more checksum columns, decoding amplifies rounding errors too much.
pub const MAX_CHECKSUMS: usize = 3;

const GRAIN: f64 = (1 << 24) as f64;
const SEARCH: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    of_checksums: Vec<Vec<f64>>,
}

/// How lost process columns are computed from the others: the i-th is
///
/// ```text
/// ( sum over s of  of_checksums[i][s] * checksum with[s]
/// + sum over c of  of_columns[i][c] * column c )  / divisor
/// ```
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decoding {
    pub with: Vec<usize>,
    pub of_checksums: Vec<Vec<f64>>,
    /// The factors of the process columns; 0 for lost ones.
    pub of_columns: Vec<Vec<f64>>,
    pub divisor: f64,
    /// The largest factor by which decoding increases an error of a checksum.
    pub amplification: f64,
}

impl Decoding {
    /// The process columns and factors that the `i`-th lost one is computed from; checksums last.
    pub(crate) fn terms(&self, i: usize) -> Vec<(usize, f64)> {
        let columns = &self.of_columns[i];
        let of_columns = columns.iter().copied().enumerate().filter(|(_, factor)| *factor != 0.0);
        let of_checksums = self.with.iter().map(|s| columns.len() + s);
        of_columns.chain(of_checksums.zip(self.of_checksums[i].iter().copied())).collect()
    }
}

/// The adjugate of a matrix of `order` rows, and its determinant. Both are exact for integers.
struct Inverse {
    order: usize,
    adjugate: [[f64; MAX_CHECKSUMS]; MAX_CHECKSUMS],
    determinant: f64,
}

impl Inverse {
    /// The inverse of the first rows and columns of `a`, which continues as the unit matrix.
    fn new(order: usize, a: [[f64; MAX_CHECKSUMS]; MAX_CHECKSUMS]) -> Self {
        let after = |i: usize, by: usize| (i + by) % 3;
        let cofactor = |i: usize, j: usize| {
            a[after(i, 1)][after(j, 1)] * a[after(i, 2)][after(j, 2)]
                - a[after(i, 1)][after(j, 2)] * a[after(i, 2)][after(j, 1)]
        };
        let adjugate = [0, 1, 2].map(|j| [0, 1, 2].map(|i| cofactor(i, j)));
        let determinant = (0..3).map(|j| a[0][j] * adjugate[j][0]).sum();
        Self { order, adjugate, determinant }
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.adjugate[..self.order].iter().map(|row| &row[..self.order])
    }

    fn norm(&self) -> f64 {
        let sums = self.rows().map(|row| row.iter().map(|value| value.abs()).sum::<f64>());
        sums.fold(0.0, f64::max) / self.determinant.abs()
    }
}

impl Weights {
    /// The weights of `m` checksums, 1 to [`MAX_CHECKSUMS`], of `q` process columns.
    pub fn new(q: usize, m: usize) -> Self {
        assert!(q > 0 && (1..=MAX_CHECKSUMS).contains(&m), "{m} checksums of {q} columns");
        match m {
            1 => Self::given(vec![vec![1.0; q]]),
            2 => Self::on_a_half_circle(q),
            _ => Self::random(q, m),
        }
    }

    /// Given weights: for each checksum those of all process columns.
    pub fn given(of_checksums: Vec<Vec<f64>>) -> Self {
        let q = of_checksums.first().expect("a checksum").len();
        assert!(q > 0 && of_checksums.iter().all(|row| row.len() == q), "a weight for each");
        Self { of_checksums }
    }

    /// The points `j pi / count` except the axes, which are the directions of lost checksums.
    fn on_a_half_circle(q: usize) -> Self {
        let count = (q + 2).next_multiple_of(2);
        let points = || (1..count).filter(|j| 2 * j != count).take(q);
        let angle = |j: usize| PI * j as f64 / count as f64;
        let row = |f: fn(f64) -> f64| points().map(|j| round(f(angle(j)))).collect();
        Self::given(vec![row(f64::cos), row(f64::sin)])
    }

    /// The best of some sets of random vectors of length 1.
    fn random(q: usize, m: usize) -> Self {
        let of_seed = |seed| {
            let mut next = normal_numbers(seed);
            let mut columns = Vec::new();
            for _ in 0..q {
                let column: Vec<f64> = (0..m).map(|_| next()).collect();
                let norm = column.iter().map(|value| value * value).sum::<f64>().sqrt();
                columns.push(column.iter().map(|value| round(value / norm)).collect::<Vec<_>>());
            }
            let row = |s: usize| columns.iter().map(|column| column[s]).collect();
            Self::given((0..m).map(row).collect())
        };
        let (mut best, mut least, mut looked_at) = (of_seed(0), f64::INFINITY, 0);
        for seed in 0.. {
            let weights = of_seed(seed);
            let mut most = 0.0f64;
            // A set that is worse in one part is dropped.
            let is_better = weights.norms().all(|norm| {
                looked_at += 1;
                most = most.max(norm);
                norm < least
            });
            if is_better {
                (best, least) = (weights, most);
            }
            if looked_at >= SEARCH {
                break;
            }
        }
        best
    }

    pub fn checksums(&self) -> usize {
        self.of_checksums.len()
    }

    pub fn columns(&self) -> usize {
        self.of_checksums[0].len()
    }

    pub fn checksum(&self, s: usize) -> &[f64] {
        &self.of_checksums[s]
    }

    /// Each process column and its weight in checksum `s`.
    pub(crate) fn terms(&self, s: usize) -> Vec<(usize, f64)> {
        self.checksum(s).iter().copied().enumerate().collect()
    }

    /// The largest [`Decoding::amplification`] over all columns and checksums that may be lost.
    #[cfg(test)]
    fn amplification(&self) -> f64 {
        self.norms().fold(0.0, f64::max)
    }

    fn norms(&self) -> impl Iterator<Item = f64> {
        let (q, m) = (self.columns(), self.checksums());
        let parts = (1..=m.min(q)).flat_map(move |d| {
            subsets(q, d).flat_map(move |lost| subsets(m, d).map(move |with| (lost.clone(), with)))
        });
        parts.map(|(lost, with)| self.invert(&lost, &with).norm())
    }

    /// The inverse of the weights of the columns `lost` in as many checksums `with`.
    fn invert(&self, lost: &[usize], with: &[usize]) -> Inverse {
        let mut part = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        for (row, &s) in part.iter_mut().zip(with) {
            row.iter_mut().zip(lost).for_each(|(value, &c)| *value = self.checksum(s)[c]);
        }
        Inverse::new(lost.len(), part)
    }

    /// How the process columns `lost` are computed from the others and some of the checksums
    /// `left`: those with the least amplification.
    pub(super) fn decoding(&self, lost: &[usize], left: &[usize]) -> Decoding {
        let choices = subsets(left.len(), lost.len());
        let choices = choices.map(|chosen| chosen.iter().map(|&i| left[i]).collect());
        let inverses = choices.map(|with: Vec<usize>| (self.invert(lost, &with), with));
        let best = inverses.min_by(|(a, _), (b, _)| a.norm().total_cmp(&b.norm()));
        let (inverse, with) = best.expect("as many checksums as lost columns");
        let of_checksums: Vec<Vec<f64>> = inverse.rows().map(<[f64]>::to_vec).collect();
        let of_column = |of: &Vec<f64>, c: usize| {
            let terms = of.iter().zip(&with).map(|(of, &s)| -of * self.checksum(s)[c]);
            if lost.contains(&c) { 0.0 } else { terms.sum() }
        };
        let of_columns = of_checksums
            .iter()
            .map(|of| (0..self.columns()).map(|c| of_column(of, c)).collect())
            .collect();
        let (divisor, amplification) = (inverse.determinant, inverse.norm());
        Decoding { with, of_checksums, of_columns, divisor, amplification }
    }

    /// How process column `target` (Q + s for checksum s) is computed from the others without those
    /// of `lost`: the process columns and their factors, and the divisor of the sum.
    pub(super) fn recomputation(&self, target: usize, lost: &[usize]) -> (Vec<(usize, f64)>, f64) {
        let (q, m) = (self.columns(), self.checksums());
        let left: Vec<usize> =
            (0..m).filter(|s| q + s != target && !lost.contains(&(q + s))).collect();
        let mut unknown: Vec<usize> = lost.iter().copied().filter(|&col| col < q).collect();
        if target < q {
            unknown.push(target);
            let decoding = self.decoding(&unknown, &left);
            return (decoding.terms(unknown.len() - 1), decoding.divisor);
        }
        // The sum of all columns, in which lost ones are decoded.
        let (weights, decoding) = (self.checksum(target - q), self.decoding(&unknown, &left));
        let own = |col: usize| if lost.contains(&col) { 0.0 } else { weights[col] };
        let mut factors: Vec<f64> = (0..q).map(|col| own(col) * decoding.divisor).collect();
        factors.resize(q + m, 0.0);
        for (i, &col) in unknown.iter().enumerate() {
            for (from, factor) in decoding.terms(i) {
                factors[from] += weights[col] * factor;
            }
        }
        let terms = factors.into_iter().enumerate().filter(|&(_, factor)| factor != 0.0);
        (terms.collect(), decoding.divisor)
    }

    /// The differences between checksums and sums that a wrong number in process column `col` (Q +
    /// s for checksum s) causes, up to a factor.
    pub(super) fn direction(&self, col: usize) -> Vec<f64> {
        let of = |s: usize| match col.checked_sub(self.columns()) {
            None => self.checksum(s)[col],
            Some(checksum) => f64::from(u8::from(s == checksum)),
        };
        (0..self.checksums()).map(of).collect()
    }
}

fn round(value: f64) -> f64 {
    (value * GRAIN).round() / GRAIN
}

/// Nearly normally distributed numbers: sums of twelve uniform ones.
fn normal_numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut random = SplitMix64::seed_from_u64(seed);
    move || {
        let mut uniform = || (random.next_u64() >> 32) as f64 / (1u64 << 32) as f64;
        (0..12).fold(-6.0, |sum, _| sum + uniform())
    }
}

/// All sets of `size` of the numbers below `count`, each in order.
fn subsets(count: usize, size: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut next = (size <= count).then(|| (0..size).collect::<Vec<_>>());
    std::iter::from_fn(move || {
        let this = next.clone()?;
        let movable = (0..size).rev().find(|&i| this[i] < count - size + i);
        next = movable.map(|i| {
            let mut following = this.clone();
            (i..size).for_each(|k| following[k] = this[i] + 1 + k - i);
            following
        });
        Some(this)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_distinct_subsets_are_listed() {
        assert_eq!(subsets(4, 2).count(), 6);
        assert_eq!(subsets(7, 3).count(), 35);
        assert_eq!(subsets(3, 3).collect::<Vec<_>>(), [[0, 1, 2]]);
        assert_eq!(subsets(2, 3).count(), 0);
        assert_eq!(subsets(5, 0).count(), 1);
    }

    fn check(weights: &Weights, tolerance: f64) {
        let (q, m) = (weights.columns(), weights.checksums());
        let values: Vec<f64> = (0..q).map(|c| (c * c % 7) as f64 - 3.0).collect();
        let sum =
            |s: usize| weights.checksum(s).iter().zip(&values).map(|(w, v)| w * v).sum::<f64>();
        for (d, gone) in (1..=m.min(q)).flat_map(|d| (0..=m - d).map(move |gone| (d, gone))) {
            for (lost, gone) in
                subsets(q, d).flat_map(|lost| subsets(m, gone).map(move |s| (lost.clone(), s)))
            {
                let left: Vec<usize> = (0..m).filter(|s| !gone.contains(s)).collect();
                let decoding = weights.decoding(&lost, &left);
                for (i, &c) in lost.iter().enumerate() {
                    let of_checksums = decoding
                        .with
                        .iter()
                        .zip(&decoding.of_checksums[i])
                        .map(|(&s, of)| of * sum(s));
                    let of_columns =
                        decoding.of_columns[i].iter().zip(&values).map(|(of, value)| of * value);
                    let got = of_checksums.chain(of_columns).sum::<f64>() / decoding.divisor;
                    let error = (got - values[c]).abs();
                    assert!(error <= tolerance, "{c} of {lost:?} without {gone:?}: off by {error}");
                }
            }
        }
    }

    #[test]
    fn lost_columns_come_back() {
        for (q, m) in [(1, 1), (5, 1), (1, 2), (2, 2), (7, 2), (1, 3), (2, 3), (6, 3), (11, 3)] {
            check(&Weights::new(q, m), 1e-11);
        }
    }

    /// Also without lost columns, as long as one more checksum is left.
    #[test]
    fn process_column_is_decoded_from_the_remaining_ones() {
        for (q, m) in [(1, 1), (3, 1), (2, 2), (7, 2), (1, 3), (2, 3), (6, 3)] {
            let weights = Weights::new(q, m);
            let values: Vec<f64> = (0..q).map(|c| (c * c % 7) as f64 - 3.0).collect();
            let sum =
                |s: usize| weights.checksum(s).iter().zip(&values).map(|(w, v)| w * v).sum::<f64>();
            let all: Vec<f64> = values.iter().copied().chain((0..m).map(sum)).collect();
            for lost in (0..m).flat_map(|d| subsets(q + m, d)) {
                for target in (0..q + m).filter(|target| !lost.contains(target)) {
                    let (terms, divisor) = weights.recomputation(target, &lost);
                    assert!(!terms.is_empty() || all[target] == 0.0);
                    assert!(terms.iter().all(|(from, _)| *from != target && !lost.contains(from)));
                    let got = terms.iter().map(|&(from, by)| by * all[from]).sum::<f64>() / divisor;
                    let error = (got - all[target]).abs();
                    assert!(error <= 1e-11, "{target} without {lost:?}: off by {error}");
                }
            }
        }
    }

    #[test]
    fn integers_come_back_exactly() {
        check(&Weights::given(vec![vec![1.0; 3], vec![1.0, 2.0, 3.0]]), 0.0);
        check(&Weights::given(vec![vec![1.0, 1.0], vec![1.0, 2.0], vec![2.0, 1.0]]), 0.0);
    }

    /// The figures of docs/abft.md.
    #[test]
    fn amplification_matches_its_documentation() {
        let at_most = [
            (1, [1.0, 1.0, 1.0, 1.0, 1.0]),
            (2, [2.8, 6.4, 8.2, 15.4, 33.0]),
            (3, [6.4, 64.0, 210.0, 1600.0, 2e4]),
        ];
        for (m, bounds) in at_most {
            for (q, bound) in [4, 11, 16, 32, 64].into_iter().zip(bounds) {
                let is = Weights::new(q, m).amplification();
                println!("m = {m}, Q = {q}: {is:.3}");
                assert!(is <= bound && is >= bound / 3.0, "m = {m}, Q = {q}: {is}, not {bound}");
            }
        }
    }

    #[test]
    fn weights_are_the_same_every_time() {
        assert_eq!(Weights::new(9, 3), Weights::new(9, 3));
        let weights = Weights::new(9, 2);
        assert!(
            weights
                .checksum(0)
                .iter()
                .chain(weights.checksum(1))
                .all(|w| (w * GRAIN).fract() == 0.0)
        );
    }
}
