//! Section 3: how the efficiency of HPL grows with the order of the matrix.

use crate::ModelError;
use crate::error::{check, fraction, positive};

/// `E(N) = N / (a N + b)`: Tang et al., TPDS 2018, eq. 2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Efficiency {
    /// The inverse of the efficiency of an infinite matrix; at least 1 if the peak is a true peak.
    pub a: f64,
    /// The cost of the N^2 part relative to the peak's N^3 part, in rows.
    pub b: f64,
}

impl Efficiency {
    /// The model through one measurement `E(n1) = e1`, for a given `a`:
    /// `b = (1 - a e1) n1 / e1` (eq. 4).
    pub fn through(n1: f64, e1: f64, a: f64) -> Result<Self, ModelError> {
        positive("n", n1)?;
        positive("efficiency_fraction", fraction("efficiency_fraction", e1)?)?;
        positive("a", a)?;
        check("a", a, a * e1 <= 1.0, "at most 1/efficiency_fraction")?;
        Ok(Self { a, b: (1.0 - a * e1) * n1 / e1 })
    }

    /// Fits `1/E = a + b/N` by least squares, weighted so that relative errors of E count alike.
    /// `points` has pairs of N and the efficiency as a fraction of the peak, or any rate: `a` and
    /// `b` then have its inverse unit.
    pub fn fit(points: &[(f64, f64)]) -> Result<Self, ModelError> {
        let unusable = |reason: String| Err(ModelError::no_fit(reason));
        if let Some((n, e)) =
            points.iter().find(|(n, e)| !(*n > 0.0 && *e > 0.0 && n.is_finite() && e.is_finite()))
        {
            return unusable(format!("N = {n} with efficiency {e}: both must be above 0"));
        }
        let first = points.first().map(|p| p.0);
        if points.iter().all(|p| Some(p.0) == first) {
            return unusable(format!(
                "{} points at one N; at least two N are needed",
                points.len()
            ));
        }
        // The weighted normal equations of y = a + b x with x = 1/N, y = 1/E, w = E^2.
        let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(n, e) in points {
            let (x, y, w) = (1.0 / n, 1.0 / e, e * e);
            s += w;
            sx += w * x;
            sy += w * y;
            sxx += w * x * x;
            sxy += w * x * y;
        }
        let b = (s * sxy - sx * sy) / (s * sxx - sx * sx);
        let a = (sy - b * sx) / s;
        if !(a > 0.0 && b >= 0.0) {
            return unusable(format!("a = {a:.4e}, b = {b:.4e}: efficiency falls with N"));
        }
        Ok(Self { a, b })
    }

    pub fn at(self, n: f64) -> f64 {
        n / (self.a * n + self.b)
    }

    /// The efficiency of an infinitely large matrix, `1/a`.
    pub fn limit(self) -> f64 {
        1.0 / self.a
    }

    /// The order at which half of the limit is reached: `b/a`. N1/2 of the TOP500 list uses half of
    /// Rmax instead: [`Efficiency::half_of`].
    pub fn half_of_limit(self) -> f64 {
        self.b / self.a
    }

    /// The order at which half of `E(nmax)` is reached: from E(N) = E(nmax)/2, `N = b nmax / (a
    /// nmax + 2 b)`.
    pub fn half_of(self, nmax: f64) -> f64 {
        self.b * nmax / (self.a * nmax + 2.0 * self.b)
    }
}

/// The efficiency with the share `memory_fraction` of the memory, if all of it gives `e1`: with N2
/// = sqrt(k) N1, `e2 = sqrt(k) e1 / (1 - (1 - sqrt(k)) a e1)` (eq. 5, the equality).
pub fn with_memory(e1: f64, memory_fraction: f64, a: f64) -> Result<f64, ModelError> {
    fraction("efficiency_fraction", e1)?;
    fraction("memory_fraction", memory_fraction)?;
    positive("a", a)?;
    check("a", a, a * e1 <= 1.0, "at most 1/efficiency_fraction")?;
    let root = memory_fraction.sqrt();
    Ok(root * e1 / (1.0 - (1.0 - root) * a * e1))
}

/// The lower bound of [`with_memory`] over all `a` > 1, attained as a -> 1 (eq. 5, the inequality).
/// It applies to a machine of which only Rmax is known.
pub fn with_memory_lower_bound(e1: f64, memory_fraction: f64) -> Result<f64, ModelError> {
    with_memory(e1, memory_fraction, 1.0)
}
