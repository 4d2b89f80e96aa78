//! `skt-hpl launch --program`: heat.c and himeno_opencl.c of examples/c, and programs that know
//! nothing of checkpoints, on the nodes of a cluster in a box.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cluster_box::SHARED;
use crate::dice::{Dice, seed};
use crate::mpirun::mpi_program;
use crate::supervised::*;
use crate::{large_machine, opencl};
use nix::sys::signal::Signal;

/// Flags that run heat.c, which saves each fiftieth of its steps.
pub const HEAT: &str = "--np 4 --program bin/heat";

/// The number of steps, each of which takes at least two milliseconds (paced.c);
/// `SKT_PROGRAM_STEPS` sets it.
pub fn steps() -> String {
    std::env::var("SKT_PROGRAM_STEPS").unwrap_or("2000".to_owned())
}

/// Compiles heat.c onto a box, with paced.c and the library that cargo has built for this test.
pub fn install_heat(cluster: &Alone) {
    let sources = ["examples/c/heat.c", "tests/large_machine/paced.c"];
    let flags = ["-Wl,--wrap=MPI_Sendrecv"];
    compile(&sources, &flags, &cluster.shared().join("bin/heat"));
}

/// Compiles sources of the checkout with the library that cargo has built for this test.
fn compile(sources: &[&str], flags: &[&str], program: &Path) {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("this test");
    let mut command = Command::new("mpicc");
    command.args(["-O2", "-I"]).arg(checkout.join("crates/skt-checkpoint-c/include"));
    command.args(sources.iter().map(|source| checkout.join(source))).args(flags);
    command.arg(test.with_file_name("libskt_checkpoint_c.a"));
    command.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]);
    command.arg("-o").arg(program);
    assert!(command.status().expect("mpicc").success(), "{command:?}");
}

/// `launch` of a program on this machine alone, in a folder; its arguments follow.
fn launch_here(folder: &Path, program: &OsStr) -> Command {
    let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
    command.current_dir(folder).args(["launch", "--np", "2", "--program"]).arg(program).arg("--");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").stdin(Stdio::null());
    command
}

/// What the program with these flags prints if nothing is lost, kept for the tests of this process.
fn undisturbed(cluster: &Alone, flags: &str, steps: &str) -> String {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let run = || {
        let ended = launch(cluster, false, &format!("{flags} --state plain"), steps).end(cluster);
        assert_eq!(ended.code, Some(0), "{}", ended.printed);
        let printed = output(&ended);
        assert!(printed.starts_with("sum of squares "), "{printed}");
        assert_eq!((ended.failures(), ended.account["starts"].as_u64()), (0, Some(1)));
        printed
    };
    known.entry(format!("{flags} {steps}")).or_insert_with(run).clone()
}

