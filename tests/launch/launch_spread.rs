//! `skt-hpl launch --no-spare spread` on a cluster in a box: no node is a spare, and nodes run the
//! ranks of lost ones as well as their own.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::launch_program::{HEAT, install_heat, output, steps, wait_for_checkpoints};
use crate::supervised;
use crate::supervised::*;
use nix::sys::signal::Signal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use serde_json::json;

const SPREAD: &str = "--probe-limit 5s --no-spare spread";

/// A box for Open MPI, without spares.
fn cluster(nodes: usize) -> Option<Alone> {
    supervised::cluster(Kind::Openmpi, nodes, 0)
}

fn status(cluster: &Alone) -> String {
    let output = cluster.on_head("bin/skt-hpl").arg("status").output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two nodes are lost one after the other. The first is back by then, and takes the place of the
/// second.
#[test]
fn a_node_that_is_back_replaces_one_that_does_not_share() {
    let Some(mut cluster) = cluster(4) else { return };
    undisturbed_x(&cluster);
    let running = launch(&cluster, false, SPREAD, &run());
    wait_for_column(&cluster, 1, 800);
    cluster.power_off("n2");
    wait_for_column(&cluster, 2, 1200);
    assert_eq!(state(&cluster)["pool"]["guests"], json!({"1": 0}));
    let text = status(&cluster);
    assert!(text.contains("nodes  : n1 n3 n4") && text.contains("away   : n2"), "{text}");
    cluster.power_on("n2").unwrap();
    cluster.power_off("n3");
    let ended = running.end(&cluster);
    ended.passed_with_the_same_x(&cluster).replaced(0, "n2", "n1");
    ended.replaced(1, "n3", "n2");
    ended.resumed_beyond(0, 350);
    ended.resumed_beyond(1, 800);
    assert_eq!(ended.failures(), 2);
}

/// The supervisor is killed while nodes share, and the next one finds the lost node back.
#[test]
fn a_node_that_is_back_runs_its_ranks_from_the_next_start_on() {
    let Some(mut cluster) = cluster(4) else { return };
    undisturbed_x(&cluster);
    let first = launch(&cluster, false, SPREAD, &run());
    wait_for_column(&cluster, 1, 800);
    cluster.power_off("n2");
    wait_for_column(&cluster, 2, 1200);
    cluster.power_on("n2").unwrap();
    signal(&cluster.head_pids("skt-hpl"), Signal::SIGKILL);
    assert_ne!(first.end(&cluster).code, Some(0));
    let next = launch(&cluster, false, SPREAD, &run());
    let ranks = cluster.pids("n3", "skt-hpl");
    signal(&ranks, Signal::SIGKILL);
    let ended = next.end(&cluster);
    ended.passed_with_the_same_x(&cluster).prints("n2 has the ranks of n2 to itself");
    assert!(ended.failures() >= 2, "{}", ended.account);
}

/// What a random run is like.
#[derive(Debug)]
struct Case {
    nodes: usize,
    /// How it is protected, HPL-MxP, or a program in C.
    kind: &'static str,
    /// The step of a checkpoint, or of the run, in which a rank dies and the node is lost; at a
    /// random column otherwise.
    step: &'static str,
    column: u64,
    /// A program's checkpoints before the loss, and the time after them.
    checkpoints: u64,
    pause: Duration,
    victim: usize,
    then: Then,
}

/// What follows once the job computes without the node.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Nothing,
    /// One more node is lost: more than can be rebuilt if that has two ranks of a group.
    SecondLoss(usize),
    /// The node is back, and a rank dies.
    Returns,
}

/// heat.c, under `launch --program`.
const PROGRAM: &str = "program";
const KINDS: [&str; 7] =
    ["--ft self", "--ft double", "--ft self --level", "mxp", "--ft self", "--ft abft", PROGRAM];
const STEPS: [&str; 6] = ["", "", "encode", "flush", "back", ""];

/// The kind of all runs, if `SKT_HPL_KIND` names one.
fn named_kind() -> Option<&'static str> {
    let name = std::env::var("SKT_HPL_KIND").ok()?;
    let kind = KINDS.into_iter().find(|kind| *kind == name);
    Some(kind.unwrap_or_else(|| panic!("SKT_HPL_KIND={name}: none of {KINDS:?}")))
}

impl Case {
    fn from_seed(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut roll = |sides: usize| (random.next_u64() % sides as u64) as usize;
        let (nodes, kind) = ([4, 8][roll(2)], KINDS[roll(KINDS.len())]);
        let named = named_kind();
        let kind = named.unwrap_or(kind);
        // heat.c has four ranks.
        let nodes = if named.is_some() || kind == PROGRAM { 4 } else { nodes };
        let step = match (kind, STEPS[roll(STEPS.len())]) {
            // They have no checkpoints, or no flag that kills a rank.
            ("--ft abft" | PROGRAM, _) => "",
            // Its checkpoints have no flush.
            ("--ft double", "flush") => "encode",
            (_, step) => step,
        };
        let column = 200 + 64 * roll(24) as u64;
        // The memory of rank 0, which dies at a step, records that it has.
        let victim = roll(nodes).max(usize::from(!step.is_empty()));
        let then = match roll(4) {
            0 => Then::SecondLoss((victim + 1 + roll(nodes - 1)) % nodes),
            1 => Then::Returns,
            _ => Then::Nothing,
        };
        let (checkpoints, pause) = (1 + roll(24) as u64, Duration::from_millis(roll(100) as u64));
        // A run without checkpoints ends soon after the last columns, and may report none of them.
        let column = if kind == "--ft abft" { column / 3 } else { column };
        Self { nodes, kind, step, column, checkpoints, pause, victim, then }
    }

