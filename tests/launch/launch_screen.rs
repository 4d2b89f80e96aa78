//! `skt-hpl screen` on a cluster of namespaces whose nodes are slow, wrong, on a slow link, or
//! out of reach: with `--hosts`, and under Slurm's `srun`. Eight nodes share the processors of this
//! machine, so each computes slower than its share of a busy machine is, and faults are large.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::cluster_box::{OPENMPI_ARGUMENTS, SHARED};
use crate::large_machine;
use crate::report_schema::Schema;
use crate::supervised::{self, Alone, Kind, SLURM_ENVIRONMENT, openmpi_box};
use serde_json::Value;

const NODES: usize = 8;

/// The rate of each thread in Gflop/s, and the order of the systems.
struct Pace {
    gflops: &'static str,
    n: &'static str,
}

const PACE: Pace = Pace { gflops: "1", n: "1000" };
/// So slow that the waits of a thread for a core of a busy machine do not count.
const SLOW_PACE: Pace = Pace { gflops: "0.2", n: "400" };

/// How a screening ended.
struct Ended {
    code: Option<i32>,
    text: String,
    printed: String,
    document: Value,
    good: String,
    bad: String,
}

/// The command that screens the nodes; under Slurm the launcher is the user's. `faults` are
/// variables of the preloaded library, without `SKT_LARGE_`.
fn command(cluster: &Alone, pace: &Pace, faults: &[(&str, &str)]) -> Command {
    let evenly = [("ALL_GFLOPS", pace.gflops)];
    let faults = [faults, &evenly].concat();
    let variables = large_machine::on_nodes(&cluster.shared(), SHARED, &faults).into_iter();
    let mut command = match cluster.kind {
        Kind::Openmpi => {
            let mut command = cluster.on_head("bin/skt-hpl");
            command.args(["screen", "--hosts", "hosts", "--agent", "/mnt/bin/agent"]);
            let exported = |(name, value)| ["-x".to_owned(), format!("{name}={value}")];
            let words = OPENMPI_ARGUMENTS.map(str::to_owned).into_iter();
            let words = words.chain(variables.flat_map(exported));
            command.args(words.map(|word| format!("--launcher-arg={word}")));
            command
        }
        Kind::Slurm => {
            let mut command = cluster.on_head("salloc");
            command.args([&format!("--nodes={NODES}"), "srun", "--mpi=pmix"]);
            command.args(["--ntasks-per-node=1", "bin/skt-hpl", "screen"]);
            command.envs(SLURM_ENVIRONMENT).envs(variables);
            command
        }
        Kind::Ssh | Kind::Mpich => unreachable!("no test here"),
    };
    command.args(["--n", pace.n, "--time", "10s", "--tolerance", "0.8", "--json", "screen.json"]);
    command.args(["--good", "good", "--bad", "bad", "--progress", "plain"]);
    command.stdin(Stdio::null());
    command
}

/// Screens the nodes.
fn screen(cluster: &Alone, faults: &[(&str, &str)]) -> Ended {
    screen_at(cluster, &PACE, faults)
}

/// Screens the nodes at another pace.
fn screen_at(cluster: &Alone, pace: &Pace, faults: &[(&str, &str)]) -> Ended {
    ended(cluster, command(cluster, pace, faults).output().expect("nsenter"))
}

/// What a screening has left.
#[track_caller]
fn ended(cluster: &Alone, output: Output) -> Ended {
    large_machine::assert_planted(&cluster.shared());
    let read = |name: &str| fs::read_to_string(cluster.shared().join(name)).unwrap_or_default();
    let (text, printed) = (output.stdout, output.stderr);
    let document = serde_json::from_str(&read("screen.json")).unwrap_or(Value::Null);
    Ended {
        code: output.status.code(),
        text: String::from_utf8_lossy(&text).into_owned(),
        printed: String::from_utf8_lossy(&printed).into_owned(),
        document,
        good: read("good"),
        bad: read("bad"),
    }
}

impl Ended {
    /// Asserts that these nodes have these states, and that all others are well and in the file.
    #[track_caller]
    fn names(&self, bad: &[(&str, &str)]) {
        println!("{}", self.text);
        assert!(!self.document.is_null(), "{}\n{}", self.printed, self.text);
        Schema::new(include_str!("../../docs/screen.schema.json")).check(&self.document);
        let hosts = self.document["hosts"].as_array().expect("hosts");
        assert_eq!(hosts.len(), NODES, "{}", self.text);
        let (mut good, mut others) = (Vec::new(), Vec::new());
        for host in hosts {
            let name = host["host"].as_str().expect("a name");
            let want = bad.iter().find(|(bad, _)| *bad == name).map_or("ok", |(_, state)| state);
            assert_eq!(host["state"], want, "{name}\n{}\n{}", self.text, self.printed);
            let list = if want == "ok" { &mut good } else { &mut others };
            list.push(format!("{name} slots=1\n"));
        }
        assert_eq!((&self.good, &self.bad), (&good.concat(), &others.concat()));
        assert_eq!(self.code, Some(i32::from(!bad.is_empty())), "{}", self.text);
    }
}

