//! HPL-MxP under `skt-hpl launch` on a cluster in a box: nodes are lost in the factorization and in
//! the refinement, and x keeps its bits.

use std::fs;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::mpirun::mpi_program;
use crate::supervised::*;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Four ranks in one group, with 7 checkpoints in the factorization.
const RUN: &str = "mxp --n 2400 --nb 64 --p 1 --q 4 --matrix scaled --checkpoint-every 6p! \
                   --progress off";
/// The operands of products, in turn.
const OPERANDS: [&str; 2] = ["fp32", "bf16-emulated"];
/// The first checkpoint of the refinement.
const REFINED: u64 = 8;

/// The x of a run without checkpoints and with products of these operands, on four nodes that are
/// on, and its seconds.
fn undisturbed(cluster: &Alone, gemm: &str) -> (String, f64) {
    let hosts = fs::read_to_string(cluster.shared().join("hosts")).expect("written");
    let on = cluster.nodes_on();
    let four: String = on.iter().take(4).map(|node| format!("{node} slots=1\n")).collect();
    cluster.write("hosts", &four);
    let start = Instant::now();
    let ended =
        launch(cluster, false, "--state reference", &format!("{RUN} --gemm {gemm} --ft none"))
            .end(cluster);
    cluster.write("hosts", &hosts);
    (ended.passed().x().to_owned(), start.elapsed().as_secs_f64())
}

#[test]
fn hpl_mxp_loses_a_node_as_it_factors_and_one_as_it_refines() {
    let Some(mut cluster) = openmpi_box(4, 2) else { return };
    let launch = launch(&cluster, true, "", &format!("{RUN} --inject back"));
    wait_for_column(&cluster, 1, 800);
    cluster.power_off("n2");
    power_off_at(&mut cluster, 2, "refine", "n3");
    let ended = launch.end(&cluster);
    ended.passed().replaced(0, "n2", "n5");
    ended.replaced(1, "n3", "n6");
    ended.resumed_beyond(0, 350);
    ended.resumed_beyond(1, 2399);
    assert_eq!(ended.failure(1)["phase"], "refine");
    assert_eq!(ended.failures(), 2, "{}", ended.account);
    assert_clean(&cluster);
    assert_eq!(ended.x(), undisturbed(&cluster, OPERANDS[0]).0);
}

/// Bytes of the largest of four ranks on this machine, checkpoints included.
fn rank_bytes(run: &str) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
    command.current_dir(folder.path()).args(["launch", "--np", "4", "--launcher", "openmpi"]);
    command.args(["--launcher-arg=--oversubscribe", "--"]).args(run.split(' '));
    command.args(["--nb", "64", "--p", "1", "--q", "4", "--json", "report.json"]);
    command.args(["--allow-shared-domains", "--run-id", &format!("fits-{}", std::process::id())]);
    let output = command.output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(folder.path().join("report.json")).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    report["tests"][0]["rank_bytes"].as_u64().expect("a number")
}

/// A matrix in single precision with a parity and a copy of it takes 4 / (1 - 1 / G) * 2 bytes an
/// entry or less, so that groups of G = 4 leave sqrt(3/4) of the N that HPL has without
/// checkpoints.
#[test]
fn protected_hpl_mxp_fits_into_the_memory_of_hpl() {
    let n: usize = 4000;
    let hpl = rank_bytes(&format!("--n {n} --ft none"));
    let ours = (n as f64 * 0.75f64.sqrt()) as usize;
    let flags = "--ft self --group-size 4 --checkpoint-every 10p!";
    let mxp = rank_bytes(&format!("mxp --n {ours} {flags}"));
    assert!(mxp <= hpl && mxp > hpl / 2, "{mxp} bytes at N = {ours}, {hpl} at N = {n}");
}

/// What a random run loses.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// The process of a rank; memory is kept.
    Rank,
    /// A node; its peers get a last packet.
    Node,
    /// A node, without a packet.
    SilentNode,
    /// Two nodes at once, which is more than the parity covers.
    TwoNodes,
}

/// When it is lost.
#[derive(Debug, Clone, Copy)]
enum When {
    /// Seconds after the launch.
    At(f64),
    /// A rank dies when the refinement begins.
    Refining,
    /// A rank dies in the first checkpoint of the refinement.
    SavingRefinement,
}

