//! `skt-hpl launch` on a cluster in a box: real mpirun, real power-offs.

use std::fs;
use std::time::{Duration, Instant};

use crate::dice::seed;
use crate::supervised::*;
use nix::sys::signal::Signal;
use serde_json::Value;

scenarios! {
    Kind::Openmpi;
    losses_one_after_the_other
}

/// With two process columns of checksums a node is lost in each phase of a run, and one while the
/// previous loss is being rebuilt: each time the run continues from where it was, if it had begun.
#[test]
fn nodes_powered_off_in_every_phase_under_checksums() {
    let Some(mut cluster) = openmpi_box(4, 5) else { return };
    let run = "--n 3600 --nb 64 --p 1 --q 2 --parities 2 --ft abft --progress off";
    let launch = launch(&cluster, true, "", run);
    let in_phase = |cluster: &Alone, start: usize, phase: &str| {
        wait_for(phase, || beats(cluster, start).iter().any(|beat| beat["phase"] == phase));
    };
    let mut off = Vec::new();
    let mut power_off = |cluster: &mut Alone, node: &str| {
        off.push(unix());
        cluster.power_off(node);
    };
    in_phase(&cluster, 1, "generate");
    power_off(&mut cluster, "n2");
    wait_for_column(&cluster, 2, 800);
    power_off(&mut cluster, "n3");
    in_phase(&cluster, 3, "restore");
    power_off(&mut cluster, "n4");
    wait_for_column(&cluster, 4, 1800);
    power_off(&mut cluster, "n1");
    in_phase(&cluster, 5, "check");
    power_off(&mut cluster, "n5");
    let ended = launch.end(&cluster);
    assert_clean(&cluster);
    ended.passed();
    let lost = [("n2", "n5"), ("n3", "n6"), ("n4", "n7"), ("n1", "n8"), ("n5", "n9")];
    for (index, (lost, by)) in lost.into_iter().enumerate() {
        ended.replaced(index, lost, by);
        // The second loss was not over when the third came.
        if index != 1 {
            let phase = &ended.failure(index)["phase"];
            let seconds = ended.print(&format!("power-off in {phase}"), index, off[index]);
            // It takes 2 to 5 s where the machine has nothing else to do.
            assert!(seconds < 60.0, "{lost} lost for {seconds} s: {}", ended.account);
        }
    }
    assert_eq!(ended.failures(), lost.len());
    let column = |index: usize| ended.failure(index)["resumed_column"].as_u64();
    assert!(column(2) > Some(700), "{}", ended.account);
    assert!(column(3) > Some(1700), "{}", ended.account);
    // That of n1.
    let is_of_n1 = |line: &str| {
        let at = line.strip_prefix("# restart: column ").and_then(|rest| rest.split_once(','));
        at.is_some_and(|(column, how)| {
            column.parse::<usize>().expect(line) > 1700 && how.contains("rebuilt_ranks [0]")
        })
    };
    assert!(ended.report.lines().any(is_of_n1), "{}", ended.report);
}

/// A short cut of a link is no failure, and a long one is: that node is back before the end. A third
/// one lasts until the end, and the node with segments of the run is back before the next run.
#[test]
fn nodes_cut_off_for_a_while_and_until_the_end() {
    let Some(cluster) = openmpi_box(4, 2) else { return };
    let run = run_of(LONG_N);
    let first = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 256);
    cluster.cut("n3");
    std::thread::sleep(Duration::from_millis(1200));
    cluster.heal("n3");
    wait_for_column(&cluster, 1, 800);
    cluster.cut("n3");
    wait_for("the restart", || state(&cluster)["start"] == 2);
    cluster.heal("n3");
    wait_for_column(&cluster, 2, 1500);
    cluster.cut("n1");
    let ended = first.end(&cluster);
    ended.passed().replaced(0, "n3", "n5");
    ended.replaced(1, "n1", "n6");
    assert_eq!(ended.failures(), 2);
    ended.prints("n1: not reached");
    cluster.heal("n1");
    // The Open MPI daemons of the first run learn of that run's end only now.
    let on_nodes =
        |comm: &&str| ["n1", "n3"].iter().any(|node| !cluster.pids(node, comm).is_empty());
    wait_for("the end of what the first run left", || {
        !["orted", "prted", "skt-hpl"].iter().any(on_nodes)
    });
    let again = launch(&cluster, true, "", &run).end(&cluster);
    again.prints("segment(s) of an earlier run");
    // Once all nodes have been reached, the marks are removed, too.
    let remains = cluster.remains_after(PATIENCE);
    assert_eq!(remains, Vec::<String>::new());
    assert_eq!(again.passed_with_the_same_x(&cluster).failures(), 0);
}

