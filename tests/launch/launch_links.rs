//! `skt-hpl launch` on nodes whose link is dead but which answer: the agent of the cluster in a box
//! does not use the network.

use std::collections::BTreeMap;

use crate::supervised;
use crate::supervised::*;
use nix::sys::signal::Signal;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Asserts that node `lost` was replaced after failure `index`, and that the run names its link as
/// the reason.
fn assert_link_named(ended: &Ended, index: usize, lost: &str) {
    let replaced = ended.failure(index)["replaced"].as_array().expect("a list").clone();
    let change = replaced.iter().find(|change| change["lost"] == lost);
    let why = change.unwrap_or_else(|| panic!("{replaced:?}"))["why"].as_str().expect("text");
    // The node may be too busy, with ranks that the launcher does not reach, to answer in time.
    assert!(
        ["its link is dead", "a connection to it broke"].iter().any(|one| why.contains(one)),
        "{why}"
    );
    if replaced.len() == 1 {
        ended.prints(&format!("{lost} lost: "));
    } else {
        // Several are joined by their reasons, in ranges of names.
        let mut lines = ended.printed.lines();
        let is_named = |line: &str| line.contains("lost: ") && line.contains(why);
        assert!(lines.any(is_named), "{why}: {}", ended.printed);
    }
}

/// The nodes that the ranks run on, in order.
fn nodes_in_use(cluster: &Alone) -> Vec<String> {
    let hosts = std::fs::read_to_string(cluster.shared().join("skt-hpl.launch/hosts"));
    let node = |line: &str| line.split_whitespace().next().expect("a name").to_owned();
    hosts.expect("a start has it").lines().map(node).collect()
}

/// Links of a node and of a spare are dead before they are used. Then one dies while the data of
/// another node is rebuilt, and those of two nodes at once. Which spare is next depends on which
/// have answered.
#[test]
fn dead_links_are_found_whenever_they_die() {
    let Some(mut cluster) = openmpi_box(4, 6) else { return };
    cluster.cut_network_of_the_job("n2");
    let run = format!("{} --parities 2 --inject 3@recover:rebuild", run_of(LONG_N));
    let launch = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 800);
    let second = nodes_in_use(&cluster).swap_remove(1);
    let unused = if second == "n5" { "n6" } else { "n5" };
    cluster.cut_network_of_the_job(unused);
    cluster.power_off("n3");
    // Rank 3, on n4, dies there.
    wait_for("recovery", || {
        let is_there = beats(&cluster, 2).iter().any(|beat| beat["phase"] == "recover-rebuild");
        is_there && cluster.pids("n4", "skt-hpl").is_empty()
    });
    cluster.cut_network_of_the_job("n1");
    wait_for_column(&cluster, 3, 1500);
    let [first, _, third, _] = &nodes_in_use(&cluster)[..] else { panic!("four ranks") };
    let cut = unix();
    [&second, third].iter().for_each(|node| cluster.cut_network_of_the_job(node));
    let ended = launch.end(&cluster);
    ended.passed().prints("n2 its link is dead");
    assert_eq!(ended.account["nodes"]["out"][0]["host"]["name"], "n2", "{}", ended.account);
    ended.replaced(0, "n3", third);
    ended.replaced(1, "n1", first);
    assert_link_named(&ended, 1, "n1");
    for node in [&second, third] {
        let spare = ended.spare_for(2, node);
        assert!(![unused, &second, first, third].contains(&spare), "{spare}");
        assert_link_named(&ended, 2, node);
    }
    assert!(![&second, first, third].contains(&&unused.to_owned()), "its link is dead");
    ended.print("two dead links", 2, cut);
    assert_eq!(ended.failures(), 3, "{}", ended.account);
    ended.resumed_beyond(2, 1100);
    ["n1", "n2", unused, &second, third].iter().for_each(|node| cluster.heal(node));
    ended.passed_with_the_same_x(&cluster);
}

/// How nodes are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// The nodes are powered off; their peers get a last packet.
    PowerOff,
    /// The nodes are powered off; their peers get no packet.
    SilentPowerOff,
    /// The nodes stay alive, but their links are dead.
    DeadLink,
    /// The nodes are well, but a rank on each is stopped.
    StoppedRank,
}

/// When nodes are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    /// Before the first start.
    AtStart,
    Computing,
    /// When the job starts again after the power-off of another node.
    InRecovery,
    /// A spare is lost, then a node in use is powered off.
    OnSpare,
}

/// One random run.
#[derive(Debug)]
struct Case {
    kind: Kind,
    loss: Loss,
    nodes: usize,
    when: When,
    flags: &'static str,
    column: u64,
    first: usize,
}

/// Flags of the runs, with the number of losses that they survive.
const METHODS: [(&str, usize); 6] = [
    ("--p 1 --q 4 --checkpoint-every 6p", 1),
    ("--p 1 --q 4 --checkpoint-every 6p --parities 2", 2),
    ("--p 1 --q 3 --ft abft", 1),
    ("--p 1 --q 2 --ft abft --parities 2", 2),
    ("--p 1 --q 4 --checkpoint-every 6p --level local:/mnt/disk,every=1s!", 1),
    ("--p 1 --q 3 --ft abft --level local:/mnt/disk,every=1s!", 1),
];

