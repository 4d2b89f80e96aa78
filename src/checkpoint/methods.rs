//! The checkpoint methods: what each keeps, and what that costs in memory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::layout::Geometry;

/// How checkpoints are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Self-checkpoint (Tang et al., TPDS 2018, section 4): A, B, C, D. The
    /// workspace with its new parities is itself a checkpoint while the copy is
    /// being overwritten.
    #[serde(rename = "self")]
    SelfCheckpoint,
    /// Two copies, each with its parities, written in turn.
    Double,
    /// One copy with its parities: a death while it is being overwritten is
    /// reported as unrecoverable.
    Single,
    /// No checkpoint.
    None,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::SelfCheckpoint, Self::Double, Self::Single, Self::None];

    /// Copies of A, and sets of parities, that a rank keeps.
    pub fn parts(self) -> (usize, usize) {
        match self {
            Self::SelfCheckpoint => (1, 2),
            Self::Double => (2, 2),
            Self::Single => (1, 1),
            Self::None => (0, 0),
        }
    }

    /// The copy and the parities that hold a settled epoch.
    pub(super) fn settled(self, epoch: u64) -> (usize, usize) {
        match self {
            Self::Double => ((epoch % 2) as usize, (epoch % 2) as usize),
            _ => (0, 0),
        }
    }

    /// The parities that a new epoch is encoded into.
    pub(super) fn encoded(self, epoch: u64) -> usize {
        match self {
            // D; C is parity set 0.
            Self::SelfCheckpoint => 1,
            _ => self.settled(epoch).1,
        }
    }

    /// Part of a rank's memory that is left to the application: Tang et al.,
    /// TPDS 2018, eq. 6 to 8, with m parities:
    ///
    /// ```text
    /// self    (n-m) / 2n
    /// double  (n-m) / (3n-m)
    /// single  (n-m) / (2n-m)
    /// ```
    pub fn available(self, geometry: Geometry) -> f64 {
        let (copies, parity_sets) = self.parts();
        let (data, parities) = (geometry.data() as f64, geometry.parities as f64);
        1.0 / (1.0 + copies as f64 + parity_sets as f64 * parities / data)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SelfCheckpoint => "self",
            Self::Double => "double",
            Self::Single => "single",
            Self::None => "none",
        })
    }
}

/// No method of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown checkpoint method `{0}`; one of self, double, single, none")]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let named = |method: &Self| method.to_string() == name;
        Self::ALL.into_iter().find(named).ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_as_the_paper_has_it() {
        for n in 2..20 {
            let g = Geometry { members: n, parities: 1 };
            let n = n as f64;
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-15, "{a} {b}");
            close(Method::SelfCheckpoint.available(g), (n - 1.0) / (2.0 * n));
            close(Method::Double.available(g), (n - 1.0) / (3.0 * n - 1.0));
            close(Method::Single.available(g), (n - 1.0) / (2.0 * n - 1.0));
            close(Method::None.available(g), 1.0);
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for method in Method::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
            let json = serde_json::to_string(&method).expect("plain data");
            assert_eq!(json, format!("\"{method}\""));
        }
        assert!("triple".parse::<Method>().is_err());
    }
}
