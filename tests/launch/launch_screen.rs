//! `skt-hpl screen --hosts` on a cluster of namespaces whose nodes are slow, wrong, behind a slow
//! link, or out of reach. Eight nodes share the processors of this machine, so each computes slower
//! than its share of a busy machine is, and faults are large.

use std::fs;
use std::process::Stdio;

use crate::cluster_box::OPENMPI_ARGUMENTS;
use crate::large_machine;
use crate::report_schema::Schema;
use crate::supervised::{self, Alone, Kind};
use serde_json::Value;

const NODES: usize = 8;
/// The rate of each thread.
const EVENLY: (&str, &str) = ("ALL_GFLOPS", "1");

fn cluster() -> Option<Alone> {
    supervised::cluster(Kind::Openmpi, NODES, 0)
}

/// How a screening ended.
struct Ended {
    code: Option<i32>,
    text: String,
    said: String,
    document: Value,
    good: String,
    bad: String,
}

/// Screens the nodes. `faults` are variables of the preloaded library, without `SKT_LARGE_`.
fn screen(cluster: &Alone, faults: &[(&str, &str)]) -> Ended {
    let mut command = cluster.on_head("bin/skt-hpl");
    command.args(["screen", "--hosts", "hosts", "--agent", "/mnt/bin/agent", "--n", "1000"]);
    command.args(["--time", "10s", "--tolerance", "0.8", "--json", "screen.json"]);
    command.args(["--good", "good", "--bad", "bad"]);
    let mut words: Vec<String> = OPENMPI_ARGUMENTS.map(str::to_owned).into();
    let library = format!("LD_PRELOAD={}", large_machine::library().display());
    words.extend(["-x".to_owned(), library]);
    for (name, value) in faults.iter().chain([&EVENLY]) {
        words.extend(["-x".to_owned(), format!("SKT_LARGE_{name}={value}")]);
    }
    command.args(words.iter().map(|word| format!("--launcher-arg={word}")));
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = command.stdin(Stdio::null()).output().expect("nsenter");
    let read = |name: &str| fs::read_to_string(cluster.shared().join(name)).unwrap_or_default();
    let (text, said) = (output.stdout, output.stderr);
    let document = serde_json::from_str(&read("screen.json")).unwrap_or(Value::Null);
    Ended {
        code: output.status.code(),
        text: String::from_utf8_lossy(&text).into_owned(),
        said: String::from_utf8_lossy(&said).into_owned(),
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
        assert!(!self.document.is_null(), "{}\n{}", self.said, self.text);
        Schema::new(include_str!("../../docs/screen.schema.json")).check(&self.document);
        let hosts = self.document["hosts"].as_array().expect("hosts");
        assert_eq!(hosts.len(), NODES, "{}", self.text);
        let (mut good, mut others) = (Vec::new(), Vec::new());
        for host in hosts {
            let name = host["host"].as_str().expect("a name");
            let want = bad.iter().find(|(bad, _)| *bad == name).map_or("ok", |(_, state)| state);
            assert_eq!(host["state"], want, "{name}\n{}\n{}", self.text, self.said);
            let list = if want == "ok" { &mut good } else { &mut others };
            list.push(format!("{name} slots=1\n"));
        }
        assert_eq!((&self.good, &self.bad), (&good.concat(), &others.concat()));
        assert_eq!(self.code, Some(i32::from(!bad.is_empty())), "{}", self.text);
    }
}

#[test]
fn sound_nodes_are_silent() {
    let Some(cluster) = cluster() else { return };
    screen(&cluster, &[]).names(&[]);
}

#[test]
fn a_slow_node_is_named() {
    let Some(cluster) = cluster() else { return };
    screen(&cluster, &[("GFLOPS", "0.1"), ("HOST", "n3")]).names(&[("n3", "slow")]);
}

#[test]
fn a_wrong_node_is_named() {
    let Some(cluster) = cluster() else { return };
    screen(&cluster, &[("FLIP", "40"), ("HOST", "n6")]).names(&[("n6", "wrong")]);
}

#[test]
fn a_wrong_node_and_one_out_of_reach_are_named_at_once() {
    let Some(mut cluster) = cluster() else { return };
    cluster.power_off("n7");
    let ended = screen(&cluster, &[("FLIP", "40"), ("HOST", "n5")]);
    ended.names(&[("n5", "wrong"), ("n7", "unreachable")]);
}

mod timing {
    use super::*;

    #[test]
    #[ignore = "timing: links of nodes that share busy cores scatter by more than a slow link"]
    fn a_node_behind_a_slow_link_is_named() {
        let Some(cluster) = cluster() else { return };
        slow_link(&cluster, "n4");
        let ended = screen(&cluster, &[]);
        ended.names(&[("n4", "slow")]);
        // One of the links may have no answer in time.
        assert!(ended.text.contains("of its 3 links are slow"), "{}", ended.text);
    }

    #[test]
    #[ignore = "timing: links of nodes that share busy cores scatter by more than a slow link"]
    fn a_slow_link_a_wrong_node_and_one_out_of_reach_are_named_at_once() {
        let Some(mut cluster) = cluster() else { return };
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
