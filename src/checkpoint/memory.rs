//! What part of the memory each checkpoint method leaves to the application.
//!
//! A group of `n` ranks bears the loss of `m`. A rank whose application works
//! on M bytes also holds its share of the group's parities: each stripe has
//! n - m data blocks and m parities, so the parities of one copy of M take
//! m M / (n - m) a rank (Tang et al., TPDS 2018, table 1, for m = 1). The parts:
//!
//! | method | holds | share of the application |
//! |---|---|---|
//! | none | M | 1 |
//! | single | A, B = M and C = m M/(n-m) | (n-m) / (2n-m) (eq. 8) |
//! | self | A, B = M and C = D = m M/(n-m) | (n-m) / (2n) (eq. 6) |
//! | double | A = M and twice (B, C) | (n-m) / (3n-m) (eq. 7) |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How checkpoints are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// No checkpoints.
    None,
    /// One copy and its parities: lost when a rank dies while they are made.
    Single,
    /// The workspace itself serves as one of two copies.
    #[serde(rename = "self")]
    SelfCheckpoint,
    /// Two copies with their parities.
    Double,
}

impl Method {
    /// All methods, from the least memory to the most.
    pub const ALL: [Self; 4] = [Self::None, Self::Single, Self::SelfCheckpoint, Self::Double];

    /// Copies of the application's bytes, its workspace included, and copies of
    /// the parities.
    fn copies(self) -> (u64, u64) {
        match self {
            Self::None => (1, 0),
            Self::Single => (2, 1),
            Self::SelfCheckpoint => (2, 2),
            Self::Double => (3, 2),
        }
    }

    /// Whether a loss at any instant can be borne, that of a checkpoint in the
    /// making included.
    pub fn survives_any_instant(self) -> bool {
        matches!(self, Self::SelfCheckpoint | Self::Double)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Single => "single",
            Self::SelfCheckpoint => "self",
            Self::Double => "double",
        })
    }
}

/// A method of no such name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown checkpoint method `{0}`; one of self, double, single, none")]
pub struct UnknownMethod(pub String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let found = Self::ALL.into_iter().find(|method| method.to_string() == name);
        found.ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}

/// Share of a rank's memory, 0 to 1, that is left to the application in groups
/// of `ranks` with `parities` (Tang et al., eq. 6 to 8, for any m).
///
/// # Panics
/// Unless `1 <= parities < ranks`.
pub fn application_share(method: Method, ranks: u64, parities: u64) -> f64 {
    check(ranks, parities);
    let (copies, parity_copies) = method.copies();
    let data = ranks - parities;
    // M / (copies M + parity_copies m M / (n - m)), times n - m above and below.
    data as f64 / (copies * data + parity_copies * parities) as f64
}

/// Bytes that one copy of the parities of `application_bytes` takes a rank:
/// `m M / (n - m)`, rounded up.
///
/// # Panics
/// Unless `1 <= parities < ranks`.
pub fn parity_bytes(application_bytes: u64, ranks: u64, parities: u64) -> u64 {
    check(ranks, parities);
    let exact = u128::from(application_bytes) * u128::from(parities);
    u64::try_from(exact.div_ceil(u128::from(ranks - parities))).expect("fits the address space")
}

/// Bytes a rank needs in all for `application_bytes` of its own, headers and
/// padding aside.
///
/// # Panics
/// Unless `1 <= parities < ranks`.
pub fn total_bytes(method: Method, application_bytes: u64, ranks: u64, parities: u64) -> u64 {
    let (copies, parity_copies) = method.copies();
    copies * application_bytes + parity_copies * parity_bytes(application_bytes, ranks, parities)
}