/// The longest time from the loss of a node until a launcher has ended its job: five seconds until
/// Slurm counts a node as down, and the rest on a busy machine.
const LOSS_PATIENCE: Duration = Duration::from_secs(60);

/// Screens the nodes, and powers one off in the second round. Returns how the screening ended, and
/// how long that took.
fn lose_a_node(cluster: &mut Alone, lost: &str, faults: &[(&str, &str)]) -> (Ended, Duration) {
    let mut command = command(cluster, &PACE, faults);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nsenter");
    let mut stdout = child.stdout.take().expect("piped");
    let text = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).expect("text");
        text
    });
    let mut printed = Vec::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    while !String::from_utf8_lossy(&printed).contains("round 2 of") {
        let count = stderr.read_until(b'\n', &mut printed).expect("text");
        assert!(count > 0, "it ends early: {}", String::from_utf8_lossy(&printed));
    }
    cluster.power_off(lost);
    let off = Instant::now();
    stderr.read_to_end(&mut printed).expect("text");
    let (status, took) = (child.wait().expect("our child"), off.elapsed());
    let output = Output { status, stdout: text.join().expect("a reader"), stderr: printed };
    (ended(cluster, output), took)
}

#[test]
fn nodes_that_die_are_wrong_or_out_of_reach_are_named_at_once() {
    let Some(mut cluster) = openmpi_box(NODES, 0) else { return };
    cluster.power_off("n7");
    let (ended, _) = lose_a_node(&mut cluster, "n3", &[("FLIP", "40"), ("HOST", "n5")]);
    ended.names(&[("n3", "unreachable"), ("n5", "wrong"), ("n7", "unreachable")]);
    assert!(ended.printed.contains("screen: n3 is lost: "), "{}", ended.printed);
}

/// Under a launcher of the user's own the job ends with the node: promptly, with its name.
pub fn a_node_that_dies_ends_the_job_under(kind: Kind) {
    let Some(mut cluster) = supervised::cluster(kind, NODES, 0) else { return };
    let (ended, took) = lose_a_node(&mut cluster, "n3", &[]);
    println!("{kind:?}: {took:?}\n{}\n{}", ended.printed, ended.text);
    assert!(took < LOSS_PATIENCE, "{took:?}");
    assert_ne!(ended.code, Some(0), "{}", ended.printed);
    let named = ended.printed.lines().any(|line| {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
        !line.starts_with("screen: ") && words.any(|word| word == "n3")
    });
    assert!(named, "{}", ended.printed);
}

#[test]
fn a_slow_node_is_named() {
    let Some(cluster) = openmpi_box(NODES, 0) else { return };
    let faults = [("GFLOPS", "0.02"), ("HOST", "n3")];
    screen_at(&cluster, &SLOW_PACE, &faults).names(&[("n3", "slow")]);
}

mod timing {
    use super::*;

    #[test]
    #[ignore = "timing: links of nodes that share busy cores scatter by more than a slow link"]
    fn sound_nodes_are_silent() {
        let Some(cluster) = openmpi_box(NODES, 0) else { return };
        screen(&cluster, &[]).names(&[]);
    }

    #[test]
    #[ignore = "timing: links of nodes that share busy cores scatter by more than a slow link"]
    fn a_node_behind_a_slow_link_is_named() {
        let Some(cluster) = openmpi_box(NODES, 0) else { return };
        slow_link(&cluster, "n4");
        let ended = screen(&cluster, &[]);
        ended.names(&[("n4", "slow")]);
        // One of the links may have no answer in time.
        assert!(ended.text.contains("of its 3 links are slow"), "{}", ended.text);
    }

    #[test]
    #[ignore = "timing: links of nodes that share busy cores scatter by more than a slow link"]
    fn a_slow_link_a_wrong_and_an_unreachable_node_are_named() {
        let Some(mut cluster) = openmpi_box(NODES, 0) else { return };
        slow_link(&cluster, "n2");
        cluster.power_off("n7");
        let ended = screen(&cluster, &[("FLIP", "40"), ("HOST", "n5")]);
        ended.names(&[("n2", "slow"), ("n5", "wrong"), ("n7", "unreachable")]);
    }

    /// Limits what comes to a node, by a token bucket: netem is not in every kernel.
    fn slow_link(cluster: &Alone, node: &str) {
        let device = format!("v{}", &node[1..]);
        let words = "root tbf rate 10mbit burst 16kb latency 100ms".split(' ');
        let mut tc = cluster.on_head("tc");
        let output = tc.args(["qdisc", "add", "dev", &device]).args(words).output().expect("tc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
