//! Whether the BLAS gives a product the same bits in one call and in several.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, OnceLock};

use crate::blas::bf16::Bf16;
use crate::blas::{Element, MatMut, MatRef, RoundedProducts, gemm};
use crate::tuning::TUNING;

const K: usize = 64;

/// Whether a product, by GEMM or the process's `products`, has the same bits in one call of the
/// BLAS as with a short call before the rest: BLIS 0.9.0 chooses by the size between two algorithms
/// that round differently. If not, no call is shortened for a late panel. Probes the BLAS at the
/// first call in a process; call it before time counts.
pub(super) fn short_ones_keep_bits<T: Element>(products: Option<T::Rounded>) -> bool {
    static KEEP_BITS: [OnceLock<bool>; 3] = [const { OnceLock::new() }; 3];
    *KEEP_BITS[kind::<T>(products)]
        .get_or_init(|| short_call_keeps_bits(|l, u, a2| multiply::<T>(products, l, u, a2)))
}

/// Whether a product has the same bits on all columns as on those left and right of a multiple of
/// `nb`: SGEMM of OpenBLAS 0.3.21 in its kernel for AVX2, not AVX-512, rounds differently at the
/// edges of tiles, which move with a cut. If not, rows that go by messages are not exchanged in
/// halves, as others multiply all columns at once. Probes the BLAS at the first call with this NB
/// in a process; call it before time counts.
pub(super) fn halves_keep_bits<T: Element>(products: Option<T::Rounded>, nb: usize) -> bool {
    static KEEP_BITS: Mutex<Option<HashMap<(usize, usize), bool>>> = Mutex::new(None);
    let mut known = KEEP_BITS.lock().expect("no thread panics");
    let known = known.get_or_insert_default();
    *known
        .entry((kind::<T>(products), nb))
        .or_insert_with(|| column_cuts_keep_bits(nb, |l, u, a2| multiply::<T>(products, l, u, a2)))
}

/// A number for GEMM of each type, and for products of rounded operands.
fn kind<T: Element>(products: Option<T::Rounded>) -> usize {
    if products.is_some() { 2 } else { T::PER_DOUBLE - 1 }
}

/// `A2 = A2 - L U`, as the trailing update computes it.
fn multiply<T: Element>(products: Option<T::Rounded>, l: MatRef<T>, u: MatRef<T>, a2: MatMut<T>) {
    let Some(products) = products else { return gemm(T::MINUS_ONE, l, u, T::ONE, a2) };
    let (k, cols) = (u.rows(), u.cols());
    let mut packed = vec![Bf16::default(); k * cols];
    products.pack(u, MatMut::row_major(&mut packed, k, cols, cols));
    products.multiply(l, MatRef::row_major(&packed, k, cols, cols), a2);
}

struct Sample<T> {
    rows: usize,
    cols: usize,
    l: Vec<T>,
    u: Vec<T>,
}

/// Any numbers whose sums are rounded.
fn numbers<T: Element>(len: usize, step: f64) -> Vec<T> {
    (1..=len).map(|i| T::rounded((i as f64 * step).fract() - 0.5)).collect()
}

impl<T: Element> Sample<T> {
    fn new(rows: usize, cols: usize) -> Self {
        let (l, u) = (numbers(rows * K, 2f64.sqrt()), numbers(K * cols, 3f64.sqrt()));
        Self { rows, cols, l, u }
    }

    /// The product by one call of `multiply` for each of these blocks of A2.
    fn product(
        &self,
        blocks: &[(Range<usize>, Range<usize>)],
        multiply: impl Fn(MatRef<T>, MatRef<T>, MatMut<T>),
    ) -> Vec<T> {
        let Self { rows, cols, .. } = *self;
        let mut a2 = numbers(rows * cols, 5f64.sqrt());
        let l = MatRef::row_major(&self.l, rows, K, K);
        let u = MatRef::row_major(&self.u, K, cols, cols);
        for (rows_here, cols_here) in blocks {
            let a2 = MatMut::row_major(&mut a2, rows, cols, cols);
            multiply(
                l.block(rows_here.clone(), 0..K),
                u.block(0..K, cols_here.clone()),
                a2.block(rows_here.clone(), cols_here.clone()),
            );
        }
        a2
    }
}

