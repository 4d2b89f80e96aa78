//! A x and norms, with the entries of A computed again, on the ranks of a grid.

use crate::grid::Grid;
use crate::team::Team;
use skt_comm::collect;
use skt_host::norms::EPSILON;

use super::{CRITERION_ORDER_MIN, Place, RefineError, Residual, largest, largest_here};
use crate::mxp::part::{Part, Progress, dot};
use crate::mxp::system::System;

pub struct Operator<'o> {
    grid: &'o Grid,
    team: &'o Team,
    part: Part<'o>,
    n: usize,
    b: Vec<f64>,
    b_oo: f64,
    /// ||A||_oo, once the first pass over A has found it.
    a_oo: Option<f64>,
    progress: Progress<'o>,
}

impl<'o> Operator<'o> {
    /// The system, distributed for panels of `nb` columns. All threads of `team` call `progress`
    /// each time some rows of a pass over A are done. Collective over the grid.
    pub fn new(
        system: &'o System,
        grid: &'o Grid,
        team: &'o Team,
        nb: usize,
        progress: Progress<'o>,
    ) -> skt_comm::Result<Self> {
        let part = Part::new(system, grid, nb);
        let b = part.right_hand_side();
        let b_oo = collect::max(&grid.all, largest_here(&b))?;
        Ok(Self { grid, team, part, n: system.n(), b, b_oo, a_oo: None, progress })
    }

    pub(super) fn col_count(&self) -> usize {
        self.part.col_count()
    }

    pub(super) fn product(&mut self, x: &[f64]) -> skt_comm::Result<Vec<f64>> {
        if self.a_oo.is_some() {
            let mut products = self.part.products(self.team, x, self.progress);
            collect::all_sum(&self.grid.row, &mut products)?;
            return Ok(products);
        }
        let mut sums = self.part.sums(self.team, x, self.progress);
        collect::all_sum(&self.grid.row, &mut sums.rows)?;
        self.a_oo = Some(collect::max(&self.grid.all, largest_here(&sums.rows))?);
        collect::all_sum(&self.grid.row, &mut sums.products)?;
        Ok(sums.products)
    }

    pub(super) fn residual(&mut self, x: &[f64], place: Place) -> Result<Residual, RefineError> {
        let mut values = self.product(x)?;
        values.iter_mut().zip(&self.b).for_each(|(value, b)| *value = b - *value);
        let [residual_oo, x_oo] = largest(&self.grid.all, [&values, x])?;
        for (norm, vector) in [(x_oo, "solution"), (residual_oo, "residual")] {
            if !norm.is_finite() {
                return Err(place.not_finite(vector));
            }
        }
        Ok(self.judge(values, residual_oo, x_oo))
    }

    /// The residual of x = 0, which takes no pass over A.
    pub(super) fn residual_of_zero(&self) -> Residual {
        self.judge(self.b.clone(), self.b_oo, 0.0)
    }

    fn judge(&self, values: Vec<f64>, residual_oo: f64, x_oo: f64) -> Residual {
        let n = self.n as f64;
        let ax_oo = self.a_oo.unwrap_or_default() * x_oo;
        let criterion = (self.n.max(CRITERION_ORDER_MIN) as f64).sqrt() * EPSILON * ax_oo;
        // The residual of a system of order 0 is 0.
        let ratio = |limit: f64| if residual_oo == 0.0 { 0.0 } else { residual_oo / limit };
        let scaled = ratio(EPSILON * (ax_oo + self.b_oo) * n);
        Residual { values, scaled, to_criterion: ratio(criterion) }
    }

    /// All ranks return the error if a value of a vector is not finite on any.
    pub(super) fn require_finite(
        &self,
        vector: &[f64],
        place: Place,
        name: &'static str,
    ) -> Result<(), RefineError> {
        let is_finite = collect::max(&self.grid.all, largest_here(vector))?.is_finite();
        if is_finite { Ok(()) } else { Err(place.not_finite(name)) }
    }

    /// Gives all ranks of each process column the x of the first of them.
    pub(super) fn take_first_copy(&self, x: &mut [f64]) -> skt_comm::Result<()> {
        collect::broadcast(&self.grid.col, x, 0)
    }

    /// `u v` of two vectors by columns, with the same bits on all ranks.
    pub(super) fn dot(&self, u: &[f64], v: &[f64]) -> skt_comm::Result<f64> {
        let mut sum = [dot(u, v)];
        // All process rows have copies of the same vectors. The sum of the first one counts on all
        // ranks, so that they decide alike even if a copy is damaged.
        if self.grid.myrow == 0 {
            collect::reduce(&self.grid.row, &mut sum, 0, |a, b| a + b)?;
        }
        collect::broadcast_one(&self.grid.all, sum[0], 0)
    }
}