/// The data of an earlier run stays, whatever happens to a start that cannot begin; and where more
/// is lost than can be rebuilt, only a new beginning helps.
#[test]
fn data_is_kept_until_the_user_starts_over() {
    let Some(mut cluster) = openmpi_box(4, 2) else { return };
    let job = format!("{} --run-id same", run());
    let run = format!("{job} --inject 1@commit:epoch=2");
    let killed = launch(&cluster, true, "--max-restarts 0", &run).end(&cluster);
    assert_eq!(killed.code, Some(2), "{}", killed.printed);
    // Locks of killed processes may be removed.
    let mebibytes = || cluster.segment_bytes("n1") >> 20;
    let before = mebibytes();
    assert!(before > 0, "{}", killed.printed);
    for (flags, n, why) in [
        ("--state other", "100000000", "data of earlier starts is kept"),
        ("--state another --start-over", "900", "made with other settings"),
    ] {
        let other = launch(&cluster, false, flags, &job.replace(N, n)).end(&cluster);
        assert_eq!(other.code, Some(2), "{}", other.printed);
        other.prints(why);
        assert_eq!(mebibytes(), before, "{}", other.printed);
    }

    let resumed = launch(&cluster, true, "--probe-limit 5s", &run);
    wait_for_column(&cluster, 2, 1000);
    cluster.power_cut(&["n2", "n3"]);
    let ended = resumed.end(&cluster);
    assert_eq!(ended.code, Some(2), "{}", ended.printed);
    ended.prints("more is lost than the checkpoint can rebuild");
    let ended = launch(&cluster, true, "--start-over", &run).end(&cluster);
    ended.passed_with_the_same_x(&cluster);
}

/// The supervisor is killed with the launcher; then both once more, on a machine that is gone for
/// good: the same command on another machine resumes the run, once the user has confirmed that the
/// first one is lost. Then the supervisor alone: the next one adopts the job.
#[test]
fn a_supervisor_killed_leaves_the_job_to_the_next() {
    let Some(cluster) = openmpi_box(4, 1) else { return };
    let run = run_of(LONG_N);
    let kill_all = |launch: Launch| {
        signal(&cluster.head_pids("skt-hpl"), Signal::SIGKILL);
        signal(&cluster.launchers(), Signal::SIGKILL);
        assert_ne!(launch.end(&cluster).code, Some(0));
        wait_for("the launcher's end", || cluster.launchers().is_empty());
    };
    let first = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 800);
    kill_all(first);
    let next = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 2, 900);
    kill_all(next);

    // The other machine: one of another name, with the same shared folder.
    // The files that mpirun has left in /tmp are gone with the first one.
    let script = "rm -rf /tmp/ompi.head.*; hostname other";
    let renamed = cluster.on_head("sh").args(["-c", script]).status().expect("nsenter");
    assert!(renamed.success());
    let hosts = fs::read_to_string(cluster.shared().join("etc-hosts")).expect("names");
    cluster.write("etc-hosts", &format!("{hosts}10.77.0.1 other\n"));
    let refused = launch(&cluster, true, "", &run).end(&cluster);
    assert_eq!(refused.code, Some(2), "{}", refused.printed);
    refused.prints("--head-lost");
    let next = launch(&cluster, true, "--head-lost", &run);
    wait_for_column(&cluster, 3, 900);

    signal(&cluster.head_pids("skt-hpl"), Signal::SIGKILL);
    assert_ne!(next.end(&cluster).code, Some(0));
    wait_for_column(&cluster, 3, 1000);
    let status = status(&cluster);
    assert!(status.contains("no supervisor: the job continues"), "{status}");
    let last = launch(&cluster, true, "", &run);
    wait_for("the last supervisor", || {
        let log = fs::read_to_string(cluster.shared().join("skt-hpl.launch/events.jsonl"));
        log.is_ok_and(|log| log.contains("start 3 of an earlier supervisor"))
    });
    let other = launch(&cluster, true, "", &run).end(&cluster);
    assert_eq!(other.code, Some(2), "two at a time");
    other.prints("another `skt-hpl launch` is at work");
    let ended = last.end(&cluster);
    ended.prints("start 3 of an earlier supervisor continues");
    assert_eq!(ended.passed_with_the_same_x(&cluster).account["starts"], 3);
    assert_eq!(ended.failures(), 1, "{}", ended.account);
    assert_eq!(ended.failure(0)["how"], "the launcher ended unseen");
    ended.resumed_beyond(0, 350);
    let restart = ended.report.lines().find(|line| line.starts_with("# restart: column "));
    assert!(restart.is_some(), "resumed from the memory of the nodes: {}", ended.report);
}

