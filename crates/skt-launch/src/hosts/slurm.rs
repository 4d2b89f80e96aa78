//! Slurm's lists of nodes and of ranks.

use super::{HostsError, RANKS_MAX, check_name, rank_count};
use skt_terms::shown::shown;

/// The largest number of nodes in a list: Slurm itself allows no more.
const NODES_MAX: usize = 65536;

/// Expands a Slurm list of nodes, e.g. `n[1-3,07],login`.
pub fn expand_slurm(list: &str) -> Result<Vec<String>, HostsError> {
    let bad = |what: &str| HostsError(format!("'{}' is no list of nodes: {what}", shown(list)));
    let mut names = Vec::new();
    let mut depth = 0;
    let parts = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.is_empty()) {
        let (mut rest, mut count, mut ranges) = (part, 1, Vec::new());
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, behind) = after.split_once(']').ok_or_else(|| bad("a [ without ]"))?;
            let numbers = expand_ranges(inside).ok_or_else(|| bad("a bad range"))?;
            count *= numbers.len();
            if count > NODES_MAX {
                return Err(bad("more than 65536 nodes"));
            }
            ranges.push((before, numbers));
            rest = behind;
        }
        if names.len() + count > NODES_MAX {
            return Err(bad("more than 65536 nodes"));
        }
        // All names are about equally long; if the first is no host name, none is expanded.
        let first = ranges.iter().map(|(before, numbers)| format!("{before}{}", numbers[0]));
        check_name(&(first.collect::<String>() + rest)).map_err(|what| bad(&what))?;
        let mut all = vec![String::new()];
        for (before, numbers) in &ranges {
            let extend = |name: &String| {
                numbers.iter().map(|n| format!("{name}{before}{n}")).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(extend).collect();
        }
        for name in all {
            let name = name + rest;
            check_name(&name).map_err(|what| bad(&what))?;
            names.push(name);
        }
    }
    Ok(names)
}

/// Expands `1-3,07` to 1, 2, 3, 07; leading zeros are kept.
fn expand_ranges(inside: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for range in inside.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        // A sign would be taken for a digit of the width.
        let is_signed = from.starts_with('+') || to.starts_with('+');
        let (first, last): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        let is_long =
            from.len() > 20 || last.saturating_sub(first) >= (NODES_MAX - all.len()) as u64;
        if first > last || is_long || is_signed {
            return None;
        }
        all.extend((first..=last).map(|n| format!("{n:0width$}", width = from.len())));
    }
    Some(all)
}

/// Expands `$SLURM_TASKS_PER_NODE` or `$SLURM_JOB_CPUS_PER_NODE`, named `variable`, for `nodes`
/// nodes, e.g. `2(x3),1` to 2, 2, 2, 1.
pub fn expand_tasks(variable: &str, text: &str, nodes: usize) -> Result<Vec<usize>, HostsError> {
    expand_counts(text).filter(|all| all.len() == nodes).ok_or_else(|| {
        HostsError(format!(
            "{variable}='{}' does not give a number of ranks (1 to {RANKS_MAX}) for each of the \
             {nodes} nodes of SLURM_JOB_NODELIST; give --hosts FILE with lines `NAME slots=COUNT`",
            shown(text)
        ))
    })
}

fn expand_counts(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        let count = rank_count(count).ok()?;
        if times > NODES_MAX - all.len() {
            return None;
        }
        all.extend(std::iter::repeat_n(count, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_without_bound_are_refused() {
        assert_eq!(expand_slurm("n[1-65536]").unwrap().len(), 65536);
        let zeros = "0".repeat(70_000);
        let long = "x".repeat(70_000);
        for list in [
            "n[1-65537]",
            "n[1-65536],m",
            "n[1-65536][1-65536]",
            "n[1-40000,1-40000]",
            &format!("n[{zeros}1-2]"),
            &format!("{long}[1-65536]"),
            &format!("n[1-65536]{long}"),
            &format!("n[1-65536]{}", "[1]".repeat(20_000)),
        ] {
            let error = expand_slurm(list).unwrap_err().to_string();
            assert!(error.len() < 300, "{error}");
        }
        assert_eq!(expand_counts("1(x65537)"), None);
        assert_eq!(expand_counts("1(x65536),1"), None);
        assert_eq!(expand_counts("18446744073709551615"), None);
        assert_eq!(expand_counts("128(x65536)").unwrap().len(), 65536);
    }

    #[test]
    fn slurm_lists_are_expanded() {
        let all = |list: &str| expand_slurm(list).unwrap().join(" ");
        assert_eq!(all("n[1-3,07],login"), "n1 n2 n3 n07 login");
        assert_eq!(all("c[008-010]"), "c008 c009 c010");
        assert_eq!(all("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        for bad in ["n[1-3", "n[3-1]", "n[a]", "n[1-999999999]", "n;", "n[+1-3]", "n[1-+3]"] {
            assert!(expand_slurm(bad).is_err(), "{bad}");
        }
        let tasks = |text: &str| expand_tasks("SLURM_TASKS_PER_NODE", text, 4);
        assert_eq!(tasks("2(x3),1"), Ok(vec![2, 2, 2, 1]));
        for bad in ["x", "2", "2(x4),1", "2(x3),0", "2(x3,1", ""] {
            let why = tasks(bad).expect_err(bad).to_string();
            assert!(why.starts_with(&format!("SLURM_TASKS_PER_NODE='{bad}'")), "{why}");
        }
    }
}