/// Whether `multiply`, which computes `A2 = A2 - L U`, gives the same bits with a short call first.
fn short_call_keeps_bits<T: Element>(multiply: impl Fn(MatRef<T>, MatRef<T>, MatMut<T>)) -> bool {
    let (short, cols) = (TUNING.product_rows_while_passing_on, 512);
    let rows = TUNING.product_rows_between_messages;
    let sample = Sample::new(rows, cols);
    let whole = sample.product(&[(0..rows, 0..cols)], &multiply);
    whole == sample.product(&[(0..short, 0..cols), (short..rows, 0..cols)], &multiply)
}

/// Whether `multiply` gives the same bits with the columns cut at a multiple of `nb`.
fn column_cuts_keep_bits<T: Element>(
    nb: usize,
    multiply: impl Fn(MatRef<T>, MatRef<T>, MatMut<T>),
) -> bool {
    /// The cuts that are tried, and the least columns of a part: fewer do not occur, and the BLAS
    /// has other kernels for small products.
    const CUTS: usize = 3;
    const LEAST: usize = 256;
    let first = LEAST.next_multiple_of(nb);
    let cols = first + CUTS * nb + LEAST;
    let grain = TUNING.product_row_grain;
    let sample = Sample::new(2 * grain, cols);
    // A kernel may have a different path for each number of rows that are left of its tile.
    let keeps_bits = |rows: usize| {
        let whole = sample.product(&[(0..rows, 0..cols)], &multiply);
        let parts = |cut: usize| [(0..rows, 0..cut), (0..rows, cut..cols)];
        (0..CUTS).all(|k| whole == sample.product(&parts(first + k * nb), &multiply))
    };
    (grain..grain + 4).chain((grain + 4..2 * grain).step_by(4)).all(keeps_bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blas::library::use_one_thread;

    /// The product on one column, summed forwards or backwards: enough to show the order.
    fn by_hand(l: MatRef, u: MatRef, mut a2: MatMut, column: usize, backwards: bool) {
        for i in 0..l.rows() {
            let term = |k: usize| l.at(i, k) * u.at(k, column);
            let sum: f64 = if backwards {
                (0..l.cols()).rev().map(term).sum()
            } else {
                (0..l.cols()).map(term).sum()
            };
            a2.row_mut(i)[column] -= sum;
        }
    }

    /// Sums in another order where there are few rows, as BLIS does; and one that does not.
    #[test]
    fn a_blas_that_rounds_short_products_differently_is_known() {
        assert!(short_call_keeps_bits(|l, u, a2| by_hand(l, u, a2, 0, false)));
        assert!(!short_call_keeps_bits(|l, u, a2| {
            let is_short = l.rows() <= TUNING.product_rows_while_passing_on;
            by_hand(l, u, a2, 0, is_short);
        }));
        use_one_thread();
        assert!(short_ones_keep_bits::<f64>(None), "the BLAS of the tests does");
        assert!(short_ones_keep_bits::<f32>(None), "the BLAS of the tests does");
    }

    /// A product that sums the last column of a block in another order, and one that does not.
    #[test]
    fn a_blas_that_rounds_at_cuts_differently_is_known() {
        for nb in [1, 64, 300] {
            let on_all = |l: MatRef, u: MatRef, mut a2: MatMut, backwards: bool| {
                let last = u.cols() - 1;
                (0..last).for_each(|column| by_hand(l, u, a2.rb(), column, false));
                by_hand(l, u, a2, last, backwards);
            };
            assert!(column_cuts_keep_bits(nb, |l, u, a2| on_all(l, u, a2, false)), "{nb}");
            assert!(!column_cuts_keep_bits(nb, |l, u, a2| on_all(l, u, a2, true)), "{nb}");
        }
        use_one_thread();
        assert!(halves_keep_bits::<f64>(None, 192), "the BLAS of the tests does");
    }
}