/// Without a spare the run ends, or waits: for a spare that is added, or for the lost node. A user
/// stops it in between.
#[test]
fn spares_spent_added_and_nodes_that_come_back() {
    let Some(mut cluster) = openmpi_box(4, 2) else { return };
    cluster.write("spares", "n5\n");
    cluster.power_off("n5");
    let run = run_of(LONG_N);
    let first = launch(&cluster, true, "--probe-limit 5s", &run);
    wait_for_column(&cluster, 1, 800);
    cluster.power_off("n2");
    let ended = first.end(&cluster);
    assert_eq!(ended.code, Some(75), "{}", ended.printed);
    assert_eq!(ended.account["status"], "gave-up");
    let why = ended.account["reason"].as_str().unwrap();
    assert!(why.starts_with("n2 (") && why.ends_with("no spare node is left"), "{why}");

    let waits = "--probe-limit 5s --no-spare wait";
    let running = launch(&cluster, true, waits, &run);
    wait_for("the wait", || status(&cluster).contains("waiting for it"));
    cluster.write("spares", "n5\nn6\n");
    wait_for_column(&cluster, 2, 1200);
    signal(&cluster.head_pids("skt-hpl"), Signal::SIGTERM);
    let stopped = running.end(&cluster);
    assert_eq!(stopped.code, Some(75), "{}", stopped.printed);
    stopped.prints("n6: listed as spare from now on").prints("; n6 takes its place");
    stopped.prints("SIGTERM asks to stop").prints("start the same command again to resume");
    assert!(cluster.segment_bytes("n1") > 1 << 20, "the checkpoint stays");
    assert!(cluster.pids("n1", "skt-hpl").is_empty(), "the job does not");

    let running = launch(&cluster, true, waits, &run);
    wait_for_column(&cluster, 3, 1500);
    cluster.power_off("n3");
    wait_for("the wait", || status(&cluster).contains("waiting for it"));
    cluster.power_on("n3").unwrap();
    let ended = running.end(&cluster);
    ended.passed_with_the_same_x(&cluster).prints("n3 (no answer");
    ended.resumed_beyond(0, 350);
    ended.resumed_beyond(1, 1100);
    assert_eq!((ended.failures(), ended.account["starts"].as_u64()), (2, Some(4)));
}

/// A node is lost in the second test, just after the state folder has vanished.
#[test]
fn the_report_survives_the_loss_of_the_state_folder() {
    let Some(mut cluster) = openmpi_box(4, 1) else { return };
    let launch = launch(&cluster, true, "", &run().replace(N, &format!("1200,{N}")));
    let result = |n: &str| format!("WR11C2R4 {n:>11}");
    wait_for("the first result", || launch.report().contains(&result("1200")));
    wait_for("a checkpoint of the second test", || {
        let is_second = |beat: &&Value| beat["n"].as_u64() == N.parse().ok();
        beats(&cluster, 1).iter().filter(is_second).any(|beat| beat["phase"] == "stamp")
    });
    assert!(!launch.report().contains(&result(N)));
    fs::remove_dir_all(cluster.shared().join("skt-hpl.launch")).unwrap();
    cluster.power_off("n2");
    let ended = launch.end(&cluster);
    ended.passed().replaced(0, "n2", "n5");
    ended.prints("the job is watched on").prints("the state is saved again");
    assert_clean(&cluster);
    assert_eq!(ended.failures(), 1, "{}", ended.printed);
    let report = &ended.report;
    let once = |text: &str| assert_eq!(report.matches(text).count(), 1, "{text}\n{report}");
    // The result is in the report of each start, of which the last is whole.
    assert_eq!(report.matches(&result("1200")).count(), 2, "{report}");
    once(&result(N));
    once("# start 1 ended here; what follows is the report of start 2\n");
    once("# tests 1 to 1 were done by an earlier start\n");
    once("Finished      2 tests");
    once("End of Tests.");
    let x = report.lines().rfind(|line| line.starts_with("# x: "));
    assert_eq!(x, Some(&*undisturbed_x(&cluster, N)));
}

