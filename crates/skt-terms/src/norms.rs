//! The norms of a system and its solution, and the scaled residual, which HPL and HPL-MxP share.

use serde::{Deserialize, Serialize};

/// The relative machine precision of the reference: half of the distance from 1 to the next double.
pub const EPSILON: f64 = f64::EPSILON / 2.0;

/// Norms of the problem and its solution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// `max |Ax-b|`
    pub residual_oo: f64,
    /// ||A||_oo
    pub a_oo: f64,
    /// ||A||_1
    pub a_1: f64,
    /// ||x||_oo
    pub x_oo: f64,
    /// ||x||_1
    pub x_1: f64,
    /// ||b||_oo
    pub b_oo: f64,
}

impl Norms {
    /// `||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N)` of a system of order `n`; 0 for order
    /// 0. What is not finite stays so.
    pub fn scaled_residual(&self, n: usize) -> f64 {
        if n == 0 {
            return 0.0;
        }
        self.residual_oo / (EPSILON * (self.a_oo * self.x_oo + self.b_oo) * n as f64)
    }
}