impl Case {
    /// The case of a seed: a dead link in three of five cases.
    fn from_seed(seed: u64, kind: Kind) -> Self {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut below = |most: u64| (random.next_u64() % most) as usize;
        let (flags, most) = METHODS[below(6)];
        let loss = [Loss::PowerOff, Loss::SilentPowerOff, Loss::StoppedRank]
            .get(below(8))
            .map_or(Loss::DeadLink, |loss| *loss);
        let when = match (loss, below(5)) {
            (Loss::DeadLink, 0) => When::AtStart,
            (Loss::DeadLink, 1) => When::OnSpare,
            // One of the losses is the other node's.
            (_, 2) if most > 1 => When::InRecovery,
            _ => When::Computing,
        };
        let nodes = match when {
            When::AtStart | When::Computing => 1 + below(most as u64),
            When::InRecovery | When::OnSpare => 1,
        };
        Self { kind, loss, nodes, when, flags, column: 400 + below(1500) as u64, first: below(4) }
    }

    fn lose(&self, cluster: &mut Alone, node: &str) {
        match self.loss {
            Loss::PowerOff => cluster.power_off(node),
            Loss::SilentPowerOff => cluster.power_off_silently(node),
            Loss::DeadLink => cluster.cut_network_of_the_job(node),
            Loss::StoppedRank => signal(&cluster.pids(node, "skt-hpl"), Signal::SIGSTOP),
        }
    }

    /// Plays the case. Returns the seconds from the last loss until the job computed again, if it
    /// had computed before, and whether it began from the seed again. A panic is a failure.
    fn play(&self) -> Option<(Option<f64>, bool)> {
        let mut cluster = supervised::cluster(self.kind, 4, 4)?;
        let name = |shift: usize| format!("n{}", 1 + (self.first + shift) % 4);
        let victims: Vec<String> = (1..=self.nodes).map(name).collect();
        if self.when == When::AtStart {
            victims.iter().for_each(|node| self.lose(&mut cluster, node));
        }
        if self.when == When::OnSpare {
            self.lose(&mut cluster, "n5");
        }
        let run = format!("--n 4000 --nb 128 --progress off {}", self.flags);
        let launch =
            launch(&cluster, true, &format!("--start-over {}", slow_ranks(&cluster)), &run);
        let mut lost_unix = unix();
        if self.when != When::AtStart {
            wait_for_column(&cluster, 1, self.column);
            lost_unix = unix();
        }
        match self.when {
            When::AtStart => {}
            When::Computing => victims.iter().for_each(|node| self.lose(&mut cluster, node)),
            When::OnSpare => cluster.power_off(&name(1)),
            When::InRecovery => {
                cluster.power_off(&name(0));
                wait_for("another start", || !beats(&cluster, 2).is_empty());
                lost_unix = unix();
                self.lose(&mut cluster, &name(1));
            }
        }
        let ended = launch.end(&cluster);
        ended.passed();
        let again = ended.account["failures"].as_array().expect("failures");
        let computing =
            again.iter().filter_map(|failure| failure["computing_unix"].as_f64()).next_back();
        let seconds = computing.map(|unix| unix - lost_unix).filter(|seconds| *seconds > 0.0);
        let is_over = ended.printed.contains("starting over from the seed");
        Some((seconds.filter(|_| self.when != When::AtStart), is_over))
    }
}

/// Random losses, each in a separate run. `scripts/dev/soak-node-loss --random` runs it.
#[test]
#[ignore = "takes minutes"]
fn random_losses() {
    let mut table: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    soak("SOAK", 20, 3600, |seed| {
        let kind = match std::env::var("SKT_HPL_AGENT").as_deref() {
            Ok("ssh") => Kind::Ssh,
            Ok("box") => Kind::Openmpi,
            _ => [Kind::Openmpi, Kind::Ssh][(seed % 2) as usize],
        };
        let case = Case::from_seed(seed, kind);
        eprintln!("SOAK {seed} begins: {case:?}");
        let (seconds, is_over) = case.play().expect("a box can be made");
        eprintln!("SOAK {seed} passed, {seconds:.2?} s, from the seed: {is_over}");
        let key = format!("{:?} {:?} x{} {:?}", kind, case.loss, case.nodes, case.when);
        let seconds_of_kind = table.entry(key).or_default();
        seconds_of_kind.extend(seconds);
        seconds_of_kind.sort_by(f64::total_cmp);
    });
    eprintln!("SOAK seconds from the last loss to computing: runs, median, largest");
    for (key, seconds) in table {
        let (median, largest) = (seconds.get(seconds.len() / 2), seconds.last());
        let cell = |seconds: Option<&f64>| seconds.map_or("-".into(), |s| format!("{s:.2}"));
        eprintln!("SOAK {key:<44} {:>4} {:>7} {:>7}", seconds.len(), cell(median), cell(largest));
    }
}