    fn is_program(&self) -> bool {
        self.kind == PROGRAM
    }

    /// What is computed, without checkpoints where there are kinds of them.
    fn problem(&self) -> &'static str {
        match self.kind {
            "mxp" | PROGRAM => self.kind,
            _ => "--ft none",
        }
    }

    /// What runs on the nodes, and its own flags.
    fn launch(&self, cluster: &Alone, flags: &str, kind: &str, inject: &str) -> Launch {
        if self.is_program() {
            return launch(cluster, false, &format!("{flags} {HEAT}"), &steps());
        }
        launch(cluster, false, flags, &(self.run(kind) + inject))
    }

    /// What a run that has ended well has computed.
    fn result(&self, ended: &Ended) -> String {
        if self.is_program() {
            assert_eq!(ended.code, Some(0), "{}", ended.printed);
            return output(ended);
        }
        ended.passed().x().to_owned()
    }

    fn run(&self, kind: &str) -> String {
        // A node has no more than one rank of each process row.
        let (p, q) = if kind == "--ft abft" { (2, self.nodes / 2 - 1) } else { (1, self.nodes) };
        let (mxp, ft) = match kind {
            "mxp" => ("mxp --matrix scaled ", "--checkpoint-every 6p!"),
            "--ft self --level" => {
                ("", "--ft self --checkpoint-every 6p! --level global:/mnt/images,every=2s!")
            }
            "--ft self" => ("", "--ft self --checkpoint-every 6p!"),
            "--ft double" => ("", "--ft double --checkpoint-every 6p!"),
            ft => ("", ft),
        };
        format!("{mxp}--n {N} --nb 64 --p {p} --q {q} --progress off {ft}")
    }

    /// Loses the victim's node at its moment.
    fn lose(&self, cluster: &mut Alone) {
        let node = self.node(self.victim);
        match self.step {
            "" if self.is_program() => {
                wait_for_checkpoints(cluster, 1, self.checkpoints);
                std::thread::sleep(self.pause);
                cluster.power_off(&node);
            }
            "" => {
                wait_for_column(cluster, 1, self.column);
                cluster.power_off(&node);
            }
            "back" if self.kind == "mxp" => power_off_at(cluster, 1, "refine", &node),
            step => power_off_at(cluster, 1, step, &node),
        }
    }

    /// The node at a place of the host file, which begins again after its end.
    fn node(&self, place: usize) -> String {
        format!("n{}", place % self.nodes + 1)
    }

    /// Plays the case. A panic is a failure.
    fn play(&self, known: &mut BTreeMap<(usize, &str), String>) -> &'static str {
        let mut cluster = cluster(self.nodes).expect("a box can be made");
        if self.is_program() {
            install_heat(&cluster);
        }
        let result = known.entry((self.nodes, self.problem())).or_insert_with(|| {
            let plain = self.launch(&cluster, "--state reference", self.problem(), "");
            self.result(&plain.end(&cluster))
        });
        std::fs::create_dir_all(cluster.shared().join("images")).expect("a folder");
        let inject = match self.step {
            "" => String::new(),
            "back" => " --inject back".to_owned(),
            step => format!(" --inject {step}:epoch=2"),
        };
        let job = self.launch(&cluster, SPREAD, self.kind, &inject);
        self.lose(&mut cluster);
        let mut is_second = false;
        if self.then != Then::Nothing && self.step != "back" {
            let is_over = || state(&cluster)["status"] != "running";
            wait_for("the job to compute on the other nodes", || {
                let computing = &state(&cluster)["failures"][0]["computing_unix"];
                computing.is_number() || is_over()
            });
            is_second = !is_over();
        }
        match self.then {
            Then::SecondLoss(place) if is_second => {
                cluster.power_off_silently(&self.node(place));
            }
            Then::Returns if is_second => {
                cluster.power_on(&self.node(self.victim)).expect("a node");
                let process = if self.is_program() { "heat" } else { "skt-hpl" };
                signal(&cluster.pids(&self.node(self.victim + 1), process), Signal::SIGKILL);
            }
            _ => {}
        }
        let ended = job.end(&cluster);
        match (self.then, ended.code) {
            (Then::SecondLoss(_), Some(2)) if self.is_program() => {
                ended.prints("with 1 parity a group");
                return "refused by name";
            }
            (Then::SecondLoss(_), Some(2)) if self.kind != "--ft abft" => {
                ended.prints("more is lost than the checkpoint can rebuild");
                return "refused by name";
            }
            (Then::SecondLoss(_), Some(75)) if self.kind == "--ft abft" => {
                ended.prints("of its process row already");
                return "no node may run its ranks";
            }
            _ => {}
        }
        // A rebuilt column has other last bits.
        let computed = self.result(&ended);
        assert!(computed == *result || self.kind == "--ft abft", "{}", ended.printed);
        assert!(ended.failures() > 0, "{}", ended.account);
        assert_clean(&cluster);
        let is_back = ended.printed.contains("to itself") || ended.printed.contains("takes its");
        if is_back { "passed, the node was back" } else { "passed" }
    }
}

/// Random losses without spares, each in a separate run. `scripts/dev/soak-node-loss --spread` runs
/// it.
#[test]
#[ignore = "takes minutes"]
fn nodes_share_the_ranks_of_lost_ones_many_times() {
    let (mut known, mut ends) = (BTreeMap::new(), BTreeMap::<&str, usize>::new());
    soak("SPREAD", 40, 3600, |seed| {
        let case = Case::from_seed(seed);
        eprintln!("SPREAD {seed} begins: {case:?}");
        let end = case.play(&mut known);
        eprintln!("SPREAD {seed}: {end}");
        *ends.entry(end).or_default() += 1;
    });
    eprintln!("SPREAD {ends:?}");
}
