//! Panels of floats, factored without pivoting.
//!
//! The rows of the diagonal block, of which each rank of the process column has some, are gathered
//! on all of them, as rows of U are. Each factors it, and solves for its own rows of L2:
//!
//! ```text
//! L1 U1 = A11                on all ranks of the process column, the same
//! L2    = A21 U1^-1          this rank's rows
//! ```

use std::ops::Range;

use skt_host::phases::PanelParts;

use super::events::SolverEvents;
use super::exchange::RowExchange;
use super::factored::Factored;
use super::guard::Background;
use super::local::Local;
use super::panel::{self, Layout};
use super::product::narrow_parts;
use super::{LocalShape, Params, SolveError, Solver, Workspace, memory_error};
use crate::blas::{
    Element, MatMut, MatRef, copy, gemm, solve_unit_lower, solve_upper_from_right, transpose,
};
use crate::grid::{Cyclic, Grid};
use crate::pfact::pivot::SharedCandidates;
use crate::swap::Plan;
use crate::team::Team;
use crate::work::{self, Work};
use skt_comm::PageBuf;

/// Columns up to which a diagonal block is factored column by column.
const FEW_COLUMNS: usize = 16;

impl Factored for f32 {
    const KEEPS_L: bool = true;

    /// Memory for the diagonal block.
    type Space = PageBuf;

    fn space_doubles(params: &Params, _: Cyclic, _: usize) -> usize {
        let nb = params.widest_panel();
        Self::doubles(nb.saturating_mul(nb))
    }

    fn space(
        params: &Params,
        rows: Cyclic,
        myrow: usize,
        _: Option<SharedCandidates>,
    ) -> Result<Self::Space, SolveError> {
        PageBuf::new(Self::space_doubles(params, rows, myrow)).map_err(memory_error("the panel"))
    }

    unsafe fn factor(
        space: &mut Self::Space,
        exchange: &mut RowExchange,
        local: &Local<Self>,
        layout: &Layout<Self>,
        cols: Range<usize>,
        message: &mut [f64],
    ) -> Result<PanelParts, SolveError> {
        let &Layout { j, jb, below, rows_below, .. } = layout;
        work::begins(Work::Panel { rows: rows_below, jb, p: local.grid.p });
        let (head, ipiv) = layout.head_and_ipiv(message);
        // No row moves: row j + i is the i-th pivot row.
        ipiv.iter_mut().enumerate().for_each(|(i, pivot)| *pivot = (j + i) as f64);
        let plan = Plan::new(j, ipiv, local.rows, local.grid.myrow);
        let mut block =
            MatMut::row_major(&mut Self::from_doubles_mut(space)[..jb * jb], jb, jb, jb);
        let take = |i: usize, row: &[f32]| block.row_mut(i).copy_from_slice(row);
        // SAFETY: the caller's promise.
        unsafe { exchange.gather(local, layout, &plan, cols.clone(), take) }?;
        // A pivot that is lost in the rounding of the block is as useless as 0.
        let tiny = largest(block.as_ref()) * Self::EPSILON;
        match factor_block(block.rb(), tiny) {
            Ok(()) => panel::mark_sound(head, j),
            Err(Broken { column, pivot }) => {
                panel::mark_broken(head, j + column, pivot.into());
                return Ok(PanelParts::default());
            }
        }
        let (l1, l2) = layout.l1_and_l2(message);
        transpose::copy(block.as_ref(), l1);
        // SAFETY: the caller's promise.
        let a21 = unsafe { local.a.read(below..below + rows_below, cols) };
        let l2 = l2.share();
        let parts: Vec<_> = narrow_parts(rows_below, local.team.threads()).collect();
        local.team.split(parts.len(), 1, |taken| {
            for rows in &parts[taken] {
                // SAFETY: each part is taken once, and the parts do not overlap.
                let mut l2 = unsafe { l2.block(rows.clone(), 0..jb) };
                copy(a21.block(rows.clone(), 0..jb), l2.rb());
                solve_upper_from_right(block.as_ref(), l2);
                work::piece_done();
            }
        });
        Ok(PanelParts::default())
    }

    fn workspace(
        grid: &Grid,
        team: &Team,
        params: &Params,
        shape: LocalShape<Self>,
        products: Option<Self::Rounded>,
    ) -> Result<Workspace<Self>, SolveError> {
        Workspace::allocate(grid, team, params, shape, products)
    }

    fn factor_panels(
        solver: &mut Solver<Self>,
        range: Range<usize>,
        events: &mut dyn SolverEvents,
        background: &mut dyn Background,
    ) -> Result<(), SolveError> {
        solver.factor_panels(range, events, background)
    }
}

struct Broken<T> {
    column: usize,
    pivot: T,
}

/// The largest finite magnitude of a matrix.
fn largest(a: MatRef<f32>) -> f32 {
    let elements = (0..a.rows()).flat_map(|i| a.row(i));
    elements.filter(|x| x.is_finite()).fold(0.0, |most, x| most.max(x.abs()))
}

