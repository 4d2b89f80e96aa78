//! The checkpoint methods: what each keeps, and its cost in memory.

use serde::{Deserialize, Serialize};
use skt_host::named;

use skt_store::layout::{Active, Geometry};

/// How checkpoints are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Self-checkpoint (Tang et al., TPDS 2018, section 4): keeps A, B, C and D. The workspace with
    /// its new parities is itself a checkpoint while the copy is being overwritten.
    #[serde(rename = "self")]
    SelfCheckpoint,
    /// Two copies, each with its parities, written in turn.
    Double,
    /// One copy with its parities: a death while it is being overwritten is unrecoverable.
    Single,
    /// No copy: the application maintains checksums of its data (algorithm-based fault tolerance,
    /// Chen and Dongarra). A restart finds the surviving data as it was left, and the application
    /// rebuilds the rest.
    Abft,
    /// No checkpoints.
    None,
}

impl Method {
    /// The numbers of copies of A and of sets of parities that a rank keeps.
    pub fn areas(self) -> (usize, usize) {
        match self {
            Self::SelfCheckpoint => (1, 2),
            Self::Double => (2, 2),
            Self::Single => (1, 1),
            Self::Abft | Self::None => (0, 0),
        }
    }

    pub(super) fn encodes(self) -> bool {
        self.areas().1 > 0
    }

    /// Whether the copy is updated after the commit, from the workspace.
    pub fn flushes(self) -> bool {
        self == Self::SelfCheckpoint
    }

    /// Whether images of its epochs can be written: `self` and `double` leave an epoch unchanged
    /// while the next one is made, and the ranks of `abft` wait for the image.
    pub fn has_images(self) -> bool {
        matches!(self, Self::SelfCheckpoint | Self::Double | Self::Abft)
    }

    /// The indices of the copy and of the set of parities that hold a settled epoch. Where there
    /// are two of a kind, they alternate from epoch to epoch.
    pub(super) fn settled(self, epoch: u64) -> (usize, usize) {
        let turn = (epoch % 2) as usize;
        match self {
            Self::SelfCheckpoint => (0, turn),
            Self::Double => (turn, turn),
            Self::Single | Self::Abft | Self::None => (0, 0),
        }
    }

    pub(super) fn encoded(self, epoch: u64) -> usize {
        self.settled(epoch).1
    }

    /// Where the alternating parts may differ right after a start: nowhere with `self`, whose
    /// recovery makes both sets of parities equal; anywhere with `double`, whose other copy may be
    /// incomplete or of any epoch.
    pub(super) fn apart_at_start(self) -> Active {
        match self {
            Self::SelfCheckpoint => Active::NOTHING,
            _ => Active::ALL,
        }
    }

    /// The fraction of a rank's memory that is left to the application (Tang et al., TPDS 2018, eq.
    /// 6 to 8, generalized to m parities):
    ///
    /// ```text
    /// self    (n-m) / 2n
    /// double  (n-m) / (3n-m)
    /// single  (n-m) / (2n-m)
    /// abft    (n-m) / n        of the memory of a group: n-m ranks have data
    /// ```
    pub fn available(self, geometry: Geometry) -> f64 {
        let (copies, parity_sets) = self.areas();
        let (data, parities) = (geometry.data() as f64, geometry.parities as f64);
        if self == Self::Abft {
            return data / (data + parities);
        }
        1.0 / (1.0 + copies as f64 + parity_sets as f64 * parities / data)
    }
}

named!(Method {
    SelfCheckpoint: "self",
    Abft: "abft",
    Double: "double",
    Single: "single",
    None: "none",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_matches_the_paper() {
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

    /// Figure 10: groups of 2, 3, 4, 8 and 16, computed by hand from eq. 6 to 8.
    #[test]
    fn shares_match_figure_10() {
        let of = |method: Method| {
            [2, 3, 4, 8, 16].map(|members| {
                let geometry = Geometry { members, parities: 1 };
                (100.0 * method.available(geometry)).round() as u64
            })
        };
        assert_eq!(of(Method::SelfCheckpoint), [25, 33, 38, 44, 47]);
        assert_eq!(of(Method::Double), [20, 25, 27, 30, 32]);
        assert_eq!(of(Method::Single), [33, 40, 43, 47, 48]);
        assert_eq!(of(Method::None), [100; 5]);
    }

    #[test]
    fn more_parities_follow_the_same_law() {
        // n = 4, m = 2: parities as large as the data, so 2 + 2 of the same.
        let geometry = Geometry { members: 4, parities: 2 };
        assert_eq!(Method::SelfCheckpoint.available(geometry), 0.25);
        assert_eq!(Method::Double.available(geometry), 0.2);
        assert_eq!(Method::Single.available(geometry), 1.0 / 3.0);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for method in Method::ALL {
            assert_eq!(Method::named(method.name()), Some(method));
            let json = serde_json::to_string(&method).expect("plain data");
            assert_eq!(json, format!("\"{method}\""));
        }
        assert_eq!(Method::named("triple"), None);
    }
}
