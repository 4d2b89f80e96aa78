//! Checks before the start that the job fits into the memory of its hosts.

use skt_host::units::{self, counted};

/// The ranks on one host, and the memory that they may use together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostShare {
    pub host: String,
    /// Ranks of the job on this host.
    pub ranks: usize,
    /// Free memory of the host, if it is known.
    pub available_bytes: Option<u64>,
    /// Bytes that the control groups leave, if they have limits.
    pub limit_bytes: Option<u64>,
}

impl HostShare {
    /// The tighter of the two bounds; `None` if neither is known.
    fn usable_bytes(&self) -> Option<u64> {
        match (self.available_bytes, self.limit_bytes) {
            (Some(available), Some(limit)) => Some(available.min(limit)),
            (available, limit) => available.or(limit),
        }
    }

    fn holds(&self, bytes_a_rank: u64) -> bool {
        let need = bytes_a_rank.saturating_mul(self.ranks as u64);
        self.usable_bytes().is_none_or(|usable| need <= usable)
    }
}

/// The matrix does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "N = {n} does not fit: host {host} would need {} for {}, and has {} ({}). {}",
    units::bytes_unlike(*need_bytes, *usable_bytes),
    counted(*ranks, "rank"),
    units::bytes_unlike(*usable_bytes, *need_bytes),
    if *limited_by_cgroup { "left under its control group's limit" } else { "available" },
    advice(*largest_n)
)]
pub struct DoesNotFit {
    pub n: usize,
    pub host: String,
    pub ranks: usize,
    pub need_bytes: u64,
    pub usable_bytes: u64,
    /// Whether the control group's limit is the tighter bound.
    pub limited_by_cgroup: bool,
    /// The largest order that fits on all hosts with the same grid and blocks, if any does.
    pub largest_n: Option<usize>,
}

fn advice(largest_n: Option<usize>) -> String {
    match largest_n {
        Some(n) => format!("The largest N that fits is {n}."),
        None => "Not even N = 0 fits: free some memory on this host.".to_string(),
    }
}

/// Checks order `n` against the memory of all hosts. `bytes_for` gives the bytes of the largest
/// rank for an order, and must not decrease as the order grows. A host whose memory is unknown
/// counts as large enough.
pub fn check(
    n: usize,
    hosts: &[HostShare],
    bytes_for: impl Fn(usize) -> u64,
) -> Result<(), DoesNotFit> {
    let bytes_a_rank = bytes_for(n);
    let lacking = hosts.iter().filter(|host| !host.holds(bytes_a_rank)).max_by_key(|host| {
        let need = bytes_a_rank.saturating_mul(host.ranks as u64);
        need - host.usable_bytes().unwrap_or(need)
    });
    let Some(host) = lacking else { return Ok(()) };
    let fits = |order: usize| {
        let bytes = bytes_for(order);
        hosts.iter().all(|host| host.holds(bytes))
    };
    let usable_bytes = host.usable_bytes().unwrap_or(u64::MAX);
    Err(DoesNotFit {
        n,
        host: host.host.clone(),
        ranks: host.ranks,
        need_bytes: bytes_a_rank.saturating_mul(host.ranks as u64),
        usable_bytes,
        limited_by_cgroup: host.limit_bytes == Some(usable_bytes)
            && host.available_bytes != Some(usable_bytes),
        largest_n: largest_that(fits, n),
    })
}

/// The largest order below `bound` that fits. `bound` itself does not fit.
pub fn largest_that(fits: impl Fn(usize) -> bool, bound: usize) -> Option<usize> {
    if bound == 0 || !fits(0) {
        return None;
    }
    let (mut fitting, mut too_large) = (0, bound);
    while too_large - fitting > 1 {
        let middle = fitting + (too_large - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_large = middle;
        }
    }
    Some(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(name: &str, ranks: usize, available: Option<u64>, limit: Option<u64>) -> HostShare {
        HostShare { host: name.to_string(), ranks, available_bytes: available, limit_bytes: limit }
    }

    /// Four ranks share an N x N matrix, with 1000 bytes of work space each.
    fn bytes_for(n: usize) -> u64 {
        (8 * n * n / 4 + 1000) as u64
    }

    #[test]
    fn what_fits_exactly_is_accepted_and_one_byte_less_is_not() {
        let exact = 2 * bytes_for(100);
        assert_eq!(check(100, &[host("a", 2, Some(exact), None)], bytes_for), Ok(()));
        let error = check(100, &[host("a", 2, Some(exact - 1), None)], bytes_for).unwrap_err();
        assert_eq!(error.largest_n, Some(99));
        // Both would be 41.0 KiB, which explains nothing.
        assert!(error.to_string().contains("42000 B for 2 ranks, and has 41999 B"), "{error}");
    }

    #[test]
    fn the_host_that_lacks_most_is_named_and_all_hosts_bound_n() {
        let hosts = [
            host("roomy", 2, Some(1 << 40), None),
            host("tight", 1, Some(1 << 40), Some(3000)),
            host("crowded", 3, Some(12_000), Some(1 << 50)),
        ];
        let error = check(100, &hosts, bytes_for).unwrap_err();
        assert_eq!(
            error,
            DoesNotFit {
                n: 100,
                host: "crowded".to_string(),
                ranks: 3,
                need_bytes: 63_000,
                usable_bytes: 12_000,
                limited_by_cgroup: false,
                // 2 n^2 + 1000 <= 3000 on "tight".
                largest_n: Some(31),
            }
        );
        assert_eq!(
            error.to_string(),
            "N = 100 does not fit: host crowded would need 61.5 KiB for 3 ranks, and has \
             11.7 KiB (available). The largest N that fits is 31."
        );
    }

    #[test]
    fn bounds_are_named_and_unknown_ones_trusted() {
        let error = check(100, &[host("a", 1, Some(9000), Some(500))], bytes_for).unwrap_err();
        let want = "(left under its control group's limit). Not even N = 0 fits: free some memory";
        assert!(error.to_string().contains(want), "{error}");
        assert_eq!(check(1 << 20, &[host("a", 1, None, None)], bytes_for), Ok(()));
        let beyond = |n| u64::MAX * u64::from(n > 2);
        let error = check(9, &[host("a", 3, Some(5), None)], beyond).unwrap_err();
        assert_eq!((error.need_bytes, error.largest_n), (u64::MAX, Some(2)));
    }

    proptest! {
        #[test]
        fn the_largest_n_fits_and_the_next_does_not(available in 1000u64..1_000_000_000) {
            let hosts = [host("a", 1, Some(available), None)];
            if let Err(error) = check(1 << 20, &hosts, bytes_for) {
                let n = error.largest_n.unwrap();
                prop_assert_eq!(check(n, &hosts, bytes_for), Ok(()));
                prop_assert!(check(n + 1, &hosts, bytes_for).is_err());
            }
        }
    }
}
