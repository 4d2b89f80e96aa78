//! The lines of the text report about slow ranks and links.

use std::collections::BTreeSet;

use skt_health::slow::{Named, SlowRank, SlowReport};

/// Most slow ranks, and most slow links, that have a line each.
const MAX_LINES: usize = 16;

pub(super) fn lines(report: &SlowReport) -> Vec<String> {
    let Named { ranks, links } = &report.named;
    let mut lines: Vec<String> = ranks.iter().take(MAX_LINES).map(line).collect();
    let rest = ranks.get(MAX_LINES..).unwrap_or_default();
    if !rest.is_empty() {
        let hosts: BTreeSet<&str> = rest.iter().map(|slow| slow.host.as_str()).collect();
        lines.push(format!("# slow: {} more ranks, on {} host(s)", rest.len(), hosts.len()));
    }
    let links = links.as_deref().unwrap_or_default();
    let listed = links.iter().take(MAX_LINES);
    lines.extend(listed.map(|link| format!("# slow link: {}", link.describe())));
    if links.len() > MAX_LINES {
        lines.push(format!("# slow link: {} more", links.len() - MAX_LINES));
    }
    lines
}

fn line(slow: &SlowRank) -> String {
    let SlowRank { host, rank, lag_percent, since_column, throttled, .. } = slow;
    let throttled = match throttled {
        0 => String::new(),
        times => format!(" (throttled {times} times)"),
    };
    format!(
        "# slow: {host} rank {rank}: {lag_percent:.0} % below the median since column \
         {since_column}{throttled}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_health::slow::links::SlowLink;

    fn slow(rank: usize, throttled: u64) -> SlowRank {
        SlowRank {
            host: format!("n{}", rank / 4),
            rank,
            lag_percent: 37.6,
            since_column: 4096,
            spreads: 9.0,
            throttled,
        }
    }

    #[test]
    fn lines_name_host_rank_and_column() {
        let link =
            SlowLink { host: "n1".into(), other: Some("n2".into()), times: 4.0, times_before: 1.0 };
        let all = SlowLink { other: None, ..link.clone() };
        let named = Named { ranks: vec![slow(12, 12), slow(13, 0)], links: Some(vec![link, all]) };
        let report = SlowReport { named, ..Default::default() };
        assert_eq!(
            lines(&report),
            [
                "# slow: n3 rank 12: 38 % below the median since column 4096 (throttled 12 times)",
                "# slow: n3 rank 13: 38 % below the median since column 4096",
                "# slow link: n1 to n2: 4.0 times the median's time, 1.0 before the run",
                "# slow link: n1: all links: 4.0 times the median's time, 1.0 before the run",
            ]
        );
    }

    #[test]
    fn very_many_are_counted() {
        let named = (0..100).map(|rank| slow(rank, 0)).collect();
        let named = Named { ranks: named, links: None };
        let lines = lines(&SlowReport { named, ..Default::default() });
        assert_eq!((lines.len(), lines[16].as_str()), (17, "# slow: 84 more ranks, on 21 host(s)"));
    }
}