/// Waits until start `start` of the program has completed `more` checkpoints.
pub fn wait_for_checkpoints(cluster: &Alone, start: usize, more: u64) {
    let numbers = || {
        let computes = |beat: &serde_json::Value| match beat["phase"].as_str() {
            // The sign of a quick one's end is left out.
            Some("compute" | "checkpoint") => beat["column"].as_u64(),
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

/// A rank is killed, whose memory stays held for longer than a start waits: `skt_init` refuses, and
/// the program ends with its own exit code. Then a node loses its power, another one without a last
/// packet, and a third when no spare is left: another node runs its rank as well, until it is back.
/// Each is lost at a random time: what the program prints has the same bits as without that.
#[test]
fn a_program_in_c_survives_a_kill_and_the_loss_of_three_nodes() {
    let Some(mut cluster) = openmpi_box(4, 2) else { return };
    install_heat(&cluster);
    let steps = steps();
    let undisturbed = undisturbed(&cluster, HEAT, &steps);
    let mut dice = Dice(seed("SKT_PROGRAM_SEED"));
    let from = format!("{SHARED}/from-now-on");
    let times = [("LINGER_SECONDS", "25"), ("RANK", "0"), ("FROM", &from)];
    let lingers = large_machine::launch_flags(&cluster.shared(), SHARED, &times);
    let job = launch(&cluster, true, &format!("{HEAT} --no-spare spread {lingers}"), &steps);
    wait_for_checkpoints(&cluster, 1, 1 + dice.roll(3) as u64);
    cluster.write("from-now-on", "");
    wait_for("what stays behind", || !cluster.pids("n1", "large-machine").is_empty());
    signal(&cluster.pids("n1", "heat"), Signal::SIGKILL);
    // More than one start may meet it.
    let mut start = 1;
    wait_for("the start that it lets be", || {
        start = state(&cluster)["start"].as_u64().expect("a number") as usize;
        start > 1 && beats(&cluster, start).iter().any(|beat| beat["phase"] == "compute")
    });
    fs::remove_file(cluster.shared().join("from-now-on")).expect("written");
    let mut nodes = ["n2", "n3", "n4"].map(str::to_owned).to_vec();
    let mut lost = Vec::new();
    for next in start..start + 3 {
        wait_for_checkpoints(&cluster, next, 1 + dice.roll(3) as u64);
        std::thread::sleep(Duration::from_millis(dice.roll(50) as u64));
        let node = nodes.remove(dice.roll(nodes.len()));
        if lost.len() == 1 {
            cluster.power_off_silently(&node);
        } else {
            cluster.power_off(&node);
        }
        lost.push(node);
    }
    wait_for_checkpoints(&cluster, start + 3, 1);
    cluster.power_on(&lost[2]).expect("a node");
    signal(&cluster.pids("n1", "heat"), Signal::SIGKILL);
    let ended = job.end(&cluster);
    assert_eq!((ended.code, output(&ended)), (Some(0), undisturbed), "{}", ended.printed);
    assert!(ended.late_ends > 0, "no start has met it: {}", ended.printed);
    assert!(ended.failures() >= 5, "{}", ended.printed);
    let how = ended.failure(0)["how"].as_str().expect("words");
    assert!(how.contains("on n1 was killed by signal 9"), "{how}");
    ended.replaced(1, &lost[0], "n5");
    ended.replaced(2, &lost[1], "n6");
    ended.prints(&format!("{0} has the ranks of {0} to itself", lost[2]));
    for failure in 0..4 {
        ended.resumed_beyond(failure, 0);
    }
    let program = ended.account["program"].as_str().expect("a path");
    assert_eq!((program, ended.account["run_id"].as_str()), ("/mnt/bin/heat", Some("heat")));
    assert_clean(&cluster);
}

/// All data is on the devices of the ranks, of which that of the lost node goes with it.
#[test]
fn a_program_on_devices_survives_the_loss_of_a_node() {
    if !opencl::is_here() {
        return;
    }
    let Some(mut cluster) = openmpi_box(4, 1) else { return };
    let sources = ["examples/c/himeno_opencl.c", "tests/large_machine/paced.c"];
    let flags = ["-Wl,--wrap=MPI_Sendrecv", "-lOpenCL"];
    compile(&sources, &flags, &cluster.shared().join("bin/himeno"));
    let (flags, steps) = ("--np 4 --program bin/himeno", "600");
    let undisturbed = undisturbed(&cluster, flags, steps);

    let job = launch(&cluster, true, flags, steps);
    wait_for_checkpoints(&cluster, 1, 2);
    cluster.power_off("n2");
    let ended = job.end(&cluster);
    assert_eq!((ended.code, output(&ended)), (Some(0), undisturbed), "{}", ended.printed);
    assert_eq!(ended.failures(), 1, "{}", ended.printed);
    ended.replaced(0, "n2", "n5");
    ended.resumed_beyond(0, 0);
    ended.prints("continues from step ");
    // The nodes that are left were asked before the program had reported where its data is.
    assert!(!ended.printed.contains("its segments are gone"), "{}", ended.printed);
    assert_clean(&cluster);
}

/// What the program has printed. Open MPI's `mpirun` writes its own messages to standard output,
/// too, between rules of 60 hyphens, when it loses a node at certain times.
pub fn output(ended: &Ended) -> String {
    let rule = "-".repeat(60);
    let mut is_of_mpirun = false;
    let of_program = ended.report.split_inclusive('\n').filter(|line| {
        let is_rule = line.trim_end() == rule;
        is_of_mpirun ^= is_rule;
        !is_rule && !is_of_mpirun
    });
    of_program.collect()
}

/// Nodes lose their power at once: two, which groups of one parity survive with images, and groups
/// of two without; and three.
#[test]
fn two_losses_at_once_need_two_parities_or_images() {
    let Some(mut cluster) = openmpi_box(4, 5) else { return };
    install_heat(&cluster);
    fs::create_dir(cluster.shared().join("images")).expect("our folder");
    let steps = steps();
    let undisturbed = undisturbed(&cluster, HEAT, &steps);
    let begin = |cluster: &Alone, variables: &[&str]| {
        let pass = |variable: &&str| format!("--launcher-arg=-x --launcher-arg={variable} ");
        let flags: String = variables.iter().map(pass).collect();
        let job = launch(cluster, true, &format!("{HEAT} {flags}"), &steps);
        // An image is complete on all ranks at the second checkpoint after its own.
        wait_for_checkpoints(cluster, 1, 4);
        job
    };
    let job = begin(&cluster, &["SKT_LEVELS=global:/mnt/images,every=1ms!", "SKT_RUN_ID=images"]);
    cluster.power_cut(&["n2", "n4"]);
    let ended = job.end(&cluster);
    assert_eq!((ended.code, output(&ended)), (Some(0), undisturbed), "{}", ended.printed);
    assert_eq!(ended.failures(), 1, "{}", ended.printed);
    ended.prints("continues from step ");

    ["n2", "n4"].iter().for_each(|node| cluster.power_on(node).expect("it was on"));
    let job = begin(&cluster, &["SKT_PARITIES=2"]);
    cluster.power_cut(&["n2", "n4"]);
    wait_for_checkpoints(&cluster, 2, 2);
    cluster.power_cut(&["n1", "n3", "n5"]);
    let refused = job.end(&cluster);
    assert_eq!((refused.code, &*output(&refused)), (Some(2), ""), "{}", refused.printed);
    refused.prints("continues from step ").prints("lost ranks [0, ").prints("with 2 parities a ");
    refused.prints("data of earlier starts is kept");
    assert!(refused.failures() >= 2, "{}", refused.printed);
}

/// A request to stop, and the notice that the time ends, which kills a program that does not know
/// of it: the same command continues, and what it prints has the bits of a run without that.
#[test]
fn a_program_that_is_stopped_is_continued_by_the_same_command() {
    let Some(cluster) = openmpi_box(2, 0) else { return };
    install_heat(&cluster);
    let (flags, steps) = ("--np 2 --program bin/heat", &steps());
    let undisturbed = undisturbed(&cluster, flags, steps);
    // Each start comes further, and the program must not end before the last signal.
    let signals = [Signal::SIGTERM, Signal::SIGUSR1];
    for (start, sent) in (1..).zip(signals) {
        let job = launch(&cluster, false, flags, steps);
        wait_for_checkpoints(&cluster, start, 1);
        signal(&cluster.head_pids("skt-hpl"), sent);
        let ended = job.end(&cluster);
        assert_eq!((ended.code, &*ended.report), (Some(75), ""), "{sent}: {}", ended.printed);
        let hint = "stopped; start the same command again to resume";
        assert!(ended.printed.contains(hint), "{sent}: {}", ended.printed);
        assert!(cluster.pids("n1", "heat").is_empty(), "{sent}: it runs on");
    }
    let ended = launch(&cluster, false, flags, steps).end(&cluster);
    assert_eq!((ended.code, output(&ended)), (Some(0), undisturbed), "{}", ended.printed);
    ended.prints("continues from step ");
    assert_eq!((ended.failures(), ended.account["starts"].as_u64()), (0, Some(3)));
    assert_clean(&cluster);

    // A program that knows of the notice ends as it likes.
    let body = "trap 'echo told; exit 75' USR1\ntouch /tmp/runs; while :; do sleep 0.1; done";
    let job = launch(&cluster, false, &script(&cluster, "knows", body), "");
    let runs = |node| cluster.on_node(node, "test").args(["-e", "/tmp/runs"]).status();
    wait_for("the program", || ["n1", "n2"].iter().all(|node| runs(node).expect("test").success()));
    signal(&cluster.head_pids("skt-hpl"), Signal::SIGUSR1);
    let ended = job.end(&cluster);
    assert_eq!((ended.code, &*ended.report), (Some(75), "told\ntold\n"), "{}", ended.printed);
}

/// A program without checkpoints and without MPI, that knows its rank.
fn script(cluster: &Alone, name: &str, body: &str) -> String {
    cluster.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{body}\n"));
    format!("--np 2 --program bin/{name} --state {name}")
}

#[test]
fn programs_that_refuse_send_no_signs_or_are_missing() {
    let Some(cluster) = openmpi_box(2, 1) else { return };
    let body = "[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 3\nsleep 600";
    let ended = launch(&cluster, true, &script(&cluster, "refuses", body), "a b").end(&cluster);
    assert_eq!(ended.code, Some(3), "{}", ended.printed);
    ended.prints("rank 1 on n2 ended with code 3, and all nodes are well");
    let record = &ended.account;
    assert_eq!((&record["starts"], &record["exit"]), (&1.into(), &3.into()), "{}", ended.printed);
    assert_eq!(record["command"], serde_json::json!(["a", "b"]));

    // The limit of the benchmark would end it.
    let flags = format!("--hang-after 2s {}", script(&cluster, "silent", "sleep 6\necho \"$@\""));
    let ended = launch(&cluster, true, &flags, "done --now").end(&cluster);
    assert_eq!(ended.code, Some(0), "{}", ended.printed);
    assert_eq!(ended.report, "done --now\ndone --now\n", "{}", ended.printed);
    assert_eq!(ended.account["starts"], 1, "{}", ended.printed);

    // It asks to be started again, once.
    let body = "[ -e /mnt/asked ] && exit 0\nsleep 1; touch /mnt/asked; exit 75";
    let ended = launch(&cluster, true, &script(&cluster, "again", body), "").end(&cluster);
    assert_eq!((ended.code, ended.failures()), (Some(0), 1), "{}", ended.printed);

    // A node lacks the program.
    cluster.write("bin/hello", "#!/bin/sh\nhostname\n");
    let copy = format!("cp {SHARED}/bin/hello /tmp/hello");
    assert!(cluster.on_head("sh").args(["-ec", &copy]).status().expect("sh").success());
    for node in ["n1", "n3"] {
        assert!(cluster.on_node(node, "sh").args(["-ec", &copy]).status().expect("sh").success());
    }
    let ended = launch(&cluster, true, "--np 2 --program /tmp/hello", "").end(&cluster);
    assert_eq!(ended.code, Some(0), "{}", ended.printed);
    let replaced = "n2 has no /tmp/hello that it can start; n3 takes its place";
    ended.prints(replaced);
    let mut hosts: Vec<&str> = ended.report.lines().collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["n1", "n3"], "{}", ended.printed);
    let ended = launch(&cluster, true, "--np 2 --program /tmp/nothing", "").end(&cluster);
    assert_eq!(ended.code, Some(2), "{}", ended.printed);
    ended.prints("there is no /tmp/nothing here");
}

/// The second start reads the same file as the first, which is killed when it has written all.
#[test]
fn what_a_program_reads_and_writes_passes_byte_by_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = OsStr::from_bytes(b"./caf\xe9");
    let program = folder.path().join(name);
    let body = "#!/bin/sh\n\
        [ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || { cat >others; exit 0; }\n\
        cat\n\
        printf '%s.' \"$@\"\n\
        printf 'caf\\351\\r12%%' >&2\n\
        [ -e once ] || { touch once; kill -9 $$; }\n";
    fs::write(&program, body).expect("room");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("our file");
    fs::write(folder.path().join("deck"), b"in \xe9\nno end").expect("room");
    let deck = || File::open(folder.path().join("deck")).expect("our file");
    let arguments = [&b"caf\xe9"[..], b"100%", b"", b"it's"].map(OsStr::from_bytes);
    let ended = launch_here(folder.path(), name).args(arguments).stdin(deck()).output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && printed.contains("after 1 failure(s)"), "{printed}");
    let one = b"in \xe9\nno endcaf\xe9.100%..it's.";
    assert_eq!(ended.stdout, one.repeat(2), "{}", String::from_utf8_lossy(&ended.stdout));
    let progress = b"caf\xe9\r12%";
    let progresses = ended.stderr.windows(progress.len()).filter(|bytes| bytes == progress);
    assert_eq!(progresses.count(), 2, "{printed}");
    assert!(!printed.contains("@skt-hpl-"), "{printed}");
    assert_eq!(fs::read(folder.path().join("others")).expect("written"), b"", "rank 1 read it");

    let mut echo = Command::new("echo").arg("5").stdout(Stdio::piped()).spawn().expect("echo");
    assert!(echo.wait().expect("our child").success());
    let pipe = echo.stdout.take().expect("piped");
    let refused = launch_here(folder.path(), name).stdin(pipe).output().expect("launch");
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(2), &b""[..]), "{printed}");
    assert!(printed.contains("standard input is a pipe with data"), "{printed}");
}