/// A node is lost while the state folder is full, and then a rank is frozen.
#[test]
fn losses_are_survived_while_the_state_folder_is_full_and_after() {
    let Some(mut cluster) = openmpi_box(4, 1) else { return };
    // A separate file system, so small that it can be filled.
    let script = "mkdir -m 700 skt-hpl.launch; \
                  mount -t tmpfs -o size=16m,mode=700 state skt-hpl.launch";
    assert!(cluster.on_head("sh").args(["-ec", script]).status().unwrap().success());
    // A loaded machine may stall for more than 3 s.
    let launch = launch(&cluster, true, "--hang-after 8s", &run_of(LONG_N));
    wait_for_column(&cluster, 1, 256);
    let script = "head -c 999999999999 /dev/zero > skt-hpl.launch/full 2>/dev/null; true";
    cluster.on_head("sh").args(["-c", script]).status().unwrap();
    // The failure is noticed while start 1 runs: at its end there is space again, which was
    // reserved for it.
    launch.wait_for_words("No space left on device");
    wait_for_column(&cluster, 1, 800);
    cluster.power_off("n2");
    wait_for_column(&cluster, 2, 1500);
    signal(&cluster.pids("n3", "skt-hpl"), Signal::SIGSTOP);
    let ended = launch.end(&cluster);
    assert_eq!(ended.printed.matches("the job is watched on").count(), 1, "{}", ended.printed);
    ended.passed().replaced(0, "n2", "n5");
    assert_eq!(ended.failures(), 2, "{}", ended.printed);
    ended.resumed_beyond(0, 350);
    ended.resumed_beyond(1, 1100);
    assert_eq!(ended.failure(1)["replaced"].as_array().unwrap().len(), 0, "all nodes are well");
    let how = ended.failure(1)["how"].as_str().unwrap();
    assert!(
        how.starts_with("silence, and 1 of 4 ranks are stopped by a signal, one on n3"),
        "{how}"
    );
}

/// Limits of System V segments, and /dev/shm without room.
#[test]
fn nodes_that_cannot_keep_the_data_are_replaced() {
    let Some(cluster) = openmpi_box(4, 2) else { return };
    for (node, set) in [("n2", "echo 65536 > shmmax"), ("n3", "echo 3 > shmmni")] {
        let script = format!("cd /proc/sys/kernel && {set}");
        assert!(cluster.on_node(node, "sh").args(["-ec", &script]).status().unwrap().success());
    }
    let ended = launch(&cluster, true, "", &run()).end(&cluster);
    assert_eq!(ended.passed_with_the_same_x(&cluster).account["starts"], 1);
    let mut lines = ended.printed.lines();
    let line = lines.find(|line| line.contains("n5, n6 take their places"));
    let line = line.unwrap_or_else(|| panic!("{}", ended.printed));
    for (lost, why) in [("n2", "kernel.shmmax = 65536"), ("n3", "kernel.shmmni = 3")] {
        assert!(line.contains(&format!("{lost} (")) && line.contains(why), "{line}");
    }

    let fill = "head -c 999999999999 /dev/zero > /dev/shm/full 2>/dev/null; true";
    let mount = format!("mount -t tmpfs -o mode=1777,size=8m shm /dev/shm && {fill}");
    let mounted = cluster.on_node("n4", "sh").args(["-c", &mount]).status().unwrap();
    assert!(mounted.success());
    cluster.write("hosts", "n1 slots=1\nn4 slots=1\nn5 slots=1\n");
    let small = "--n 800 --nb 64 --p 1 --q 3 --progress off --store posix";
    let ended = launch(&cluster, true, "", small).end(&cluster);
    ended.passed();
    assert_eq!(ended.failures(), 0);
    ended.prints("n6 takes its place");
}

