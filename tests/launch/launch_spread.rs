//! `skt-hpl launch --no-spare spread` on a cluster in a box: no node is a spare, and nodes run the
//! ranks of lost ones as well as their own.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster_box::OPENMPI_ARGUMENTS;
use crate::launch_program::{HEAT, install_heat, output, steps, wait_for_checkpoints};
use crate::supervised::*;
use nix::sys::signal::Signal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use serde_json::json;

const SPREAD: &str = "--probe-limit 5s --no-spare spread";

/// Two nodes are lost one after the other. The first is back by then, and takes the place of the
/// second. The supervisor is killed while nodes share, and the next one finds that one back.
#[test]
fn a_node_that_is_back_replaces_another_and_runs_its_own_ranks() {
    let Some(mut cluster) = openmpi_box(4, 0) else { return };
    undisturbed_x(&cluster, LONG_N);
    let running = launch(&cluster, false, SPREAD, &run_of(LONG_N));
    wait_for_column(&cluster, 1, 800);
    cluster.power_off("n2");
    wait_for_column(&cluster, 2, 1100);
    assert_eq!(state(&cluster)["pool"]["guests"], json!({"1": 0}));
    let text = status(&cluster);
    assert!(text.contains("nodes  : n1 n3 n4") && text.contains("away   : n2"), "{text}");
    cluster.power_on("n2").unwrap();
    cluster.power_off("n3");
    wait_for_column(&cluster, 3, 1300);
    cluster.power_on("n3").unwrap();
    signal(&cluster.head_pids("skt-hpl"), Signal::SIGKILL);
    assert_ne!(running.end(&cluster).code, Some(0));
    let next = launch(&cluster, false, SPREAD, &run_of(LONG_N));
    signal(&cluster.pids("n4", "skt-hpl"), Signal::SIGKILL);
    let ended = next.end(&cluster);
    ended.passed_with_the_same_x(&cluster).prints("n3 has the ranks of n3 to itself");
    ended.replaced(0, "n2", "n1");
    ended.replaced(1, "n3", "n2");
    ended.resumed_beyond(0, 350);
    ended.resumed_beyond(1, 750);
    assert!(ended.failures() >= 3, "{}", ended.account);
}

/// The lines about x of the last start's report, one for each test.
fn all_x(report: &str) -> Vec<&str> {
    let last = report.rsplit("what follows is the report of start").next().expect("a part");
    last.lines().filter(|line| line.starts_with("# x: ")).collect()
}

/// Three nodes with a rank each: without one of them, the three ranks make one group, of which a
/// node has two.
const THREE: &str = "--n 2400 --p 1 --q 3 --progress off";