/// The most bytes an application may have of `budget_bytes` a rank: the largest
/// M whose [`total_bytes`] fits.
///
/// # Panics
/// Unless `1 <= parities < ranks`.
pub fn application_bytes(method: Method, budget_bytes: u64, ranks: u64, parities: u64) -> u64 {
    check(ranks, parities);
    let (copies, parity_copies) = method.copies();
    let data = ranks - parities;
    let parts = u128::from(copies * data + parity_copies * parities);
    // Rounding up of the parities costs less than one byte a copy.
    let most = (u128::from(budget_bytes) * u128::from(data) / parts) as u64;
    let fits = |&bytes: &u64| total_bytes(method, bytes, ranks, parities) <= budget_bytes;
    (most.saturating_sub(2)..=most).rev().find(fits).unwrap_or(0)
}

fn check(ranks: u64, parities: u64) {
    assert!(
        (1..ranks).contains(&parities),
        "a group of {ranks} ranks cannot hold {parities} parities a stripe"
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn percent(method: Method, ranks: u64) -> u64 {
        (application_share(method, ranks, 1) * 100.0).round() as u64
    }

    /// Figure 10: groups of 2, 3, 4, 8 and 16, computed by hand from eq. 6 to 8.
    #[test]
    fn shares_are_those_of_figure_10() {
        let of = |method| [2, 3, 4, 8, 16].map(|ranks| percent(method, ranks));
        assert_eq!(of(Method::SelfCheckpoint), [25, 33, 38, 44, 47]);
        assert_eq!(of(Method::Double), [20, 25, 27, 30, 32]);
        assert_eq!(of(Method::Single), [33, 40, 43, 47, 48]);
        assert_eq!(of(Method::None), [100; 5]);
    }

    /// Table 3: 4 GB a process in groups of 8 leave 1.75 GB with self-checkpoint
    /// and 1.22 GB with two copies.
    #[test]
    fn budgets_are_those_of_table_3() {
        let gb = |method| application_share(method, 8, 1) * 4.0;
        assert!((gb(Method::SelfCheckpoint) - 1.75).abs() < 1e-12);
        assert!((gb(Method::Double) - 1.22).abs() < 0.005);
    }

    /// Table 1: M, M, M/(N-1), M/(N-1), in all 2MN/(N-1).
    #[test]
    fn parts_are_those_of_table_1() {
        assert_eq!(parity_bytes(15 << 20, 16, 1), 1 << 20);
        assert_eq!(total_bytes(Method::SelfCheckpoint, 15 << 20, 16, 1), 32 << 20);
    }

    #[test]
    fn more_parities_follow_the_same_law() {
        // n = 4, m = 2: parities as large as the data, so 2 + 2 of the same.
        assert_eq!(application_share(Method::SelfCheckpoint, 4, 2), 0.25);
        assert_eq!(application_share(Method::Double, 4, 2), 0.2);
        assert_eq!(application_share(Method::Single, 4, 2), 1.0 / 3.0);
    }

    #[test]
    fn names_parse_and_print() {
        for method in Method::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
            assert_eq!(serde_json::to_string(&method).unwrap(), format!("\"{method}\""));
        }
        assert_eq!("both".parse::<Method>(), Err(UnknownMethod("both".into())));
    }

    #[test]
    #[should_panic(expected = "cannot hold")]
    fn a_group_of_parities_alone_is_refused() {
        application_share(Method::Single, 2, 2);
    }

    proptest! {
        /// The budget suffices, and one byte more of the application would
        /// break it; the share is that of the bytes.
        #[test]
        fn budget_is_used_to_the_last_byte(
            budget in 1u64..1 << 45, ranks in 2u64..64, part in 1u64..32, which in 0usize..4,
        ) {
            let (method, parities) = (Method::ALL[which], part.min(ranks / 2));
            let bytes = application_bytes(method, budget, ranks, parities);
            prop_assert!(total_bytes(method, bytes, ranks, parities) <= budget);
            prop_assert!(total_bytes(method, bytes + 1, ranks, parities) > budget);
            let share = application_share(method, ranks, parities);
            prop_assert!((bytes as f64 - share * budget as f64).abs() <= 3.0 + 1e-9 * budget as f64);
        }
    }
}