#[test]
fn a_program_that_dies_once_all_is_reported_is_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = "crates/skt-checkpoint-c/tests/c_sources/late_end.c";
    // The name of the program is that of its run.
    let name = format!("late-end-{}", std::process::id());
    compile(&[source], &[], &folder.path().join(&name));
    for (how, code, words) in [
        ("segv", 139, "was killed by signal 11"),
        ("3", 3, "ended with code 3"),
        ("0", 2, "1 of 2 ranks have not reported how they ended"),
    ] {
        let program = format!("./{name}");
        let ended = launch_here(folder.path(), program.as_ref()).arg(how).output().expect("launch");
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{how}: {printed}");
        let last = printed.lines().last().expect("a line");
        let start = format!("exit code {code}: ");
        assert!(last.contains(&start) && last.contains(words), "{how}: {printed}");
        assert!(!printed.contains("start 2"), "{how}: {printed}");
    }
}

/// The supervisor is killed, its job runs on, and the program is rebuilt before the next
/// command.
#[test]
fn a_job_of_a_program_that_has_changed_since_is_not_taken_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str, body: &str| {
        fs::write(at(name), format!("#!/bin/sh\n{body}\n")).expect("room");
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("our file");
    };
    write(
        "program",
        "touch runs-$OMPI_COMM_WORLD_RANK
        for i in $(seq 6000); do [ -e go ] && break; sleep 0.1; done; echo first",
    );
    write("rebuilt", "echo second");
    let launch = || launch_here(folder.path(), "./program".as_ref());
    let mut first = launch().stdout(Stdio::null()).spawn().expect("launch");
    wait_for("the program", || ["runs-0", "runs-1"].iter().all(|name| at(name).exists()));
    wait_for("the state", || {
        let state = fs::read(at("skt-hpl.launch/state.json")).unwrap_or_default();
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
        state["launcher"]["pid"].is_number()
    });
    first.kill().expect("our child");
    first.wait().expect("our child");
    fs::rename(at("program"), at("earlier")).expect("our file");
    fs::rename(at("rebuilt"), at("program")).expect("our file");
    let refused = launch().output().expect("launch");
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(2), &b""[..]), "{printed}");
    assert!(
        printed.contains("was started when") && printed.contains("had other contents"),
        "{printed}"
    );
    fs::rename(at("earlier"), at("program")).expect("our file");
    fs::write(at("go"), "").expect("room");
    let ended = launch().output().expect("launch");
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(
        (ended.status.code(), &*ended.stdout),
        (Some(0), &b"first\nfirst\n"[..]),
        "{printed}"
    );
}