/// Ten random failures in one run; `scripts/dev/soak-node-loss` runs it.
#[test]
#[ignore = "takes minutes"]
fn ten_random_failures() {
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
    use skt_model::exact::peaceful_seconds;
    const FAILURES: usize = 10;
    const MEAN_SECONDS: f64 = 6.0;
    let Some(mut cluster) = openmpi_box(4, FAILURES) else { return };
    let run = "--n 7000 --nb 64 --p 1 --q 4 --parities 2 --checkpoint-every 8p! --progress off";
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed("SKT_HPL_SEED"));
    let start = Instant::now();
    let plain = launch(&cluster, true, "--state plain", run).end(&cluster);
    let undisturbed_seconds = start.elapsed().as_secs_f64();
    let x = plain.passed().x().to_owned();
    let start = Instant::now();
    let mut job = launch(&cluster, true, "", run);
    wait_for_column(&cluster, 1, 64);
    let mut strikes: Vec<f64> = Vec::new();
    let mut next = Instant::now();
    while strikes.len() < FAILURES {
        // Uniform in (0, 1], then exponential.
        let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        next += Duration::from_secs_f64(-MEAN_SECONDS * (1.0 - uniform).ln());
        while Instant::now() < next && job.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Three losses at once are more than two parities survive: the third waits until the job
        // computes again.
        wait_for("the job to compute again", || {
            let failures = state(&cluster)["failures"].as_array().cloned().unwrap_or_default();
            let computing =
                failures.iter().filter_map(|failure| failure["computing_unix"].as_f64());
            let computing = computing.fold(0.0, f64::max);
            let has_ended = job.child.try_wait().unwrap().is_some();
            has_ended || strikes.iter().filter(|struck| **struck > computing).count() < 2
        });
        let state = state(&cluster);
        let Some(active) = state["pool"]["active"].as_array() else { break };
        let names = active.iter().filter_map(|host| host["name"].as_str());
        let on: Vec<&str> = names.filter(|name| cluster.is_on(name)).collect();
        if on.is_empty() || job.child.try_wait().unwrap().is_some() {
            break;
        }
        let victim = on[(random.next_u64() % on.len() as u64) as usize];
        let struck = unix();
        match random.next_u64() % 2 {
            0 => cluster.power_off(victim),
            _ => cluster.power_off_silently(victim),
        }
        strikes.push(struck);
    }
    let ended = job.end(&cluster);
    let total_seconds = start.elapsed().as_secs_f64();
    assert_eq!(ended.passed().x(), x);
    assert_clean(&cluster);
    assert!(strikes.len() >= FAILURES / 2, "only {} came before the end", strikes.len());
    // The lost time is downtime, which is measured, and work that is done again. The model has this
    // for a period of T seconds between checkpoints that is tried until no failure strikes it: mu
    // (e^(T/mu) - 1) seconds, of which the last T succeed after e^(T/mu) - 1 tries.
    let failures = ended.account["failures"].as_array().unwrap();
    let mut since = 0.0;
    let mut down_seconds = 0.0;
    let mut is_down = false;
    for failure in failures {
        let detected = failure["detected_unix"].as_f64().unwrap();
        let first = strikes.iter().find(|struck| **struck > since && **struck <= detected);
        // A start that is struck before it computes is downtime from the previous start on.
        let seen = || failure["last_sign_unix"].as_f64().unwrap();
        let from = if is_down { since } else { first.copied().unwrap_or_else(seen) };
        is_down = failure["computing_unix"].is_null();
        let until = failure["computing_unix"].as_f64().unwrap_or(detected);
        down_seconds += until - from;
        since = until;
    }
    let period_seconds = undisturbed_seconds / (14000.0 / (8.0 * 128.0));
    let tries = (period_seconds / MEAN_SECONDS).exp_m1();
    let again_each = (peaceful_seconds(period_seconds, MEAN_SECONDS) - period_seconds) / tries;
    let again_seconds = failures.len() as f64 * again_each;
    let lost_seconds = total_seconds - undisturbed_seconds;
    // A try is struck anywhere in its period; periods are longer at the start of an elimination
    // than at its end, and the machine has other work.
    let deviation_seconds = (failures.len() as f64 / 12.0).sqrt() * period_seconds;
    let slack_seconds = 4.0 * deviation_seconds + 0.2 * undisturbed_seconds;
    eprintln!(
        "{} power-offs, {} failures of the job: {total_seconds:.1} s, undisturbed \
         {undisturbed_seconds:.1} s; lost {lost_seconds:.1} s; expected {:.1} s = \
         {down_seconds:.1} s down + {again_seconds:.1} s again, within {slack_seconds:.1} s",
        strikes.len(),
        failures.len(),
        down_seconds + again_seconds
    );
    assert!((lost_seconds - down_seconds - again_seconds).abs() <= slack_seconds);
}
