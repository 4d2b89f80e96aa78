//! `skt-hpl launch` on nodes whose links die one after the other while the nodes still answer: the
//! second link dies before the run has recovered from the loss of the first.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use crate::supervised::*;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Whose link dies second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Second {
    /// The node in use that follows the first one at this distance, cyclically.
    Node(usize),
    /// The spare that takes the place of the first node.
    Spare,
}

/// When the second link dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    /// While the loss of the first is probed.
    Probing,
    /// This number of milliseconds after the second start begins.
    AfterStart(u64),
    /// While the data of the first node is rebuilt.
    Rebuilding,
    /// After the job computes again.
    Computing,
}

/// A pair of losses on four nodes and two spares.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// Index of the node whose link dies first, from 0.
    first: usize,
    second: Second,
    when: When,
    /// Whether the nodes' links cannot be tested: all tries fail on all nodes.
    is_blind: bool,
}

const MOMENTS: [When; 6] = [
    When::Probing,
    When::AfterStart(200),
    When::AfterStart(1000),
    When::AfterStart(3000),
    When::Rebuilding,
    When::Computing,
];
const SECONDS: [Second; 4] = [Second::Node(1), Second::Node(2), Second::Node(3), Second::Spare];
/// Number of pairs.
const PAIRS: usize = 4 * SECONDS.len() * MOMENTS.len() * 2;

/// Long enough for the job to be at work three seconds after its second start, with slow ranks.
const RUN: &str = "--n 4800 --nb 64 --p 1 --q 4 --checkpoint-every 6p! --progress off --parities 2";

/// The x that all runs must have, kept for the tests of this process.
fn reference_x() -> Option<String> {
    static X: OnceLock<Option<String>> = OnceLock::new();
    let play = || {
        let cluster = openmpi_box(4, 0)?;
        let run = RUN.replace("--parities 2", "--ft none");
        let ended = launch(&cluster, false, "--launcher-arg=-x --launcher-arg=LD_PRELOAD=", &run);
        Some(ended.end(&cluster).passed().x().to_owned())
    };
    X.get_or_init(play).clone()
}

impl Pair {
    /// Pair `index` of all [`PAIRS`].
    fn from_index(index: usize) -> Self {
        let (first, rest) = (index % 4, index / 4);
        let (second, rest) = (SECONDS[rest % SECONDS.len()], rest / SECONDS.len());
        let (when, rest) = (MOMENTS[rest % MOMENTS.len()], rest / MOMENTS.len());
        Self { first, second, when, is_blind: rest == 1 }
    }

    fn nodes(&self) -> [String; 2] {
        let first = format!("n{}", 1 + self.first);
        let second = match self.second {
            Second::Node(distance) => format!("n{}", 1 + (self.first + distance) % 4),
            Second::Spare => "n5".to_owned(),
        };
        [first, second]
    }

    /// Plays the pair. The first link dies at `column`; `jitter` moves the moment of the second.
    /// Returns the seconds from the second loss until the job computed again, if it had to.
    fn play(&self, column: u64, jitter: Duration, x: &str) -> Option<f64> {
        let cluster = openmpi_box(4, 2).expect("a box can be made");
        if self.is_blind {
            cluster.nodes_on().iter().for_each(|node| cluster.block_link_tests(node));
        }
        let [first, second] = self.nodes();
        let launch = launch(&cluster, true, &slow_ranks(&cluster), RUN);
        wait_for_column(&cluster, 1, column);
        cluster.cut_network_of_the_job(&first);
        match self.when {
            When::Probing => {
                launch.wait_for_words("start 1 failed");
                std::thread::sleep(jitter);
            }
            When::AfterStart(ms) => {
                launch.wait_for_words("start 2: ");
                std::thread::sleep(Duration::from_millis(ms) + jitter / 10);
            }
            When::Rebuilding => launch.wait_for_phase(&cluster, "recover-rebuild"),
            When::Computing => {
                launch.wait_for_words("computing again at ");
                std::thread::sleep(jitter);
            }
        }
        let lost_unix = unix();
        cluster.cut_network_of_the_job(&second);
        let ended = launch.end(&cluster);
        assert_eq!(ended.passed().x(), x);
        let out = ended.account["nodes"]["out"].as_array().expect("a list").iter();
        let out: BTreeSet<&str> = out.filter_map(|out| out["host"]["name"].as_str()).collect();
        let dead: BTreeSet<&str> = [first.as_str(), second.as_str()].into();
        // The second link may have died when it was not used any more, or not yet.
        assert!(out.is_subset(&dead), "{out:?} of {dead:?}");
        let failures = ended.account["failures"].as_array().expect("failures").iter();
        let computing = failures.filter_map(|failure| failure["computing_unix"].as_f64());
        let mut seconds = computing.map(|unix| unix - lost_unix).filter(|seconds| *seconds > 0.0);
        seconds.next_back()
    }
}

/// Where links cannot be tested: the second link dies in the second start, and there is one spare.
/// The run is refused by name; the nodes that are left share the ranks if the user wants that.
#[test]
fn dead_links_that_cannot_be_tested_are_survived_or_named() {
    let Some(cluster) = openmpi_box(4, 1) else { return };
    cluster.nodes_on().iter().for_each(|node| cluster.block_link_tests(node));
    let run = format!("{} --parities 2", run_of(LONG_N));
    let first = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 500);
    cluster.cut_network_of_the_job("n2");
    first.wait_for_words("start 2: ");
    cluster.cut_network_of_the_job("n4");
    let ended = first.end(&cluster);
    assert_eq!(ended.code, Some(75), "{}", ended.printed);
    let why = ended.printed.lines().rfind(|line| line.contains("giving up: ")).expect("a reason");
    assert!(why.contains("out of the launcher's reach"), "{why}");
    // The spare has taken the place of the other one.
    assert!(why.contains("n2") != why.contains("n4") && !why.contains("n1"), "{why}");
    assert!(why.ends_with("no spare node is left"), "{why}");

    let ended = launch(&cluster, true, "--no-spare spread", &run).end(&cluster);
    ended.passed().prints(" out of the launcher's reach, although it answers the agent; ");
    ended.prints(" runs its ranks, too");
    ["n2", "n4"].iter().for_each(|node| cluster.heal(node));
    ended.passed_with_the_same_x(&cluster);
}

/// Pairs of dead links, each in a separate run. `scripts/dev/soak-node-loss --pairs` runs it.
#[test]
#[ignore = "takes minutes"]
fn pairs_of_dead_links() {
    let x = reference_x().expect("a box can be made");
    soak("PAIR", 60, 7200, |seed| {
        // A step that has no common divisor with the number of pairs: few rounds are spread over
        // all kinds of pairs, and many play all.
        let pair = Pair::from_index((seed as usize).wrapping_mul(37) % PAIRS);
        let mut random = SplitMix64::seed_from_u64(seed);
        let column = 400 + random.next_u64() % 500;
        let jitter = Duration::from_millis(random.next_u64() % 1000);
        eprintln!("PAIR {seed} begins: {pair:?}, column {column}, jitter {jitter:?}");
        let seconds = pair.play(column, jitter, &x);
        eprintln!("PAIR {seed} passed, {seconds:.2?} s");
    });
}
