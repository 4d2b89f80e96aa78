//! `skt-hpl launch --program`: examples/c/heat.c, and programs that know nothing of checkpoints, on
//! the nodes of a cluster in a box.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cluster_box::SHARED;
use crate::dice::{Dice, seed};
use crate::supervised;
use crate::supervised::*;
use nix::sys::signal::Signal;

/// Flags that run heat.c, which saves each fiftieth of its steps.
const HEAT: &str = "--np 4 --program bin/heat";

/// Compiles heat.c with the library that cargo has built for this test.
fn heat() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("this test");
    let archive = test.with_file_name("libskt_checkpoint_c.a");
    let heat = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launched-heat");
    let mut command = Command::new("mpicc");
    command.args(["-O2", "-I"]).arg(checkout.join("crates/skt-checkpoint-c/include"));
    command.arg(checkout.join("examples/c/heat.c")).arg(archive).arg("-o").arg(&heat);
    command.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]);
    assert!(command.status().expect("mpicc").success(), "{command:?}");
    heat
}

/// Waits until start `start` of the program has completed `more` checkpoints.
fn wait_for_checkpoints(cluster: &Alone, start: usize, more: u64) {
    let numbers = || {
        let computes = |beat: &serde_json::Value| match beat["phase"].as_str() {
            Some("compute") => beat["column"].as_u64(),
            _ => None,
        };
        beats(cluster, start).iter().filter_map(computes).collect::<Vec<_>>()
    };
    wait_for("checkpoints", || {
        let numbers = numbers();
        let (first, last) = (numbers.first(), numbers.last());
        first.zip(last).is_some_and(|(first, last)| last - first >= more)
    });
}

/// A rank is killed, then a node loses its power, then another one without a last packet, each at a
/// random time: what the program prints has the same bits as without that. `SKT_PROGRAM_STEPS` is
/// the number of its steps.
#[test]
fn a_program_in_c_survives_a_kill_and_the_loss_of_two_nodes() {
    let Some(mut cluster) = supervised::cluster(Kind::Openmpi, 4, 2) else { return };
    cluster.install(&heat(), "heat");
    let steps = std::env::var("SKT_PROGRAM_STEPS").unwrap_or("4000".to_owned());
    let undisturbed =
        launch(&cluster, true, &format!("{HEAT} --state plain"), &steps).end(&cluster);
    assert_eq!(undisturbed.code, Some(0), "{}", undisturbed.said);
    assert!(undisturbed.report.starts_with("sum of squares "), "{}", undisturbed.report);
    assert_eq!((undisturbed.failures(), undisturbed.account["starts"].as_u64()), (0, Some(1)));

    let mut dice = Dice(seed("SKT_PROGRAM_SEED"));
    let job = launch(&cluster, true, HEAT, &steps);
    let mut nodes = ["n1", "n2", "n3", "n4"].map(str::to_owned).to_vec();
    wait_for_checkpoints(&cluster, 1, 1 + dice.roll(3) as u64);
    let killed = nodes[dice.roll(4)].clone();
    signal(&cluster.pids(&killed, "heat"), Signal::SIGKILL);
    let mut lost = Vec::new();
    for (start, is_silent) in [(2, false), (3, true)] {
        wait_for_checkpoints(&cluster, start, 1 + dice.roll(3) as u64);
        std::thread::sleep(Duration::from_millis(dice.roll(50) as u64));
        let node = nodes.remove(dice.roll(nodes.len()));
        if is_silent {
            cluster.power_off_silently(&node);
        } else {
            cluster.power_off(&node);
        }
        lost.push(node);
    }
    let ended = job.end(&cluster);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.report, undisturbed.report, "{}", ended.said);
    assert_eq!(ended.failures(), 3, "{}", ended.said);
    let how = ended.failure(0)["how"].as_str().expect("words");
    assert!(how.contains(&format!("on {killed} was killed by signal 9")), "{how}");
    ended.replaced(1, &lost[0], "n5");
    ended.replaced(2, &lost[1], "n6");
    for failure in 0..3 {
        assert!(ended.failure(failure)["resumed_column"].as_u64() > Some(0), "{}", ended.account);
    }
    let program = ended.account["program"].as_str().expect("a path");
    assert_eq!((program, ended.account["run_id"].as_str()), ("/mnt/bin/heat", Some("heat")));
    assert_clean(&cluster);
}

/// A program without checkpoints and without MPI, that knows its rank.
fn script(cluster: &Alone, name: &str, body: &str) -> String {
    cluster.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{body}\n"));
    format!("--np 2 --program bin/{name} --state {name}")
}

#[test]
fn a_program_that_refuses_ends_with_its_word_and_one_without_signs_is_left_alone() {
    let Some(cluster) = supervised::cluster(Kind::Openmpi, 2, 1) else { return };
    let body = "[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 3\nsleep 600";
    let ended = launch(&cluster, true, &script(&cluster, "refuses", body), "a b").end(&cluster);
    assert_eq!(ended.code, Some(3), "{}", ended.said);
    assert!(ended.said.contains("rank 1 on n2 ended with code 3, and all nodes are well"));
    let record = &ended.account;
    assert_eq!((&record["starts"], &record["exit"]), (&1.into(), &3.into()), "{}", ended.said);
    assert_eq!(record["command"], serde_json::json!(["a", "b"]));

    // The limits of the benchmark would end it: a silence of 2 s, or 20 s of a phase.
    let flags = format!("--hang-after 2s {}", script(&cluster, "silent", "sleep 25\necho \"$@\""));
    let ended = launch(&cluster, true, &flags, "done --now").end(&cluster);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.report, "done --now\ndone --now\n", "{}", ended.said);
    assert_eq!(ended.account["starts"], 1, "{}", ended.said);

    // It asks to be started again, once.
    let body = "[ -e /mnt/asked ] && exit 0\nsleep 1; touch /mnt/asked; exit 75";
    let ended = launch(&cluster, true, &script(&cluster, "again", body), "").end(&cluster);
    assert_eq!((ended.code, ended.failures()), (Some(0), 1), "{}", ended.said);
}

#[test]
fn a_node_without_the_program_is_replaced() {
    let Some(cluster) = supervised::cluster(Kind::Openmpi, 2, 1) else { return };
    cluster.write("bin/hello", "#!/bin/sh\nhostname\n");
    let copy = format!("cp {SHARED}/bin/hello /tmp/hello");
    assert!(cluster.on_head("sh").args(["-ec", &copy]).status().expect("sh").success());
    for node in ["n1", "n3"] {
        assert!(cluster.on_node(node, "sh").args(["-ec", &copy]).status().expect("sh").success());
    }
    let ended = launch(&cluster, true, "--np 2 --program /tmp/hello", "").end(&cluster);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let replaced = "n2 has no /tmp/hello that it can start; n3 takes its place";
    assert!(ended.said.contains(replaced), "{}", ended.said);
    let mut hosts: Vec<&str> = ended.report.lines().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["n1", "n3"], "{}", ended.said);
    let ended = launch(&cluster, true, "--np 2 --program /tmp/nothing", "").end(&cluster);
    assert_eq!(ended.code, Some(2), "{}", ended.said);
    assert!(ended.said.contains("there is no /tmp/nothing here"), "{}", ended.said);
}
