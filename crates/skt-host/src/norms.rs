//! The norms of a system and its solution, and the scaled residual, which HPL and HPL-MxP share.

use serde::{Deserialize, Serialize};

/// The relative machine precision of the reference: half of the distance from 1 to the next double.
pub const EPSILON: f64 = f64::EPSILON / 2.0;

/// Numbers that may be infinite or NaN, which JSON has as texts: `"inf"`, `"-inf"`, `"NaN"`.
pub mod any_number {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the number.
    pub fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        if number.is_finite() { to.serialize_f64(*number) } else { to.collect_str(number) }
    }

    /// Reads a number or its text.
    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<f64, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(number) => Ok(number),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// Norms of the problem and its solution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// `max |Ax-b|`
    #[serde(with = "any_number")]
    pub residual_oo: f64,
    /// ||A||_oo
    #[serde(with = "any_number")]
    pub a_oo: f64,
    /// ||A||_1
    #[serde(with = "any_number")]
    pub a_1: f64,
    /// ||x||_oo
    #[serde(with = "any_number")]
    pub x_oo: f64,
    /// ||x||_1
    #[serde(with = "any_number")]
    pub x_1: f64,
    /// ||b||_oo
    #[serde(with = "any_number")]
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