/// How a random run may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The loss came before or after the work.
    Undisturbed,
    /// With the x of an undisturbed run.
    Resumed,
    /// More was lost than can be rebuilt, which the supervisor has reported.
    Refused,
}

#[derive(Debug)]
struct Case {
    loss: Loss,
    when: When,
    /// The rank, and the index of its node.
    victim: usize,
    /// The operands of the products.
    gemm: &'static str,
}

impl Case {
    /// The case of a seed, for runs that take `seconds`.
    fn from_seed(seed: u64, seconds: f64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let loss = match dice.roll(8) {
            0..=2 => Loss::Rank,
            3..=5 => Loss::Node,
            6 => Loss::SilentNode,
            _ => Loss::TwoNodes,
        };
        let when = match dice.roll(4) {
            0 => When::Refining,
            1 => When::SavingRefinement,
            // Before that, the supervisor probes its nodes.
            _ => When::At(seconds * (0.3 + 0.7 * dice.roll(1000) as f64 / 1000.0)),
        };
        Self { loss, when, victim: dice.roll(4), gemm: OPERANDS[seed as usize % 2] }
    }

    fn strike(&self, cluster: &mut Alone) {
        let node = |shift: usize| format!("n{}", 1 + (self.victim + shift) % 4);
        match (self.loss, self.when) {
            // It has died already.
            (Loss::Rank, When::Refining | When::SavingRefinement) => {}
            (Loss::Rank, When::At(_)) => {
                // It may not be there yet, or not any more.
                let pids = cluster.pids(&node(0), "skt-hpl");
                if !pids.is_empty() {
                    signal(&pids, Signal::SIGKILL);
                }
            }
            (Loss::Node, _) => cluster.power_off(&node(0)),
            (Loss::SilentNode, _) => cluster.power_off_silently(&node(0)),
            (Loss::TwoNodes, _) => cluster.power_cut(&[node(0), node(1)]),
        }
    }

    /// Plays the case. A panic is a failure.
    fn play(&self, x: &str) -> End {
        let mut cluster = openmpi_box(4, 2).expect("a box can be made");
        let inject = match self.when {
            When::At(_) => String::new(),
            When::Refining => format!(" --inject {}@back", self.victim),
            When::SavingRefinement => format!(" --inject {}@encode:epoch={REFINED}", self.victim),
        };
        let mut job = launch(&cluster, true, "", &format!("{RUN} --gemm {}{inject}", self.gemm));
        match self.when {
            When::At(seconds) => std::thread::sleep(Duration::from_secs_f64(seconds)),
            When::Refining | When::SavingRefinement => wait_for("the refinement", || {
                let is_there = beats(&cluster, 1).iter().any(|beat| beat["phase"] == "refine");
                is_there || job.child.try_wait().expect("our child").is_some()
            }),
        }
        self.strike(&mut cluster);
        let ended = job.end(&cluster);
        if let (Loss::TwoNodes, Some(2)) = (self.loss, ended.code) {
            ended.prints("more is lost than the checkpoint can rebuild");
            return End::Refused;
        }
        assert_eq!(ended.passed().x(), x);
        assert_clean(&cluster);
        if ended.failures() == 0 { End::Undisturbed } else { End::Resumed }
    }
}

/// Random losses of HPL-MxP, each in a separate run. `scripts/dev/soak-node-loss --mxp` runs it.
#[test]
#[ignore = "takes minutes"]
fn hpl_mxp_loses_nodes_many_times() {
    let undisturbed =
        OPERANDS.map(|gemm| undisturbed(&openmpi_box(4, 0).expect("a box can be made"), gemm));
    let seconds = undisturbed[0].1;
    let mut ends = Vec::new();
    soak("SOAK", 10, 3600, |seed| {
        let case = Case::from_seed(seed, seconds);
        eprintln!("SOAK {seed} begins: {case:?}");
        let end = case.play(&undisturbed[seed as usize % 2].0);
        eprintln!("SOAK {seed}: {end:?}");
        ends.push(end);
    });
    let count = |end: End| ends.iter().filter(|has| **has == end).count();
    eprintln!(
        "SOAK {} resumed with the same bits, {} undisturbed, {} refused by name",
        count(End::Resumed),
        count(End::Undisturbed),
        count(End::Refused)
    );
}