/// `A := L \ U` without pivoting, recursively:
///
/// ```text
/// A11 = L11 U11,   U12 = L11^-1 A12,   L21 = A21 U11^-1,   A22 - L21 U12 = L22 U22
/// ```
///
/// A pivot that is at most `tiny`, or not finite, ends it.
fn factor_block(a: MatMut<f32>, tiny: f32) -> Result<(), Broken<f32>> {
    let n = a.rows();
    if n <= FEW_COLUMNS {
        return factor_few_columns(a, tiny);
    }
    let half = (n / 2).next_multiple_of(FEW_COLUMNS);
    let (top, bottom) = a.split_rows(half);
    let ((mut a11, mut a12), (mut a21, mut a22)) = (top.split_cols(half), bottom.split_cols(half));
    factor_block(a11.rb(), tiny)?;
    solve_unit_lower(a11.as_ref(), a12.rb());
    solve_upper_from_right(a11.as_ref(), a21.rb());
    gemm(-1.0, a21.as_ref(), a12.as_ref(), 1.0, a22.rb());
    factor_block(a22, tiny)
        .map_err(|Broken { column, pivot }| Broken { column: half + column, pivot })
}

fn factor_few_columns(mut a: MatMut<f32>, tiny: f32) -> Result<(), Broken<f32>> {
    for k in 0..a.rows() {
        let pivot = a.as_ref().at(k, k);
        if !pivot.is_finite() || pivot.abs() <= tiny {
            return Err(Broken { column: k, pivot });
        }
        for i in k + 1..a.rows() {
            let (row, above) = a.two_rows_mut(i, k);
            let factor = row[k] / pivot;
            row[k] = factor;
            let rest = row[k + 1..].iter_mut().zip(&above[k + 1..]);
            rest.for_each(|(x, u)| *x -= factor * u);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skt_comm::Comm;
    use skt_host::choice::{Bcast, Fact, Pmap, Swap};

    use super::super::events::Silent;
    use super::super::guard::{Guard, Unguarded};
    use super::super::{LocalShape, Solver, Workspace};
    use super::*;
    use crate::blas::Bf16Products;
    use crate::blas::bf16::{Bf16Library, stand_ins};
    use crate::blas::library::use_one_thread;
    use crate::comm::threads;
    use crate::grid::Grid;
    use crate::pfact::Variant;
    use crate::team::Team;

    fn dense_factors(n: usize, element: impl Fn(usize, usize) -> f32) -> Vec<f64> {
        let mut a: Vec<f64> = (0..n * n).map(|at| f64::from(element(at / n, at % n))).collect();
        for k in 0..n {
            for i in k + 1..n {
                a[i * n + k] /= a[k * n + k];
                for j in k + 1..n {
                    a[i * n + j] -= a[i * n + k] * a[k * n + j];
                }
            }
        }
        a
    }

    fn element(seed: u64, n: usize) -> impl Fn(usize, usize) -> f32 + Copy {
        move |i, j| {
            let mixed = (seed ^ (i * n + j) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let random = ((mixed ^ (mixed >> 29)) % 1000) as f32 / 1000.0 - 0.5;
            if i == j { random + n as f32 / 2.0 } else { random }
        }
    }

    /// What a rank has of the factors, with the place of each element, and of the solution.
    type Part = (Vec<(usize, usize, f32)>, Vec<(usize, f64)>);

    /// The factors that the ranks of a grid compute, by rank, and the solution with the right-hand
    /// side 1, 2, ... The loop is interrupted before panel `cut`.
    fn factors(
        params: Params,
        p: usize,
        q: usize,
        threads: usize,
        products: Option<Bf16Products>,
        cut: usize,
        element: impl Fn(usize, usize) -> f32 + Copy + Send + Sync,
    ) -> Vec<Result<Part, SolveError>> {
        use_one_thread();
        let of_rank = |world: &Comm| {
            let grid = Grid::new(world, p, q, Pmap::RowMajor)?.expect("all take part");
            let (rows, cols) = (grid.rows(params.nb), grid.cols(params.nb));
            let team = Team::new(threads, |_| ()).expect("threads");
            let shape = LocalShape::<f32>::without_b(params.n, rows, &cols, grid.myrow, grid.mycol);
            let mut guard = Unguarded::new(shape.doubles()).expect("memory");
            let place = |at: usize| {
                let (i, j) = (at / shape.lda, at % shape.lda);
                (rows.global(i, grid.myrow), cols.global(j, grid.mycol), j < shape.cols)
            };
            for (at, value) in Guard::<f32>::matrix(&mut guard).iter_mut().enumerate() {
                let (i, j, is_element) = place(at);
                *value = if is_element { element(i, j) } else { f32::NAN };
            }
            let mut work = Workspace::<f32>::for_products(&grid, &team, &params, shape, products)?;
            let cuts = [0, cut.min(params.panels()), params.panels()];
            for to in cuts.windows(2) {
                let (a, background) = guard.lend(shape);
                let mut solver = Solver::new(&grid, &team, params, shape, &a, &mut work);
                solver.factor(to[0]..to[1], &mut Silent, background)?;
            }
            let (a, _) = guard.lend(shape);
            let y: Vec<_> =
                (0..shape.rows).map(|i| (1 + rows.global(i, grid.myrow)) as f64).collect();
            let x = Solver::new(&grid, &team, params, shape, &a, &mut work).solve(&y)?;
            let x = x.into_iter().enumerate().map(|(j, x)| (cols.global(j, grid.mycol), x));
            let numbers = Guard::<f32>::matrix(&mut guard).iter().enumerate();
            let elements = numbers.map(|(at, value)| (place(at), *value));
            let elements = elements.filter(|(at, _)| at.2).map(|((i, j, _), value)| (i, j, value));
            Ok((elements.collect(), x.collect()))
        };
        // A rank that returned an error would abort the others.
        let ranks = threads::run(p * q, |world| Ok::<_, SolveError>(of_rank(&world)));
        ranks.into_iter().map(|rank| rank.expect("an outcome")).collect()
    }

    fn params(n: usize, nb: usize, depth: usize, share: bool) -> Params {
        let variant = Variant { pfact: Fact::Left, rfact: Fact::Left, nbmin: 4, ndiv: 2 };
        let (bcast, swap, swap_threshold) = (Bcast::OneRingM, Swap::Mix, 2);
        Params { n, nb, depth, bcast, variant, swap, swap_threshold, share }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn factors_are_those_of_the_matrix(
            n in 1usize..70, nb in 1usize..24, p in 1usize..4, q in 1usize..4, depth in 0usize..3,
            threads in 1usize..3, share: bool, cut in 0usize..70, seed: u64,
        ) {
            let element = element(seed, n);
            let want = dense_factors(n, element);
            let ranks = factors(params(n, nb, depth, share), p, q, threads, None, cut, element);
            let (mut count, mut x) = (0, vec![None; n]);
            for (elements, part_of_x) in ranks.into_iter().map(|rank| rank.expect("factored")) {
                for (i, j, value) in elements {
                    let (want, value) = (want[i * n + j], f64::from(value));
                    prop_assert!((value - want).abs() < 1e-4 * n as f64, "{i}, {j}: {value}, {want}");
                    count += 1;
                }
                for (j, value) in part_of_x {
                    prop_assert_eq!(*x[j].get_or_insert(value), value, "alike in a process column");
                }
            }
            prop_assert_eq!(count, n * n);
            for i in 0..n {
                let terms = (0..n).map(|j| f64::from(element(i, j)) * x[j].expect("all of x"));
                let off = terms.sum::<f64>() - (i + 1) as f64;
                prop_assert!(off.abs() < 1e-4 * n as f64, "row {i} of the product is off by {off}");
            }
        }

        /// The product of the factors differs from A by what the rounding of L2 and U has changed.
        #[test]
        fn rounded_factors_are_those_of_the_matrix(
            n in 1usize..70, nb in 1usize..24, p in 1usize..4, q in 1usize..4, depth in 0usize..3,
            threads in 1usize..3, share: bool, cut in 0usize..70, kind in 0usize..3, seed: u64,
        ) {
            let element = element(seed, n);
            let libraries: &'static [Bf16Library] = Vec::from(stand_ins()).leak();
            let products = match kind {
                0 => Bf16Products::Emulated,
                kind => Bf16Products::Library(&libraries[kind - 1]),
            };
            let params = params(n, nb, depth, share);
            let ranks = factors(params, p, q, threads, Some(products), cut, element);
            let (mut l, mut u) = (vec![0.0; n * n], vec![0.0; n * n]);
            for (elements, _) in ranks.into_iter().map(|rank| rank.expect("factored")) {
                for (i, j, value) in elements {
                    let factor = if i > j { &mut l } else { &mut u };
                    factor[i * n + j] = f64::from(value);
                }
            }
            (0..n).for_each(|i| l[i * n + i] = 1.0);
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let terms = || (0..n).map(|k| l[i * n + k] * u[k * n + j]);
                let size: f64 = terms().map(f64::abs).sum();
                let off = terms().sum::<f64>() - f64::from(element(i, j));
                prop_assert!(off.abs() <= size / 125.0, "{i}, {j}: {off} of {size}");
            }
        }

        #[test]
        fn a_useless_pivot_is_named_by_all_ranks(
            n in 1usize..50, nb in 1usize..17, p in 1usize..3, q in 1usize..3, at in 0usize..50,
            depth in 0usize..3, kind in 0usize..3, seed: u64,
        ) {
            let at = at % n;
            let element = element(seed, n);
            // Row `at` is 0 left of the diagonal, so the pivot is the element itself.
            let broken = [0.0, f32::NAN, f32::INFINITY][kind];
            let spoiled = move |i: usize, j: usize| match () {
                () if (i, j) == (at, at) => broken,
                () if i == at && j < at => 0.0,
                () => element(i, j),
            };
            for rank in factors(params(n, nb, depth, false), p, q, 1, None, 0, spoiled) {
                match rank {
                    Err(SolveError::Pivot { column, value }) => {
                        prop_assert_eq!(column, at);
                        prop_assert!(value == f64::from(broken) || value.is_nan() && kind == 1);
                    }
                    other => prop_assert!(false, "{:?}", other.map(|_| ())),
                }
            }
        }
    }
}