/// A run that had begun may continue on fewer nodes, by hand, and a new one may not begin there.
/// Under `launch`, groups are formed without the lost node: nothing was kept before it was lost,
/// and a test begins.
#[test]
fn groups_are_formed_without_a_lost_node() {
    let Some(mut cluster) = openmpi_box(3, 0) else { return };
    let start = |cluster: &Alone, flags: &str| {
        let mut command = cluster.on_head("mpirun");
        command.args(["--mca", "plm_rsh_agent", "/mnt/bin/agent", "--hostfile", "hosts"]);
        command.args(OPENMPI_ARGUMENTS).args(["-np", "3", "bin/skt-hpl"]);
        command.args(THREE.split(' ')).args(flags.split(' '));
        let output = command.output().expect("mpirun");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let (plain, _) = start(&cluster, "--ft none --nb 64,48");
    let flags = "--nb 64 --checkpoint-every 20p! --run-id hand";
    start(&cluster, &format!("{flags} --inject column:640"));
    cluster.power_off("n2");
    let hosts = "n1 slots=1\nn2 slots=1\nn3 slots=1\n";
    cluster.write("hosts", "n1 slots=2\nn3 slots=1\n");
    let (_, refused) = start(&cluster, "--nb 64 --checkpoint-every 20p! --run-id other");
    assert!(refused.contains("failure domain `n1` holds 2 of 3 ranks"), "{refused}");
    let (report, printed) = start(&cluster, flags);
    assert!(report.contains("PASSED"), "{printed}\n{report}");
    assert_eq!(all_x(&report), all_x(&plain)[..1]);
    assert!(printed.contains("n1 has 2 ranks of one group: its loss is not"), "{printed}");

    cluster.power_on("n2").unwrap();
    cluster.write("hosts", hosts);
    let run = format!("{THREE} --nb 64,48 --checkpoint-every 20p!");
    let running = launch(&cluster, false, SPREAD, &run);
    wait_for_column(&cluster, 1, 600);
    cluster.power_off("n2");
    let ended = running.end(&cluster);
    ended.passed().replaced(0, "n2", "n1");
    assert_eq!(all_x(&ended.report), all_x(&plain), "{}", ended.printed);
    ended.prints("warning: failure domain n1 has 2 ranks of one group: its loss is not");
    assert_eq!(ended.failures(), 1);
    assert_clean(&cluster);
}

/// What a random run is like.
#[derive(Debug)]
struct Case {
    nodes: usize,
    slots: usize,
    /// How it is protected, HPL-MxP, or a program in C.
    kind: &'static str,
    /// The step of a checkpoint, or of the run, in which a rank dies and the node is lost; at a
    /// random column otherwise, before any checkpoint, or in a second test.
    step: &'static str,
    loss: Loss,
    column: u64,
    /// A program's checkpoints before the loss, and the time after them.
    checkpoints: u64,
    pause: Duration,
    victim: usize,
    then: Then,
}

/// How a node is lost at a random column.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    PowerOff,
    SilentPowerOff,
    /// The node's link is dead, and it answers.
    DeadLink,
    /// As above, and no test shows it.
    UntestedLink,
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
const STEPS: [&str; 6] = ["", "encode", "flush", "back", FIRST, SECOND];
/// Before the first checkpoint.
const FIRST: &str = "first";
/// In the second of two tests.
const SECOND: &str = "second";
/// The order of that test.
const SECOND_N: u64 = 2000;

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
        let (nodes, slots) = (3 + roll(4), 1 + roll(2));
        let kind = KINDS[roll(KINDS.len())];
        let kind = named_kind().unwrap_or(kind);
        let (nodes, slots) = match kind {
            // heat.c has four ranks.
            PROGRAM => (4, 1),
            // A node has no rank of every second process row.
            "--ft abft" => ([4, 6][roll(2)], 1),
            _ => (nodes, slots),
        };
        let step = match (kind, STEPS[roll(STEPS.len())]) {
            ("--ft abft", SECOND) => SECOND,
            // They have no checkpoints, or no flag that kills a rank.
            ("--ft abft" | PROGRAM, _) => "",
            ("mxp", SECOND) => "",
            // Its checkpoints have no flush.
            ("--ft double", "flush") => "encode",
            (_, step) => step,
        };
        let column = match (step, roll(24) as u64) {
            (FIRST, roll) => 64 + 8 * roll,
            (_, roll) => 200 + 64 * roll,
        };
        let is_at_column = ["", FIRST, SECOND].contains(&step);
        // The memory of rank 0, which dies at a step, records that it has.
        let victim = roll(nodes).max(usize::from(!is_at_column));
        use Loss::{DeadLink, PowerOff, SilentPowerOff, UntestedLink};
        let loss = match [PowerOff, SilentPowerOff, DeadLink, UntestedLink][roll(4)] {
            loss if is_at_column => loss,
            _ => PowerOff,
        };
        let then = match roll(4) {
            0 => Then::SecondLoss((victim + 1 + roll(nodes - 1)) % nodes),
            1 if [PowerOff, SilentPowerOff].contains(&loss) => Then::Returns,
            _ => Then::Nothing,
        };
        let (checkpoints, pause) = (1 + roll(24) as u64, Duration::from_millis(roll(100) as u64));
        // A run without checkpoints ends soon after the last columns, and may report none of them.
        let column = if kind == "--ft abft" { column / 3 } else { column };
        Self { nodes, slots, kind, step, loss, column, checkpoints, pause, victim, then }
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
        all_x(&ended.passed().report).join("\n")
    }

    fn run(&self, kind: &str) -> String {
        let ranks = self.nodes * self.slots;
        let (p, q) = if kind == "--ft abft" { (2, ranks / 2 - 1) } else { (1, ranks) };
        let (mxp, ft) = match kind {
            "mxp" => ("mxp --matrix scaled ", "--checkpoint-every 6p!"),
            "--ft self --level" => {
                ("", "--ft self --checkpoint-every 6p! --level global:/mnt/images,every=2s!")
            }
            "--ft self" => ("", "--ft self --checkpoint-every 6p!"),
            "--ft double" => ("", "--ft double --checkpoint-every 6p!"),
            ft => ("", ft),
        };
        let second = if self.step == SECOND { format!(",{SECOND_N}") } else { String::new() };
        format!("{mxp}--n {N}{second} --nb 64 --p {p} --q {q} --progress off {ft}")
    }

    /// Loses the victim's node at its moment.
    fn lose(&self, cluster: &mut Alone) {
        let node = self.node(self.victim);
        match self.step {
            "" | FIRST | SECOND => {
                match self.step {
                    "" if self.is_program() => {
                        wait_for_checkpoints(cluster, 1, self.checkpoints);
                        std::thread::sleep(self.pause);
                    }
                    SECOND => wait_for("the second test", || {
                        let is_there = |beat: &serde_json::Value| {
                            beat["n"] == SECOND_N && beat["column"].as_u64() >= Some(self.column)
                        };
                        beats(cluster, 1).iter().any(is_there)
                    }),
                    _ => wait_for_column(cluster, 1, self.column),
                }
                match self.loss {
                    Loss::PowerOff => cluster.power_off(&node),
                    Loss::SilentPowerOff => cluster.power_off_silently(&node),
                    Loss::DeadLink | Loss::UntestedLink => cluster.cut_network_of_the_job(&node),
                }
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
    fn play(&self, known: &mut BTreeMap<(usize, bool, &str), String>) -> &'static str {
        let mut cluster = openmpi_box(self.nodes, 0).expect("a box can be made");
        let hosts =
            (0..self.nodes).map(|place| format!("{} slots={}\n", self.node(place), self.slots));
        cluster.write("hosts", &hosts.collect::<String>());
        if self.loss == Loss::UntestedLink {
            cluster.nodes_on().iter().for_each(|node| cluster.block_link_tests(node));
        }
        if self.is_program() {
            install_heat(&cluster);
        }
        let of_result = (self.nodes * self.slots, self.step == SECOND, self.problem());
        let result = known.entry(of_result).or_insert_with(|| {
            let plain = self.launch(&cluster, "--state reference", self.problem(), "");
            self.result(&plain.end(&cluster))
        });
        std::fs::create_dir_all(cluster.shared().join("images")).expect("a folder");
        let inject = match self.step {
            "" | FIRST | SECOND => String::new(),
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
            (Then::SecondLoss(_), Some(75)) if ended.printed.contains("; not left out, as") => {
                return "no more may be left out";
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
        cluster.nodes_on().iter().for_each(|node| cluster.heal(node));
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
