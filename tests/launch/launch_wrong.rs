//! `skt-hpl launch` where a node computes wrong: it alone is named, and a spare takes
//! its place if that is wanted.

use std::fs;

use crate::cluster_box::SHARED;
use crate::dice::seed;
use crate::supervised::*;
use crate::{large_machine, supervised};

/// The node that computes wrong, and its rank.
const CULPRIT: (&str, usize) = ("n2", 1);

/// A run whose culprit computes wrong now and then.
struct Case {
    /// The process grid without checksums, of which there are two.
    grid: (usize, usize),
    /// Panels from one check to the next.
    check_every: usize,
    /// About one number goes wrong for this many 10^9 operations, of about 11.
    flip_gflop: f64,
    seed: u64,
    replaces: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The run passed, and a spare took the culprit's place.
    Replaced,
    /// The run passed on its first nodes.
    Passed,
    /// The run was refused, since a wrong number could not be repaired.
    Refused,
}

impl Case {
    /// Plays the case on a box, and asserts that the result is right or refused, and that no one
    /// but the culprit is blamed. `None` if there can be no box.
    fn play(&self) -> Option<Fate> {
        let (p, q) = self.grid;
        let cluster = supervised::cluster(Kind::Openmpi, p * (q + 2), 1)?;
        let (flip, seed) = (self.flip_gflop.to_string(), self.seed.to_string());
        let log = format!("{SHARED}/flips");
        let mut flags = large_machine::launch_flags(
            &cluster.shared(),
            SHARED,
            &[("HOST", CULPRIT.0), ("FLIP_GFLOP", &flip), ("SEED", &seed), ("LOG", &log)],
        );
        if self.replaces {
            flags += "--replace-suspects";
        }
        let run = format!(
            "--n 3200 --nb 128 --p {p} --q {q} --ft abft --parities 2 --check-every {} --progress off",
            self.check_every
        );
        let launch = launch(&cluster, true, &flags, &run);
        let ended = launch.end(&cluster);
        let flips = fs::read_to_string(cluster.shared().join("flips")).unwrap_or_default();
        Some(self.judge(&ended, flips.lines().count()))
    }

    fn judge(&self, ended: &Ended, flips: usize) -> Fate {
        let (host, rank) = CULPRIT;
        let context = format!("seed {}: {}\n{}", self.seed, ended.printed, ended.report);
        let repaired = ended.report.lines().filter(|line| line.starts_with("# repaired: "));
        let (wrong, repaired): (Vec<_>, Vec<_>) =
            repaired.partition(|line| line.contains("is_origin true"));
        let culprit = [format!("host {host},"), format!(" rank {rank},")];
        let is_culprit = |line: &&str| culprit.iter().all(|word| line.contains(word));
        assert!(wrong.iter().all(is_culprit), "{context}");
        let blamed =
            ended.printed.lines().filter(|line| line.contains("has computed wrong numbers"));
        let name = format!("{host} rank {rank} has");
        assert!(blamed.clone().all(|line| line.contains(&name)), "{context}");
        if ended.code != Some(0) {
            // Which is no result: neither a wrong one nor a hang.
            let origin =
                ended.printed.lines().find(|line| line.contains("The wrong number comes from"));
            let origin = origin.unwrap_or_else(|| panic!("refused without a reason: {context}"));
            let (_, named) = origin.split_once("The wrong number comes from").expect("found");
            let (named, _) = named.split_once(", its memory").expect("the whole sentence");
            assert!(named.contains(&format!("rank {rank} ({host})")), "{context}");
            return Fate::Refused;
        }
        assert!(ended.report.contains("PASSED"), "{context}");
        let replaced =
            ended.account["failures"].as_array().expect("a list").iter().any(|failure| {
                let replaced = failure["replaced"].as_array().expect("a list");
                assert!(replaced.iter().all(|change| change["lost"] == host), "{context}");
                !replaced.is_empty()
            });
        assert!(replaced || blamed.count() < 2 || !self.replaces, "{context}");
        // With one process row, each number that goes wrong is its rank's.
        assert!(self.grid.0 > 1 || repaired.is_empty(), "{context}");
        eprintln!("{flips} flips, {} named", wrong.len());
        if replaced { Fate::Replaced } else { Fate::Passed }
    }
}

/// A wrong number in a column that is factored before a check cannot be repaired, so not each run
/// comes to its end.
#[test]
fn a_node_that_computes_wrong_is_replaced_and_the_run_passes() {
    let first = seed("SKT_WRONG_SEED");
    for seed in first..first + 6 {
        let case = Case { grid: (1, 2), check_every: 1, flip_gflop: 1.0, seed, replaces: true };
        match case.play() {
            None | Some(Fate::Replaced) => return,
            Some(fate) => eprintln!("seed {seed}: {fate:?}"),
        }
    }
    panic!("seed {first}: six runs, and the culprit was never replaced");
}

/// Runs with a node that computes wrong. `scripts/dev/soak-wrong-ranks` runs it: `SKT_HPL_ROUNDS`
/// runs from seed `SKT_WRONG_SEED` on.
#[test]
#[ignore = "takes minutes"]
fn wrong_ranks_many_times() {
    let rounds = std::env::var("SKT_HPL_ROUNDS").map_or(6, |text| text.parse().expect("a number"));
    let first = seed("SKT_WRONG_SEED");
    let mut fates = Vec::new();
    for seed in first..first + rounds {
        let case = Case {
            grid: [(1, 2), (2, 1), (1, 3)][(seed % 3) as usize],
            check_every: [1, 1, 3][(seed / 3 % 3) as usize],
            flip_gflop: [0.5, 2.0, 5.0][(seed / 9 % 3) as usize],
            seed,
            replaces: seed % 2 == 0,
        };
        let Some(fate) = case.play() else { return };
        let Case { grid: (p, q), check_every, flip_gflop, replaces, .. } = case;
        eprintln!(
            "WRONG {seed}: {p} x ({q} + 2), check every {check_every}, a flip for \
             {flip_gflop} Gflop, replaces \
             {replaces}: {fate:?}"
        );
        fates.push(fate);
    }
    let count = |fate| fates.iter().filter(|other| **other == fate).count();
    eprintln!(
        "WRONG {} runs: {} replaced, {} passed, {} refused by name; nobody else was named",
        fates.len(),
        count(Fate::Replaced),
        count(Fate::Passed),
        count(Fate::Refused)
    );
}
