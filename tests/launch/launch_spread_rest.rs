//! How long the rest of a run takes when nodes share the ranks of a lost one: as long as that of a
//! run that began in this placement.

use std::time::Duration;

use crate::supervised::*;

/// As large as takes about half a minute on two cores.
const ORDER: u64 = 12000;
/// The column at which n2 is lost, and that from which times are compared: the job has resumed by
/// then.
const LOST: u64 = 3600;
const SINCE: u64 = 4800;
/// The processors are not slowed, as two ranks of a slowed one would not wait for each other.
const FLAGS: &str =
    "--probe-limit 5s --no-spare spread --launcher-arg=-x --launcher-arg=LD_PRELOAD=";
/// The most that the rest may take, as a multiple of that of a run which began there.
const MAX_RATIO: f64 = 1.1;

/// The rest of a run.
struct Rest {
    seconds: f64,
    /// The time for which the ranks' threads had a core, which other programs change less.
    core_seconds: f64,
    x: String,
    /// The machine's load averages at the beginning and at the end.
    load: String,
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").expect("Linux");
    text.split(' ').next().expect("a number").to_owned()
}

/// The time for which threads of processes on the nodes have had a core.
fn core_seconds(cluster: &Alone) -> f64 {
    let nodes = cluster.nodes_on();
    let pids = nodes.iter().flat_map(|node| cluster.pids(node, "skt-hpl"));
    let tasks = pids.filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
    let nanoseconds = |task: std::fs::DirEntry| {
        let counters = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        counters.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.flatten().flatten().filter_map(nanoseconds).sum::<f64>() / 1e9
}

/// When a start had eliminated `column` columns, between the signs before and after that.
fn time_of(beats: &[serde_json::Value], column: u64) -> f64 {
    let numbers = |beat: &serde_json::Value| {
        let is_factor = beat["phase"] == "factor";
        is_factor.then(|| Some((beat["column"].as_f64()?, beat["elapsed_seconds"].as_f64()?)))?
    };
    let known: Vec<(f64, f64)> = beats.iter().filter_map(numbers).collect();
    let column = column as f64;
    let after = known.iter().position(|(at, _)| *at >= column).expect("it comes there");
    let ((before, from), (after, to)) = (known[after - 1], known[after]);
    from + (to - from) * (column - before) / (after - before)
}

/// The rest of a run that loses n2, or begins without it and with two ranks on n1.
fn rest(is_lost: bool) -> Rest {
    let mut cluster = openmpi_box(4, 0).expect("a box can be made");
    let run =
        format!("--n {ORDER} --nb 128 --p 1 --q 4 --ft self --checkpoint-every 8p! --progress off");
    let before = load();
    if !is_lost {
        cluster.power_off("n2");
        cluster.write("hosts", "n1 slots=2\nn3 slots=1\nn4 slots=1\n");
    }
    let mut job = launch(&cluster, false, FLAGS, &run);
    if is_lost {
        wait_for_column(&cluster, 1, LOST);
        cluster.power_off("n2");
    }
    let (mut signs, mut used) = (Vec::new(), [None, None]);
    while job.child.try_wait().expect("our child").is_none() {
        let now = beats(&cluster, 1 + usize::from(is_lost));
        let is_past = now.iter().any(|beat| beat["column"].as_u64() >= Some(SINCE));
        let is_checked = now.iter().any(|beat| beat["phase"] == "check");
        for (used, _) in used.iter_mut().zip([is_past, is_checked]).filter(|(_, is_so)| *is_so) {
            used.get_or_insert_with(|| core_seconds(&cluster));
        }
        // They are removed at the end.
        if now.len() > signs.len() {
            signs = now;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let ended = job.end(&cluster);
    let x = ended.passed().x().to_owned();
    assert_eq!(ended.failures(), usize::from(is_lost), "{}", ended.account);
    if is_lost {
        ended.replaced(0, "n2", "n1");
        let resumed = ended.failure(0)["resumed_column"].as_u64();
        assert!(resumed < Some(SINCE), "{}", ended.account);
    }
    let end = signs.iter().find(|beat| beat["phase"] == "check").expect("the solution is checked");
    let end = end["elapsed_seconds"].as_f64().expect("a time");
    let seconds = end - time_of(&signs, SINCE);
    let [Some(begin), Some(end)] = used else { panic!("not all was seen: {used:?}") };
    Rest { seconds, core_seconds: end - begin, x, load: format!("{before} {}", load()) }
}

/// `scripts/dev/soak-node-loss --rest` runs it.
#[test]
#[ignore = "takes minutes"]
fn the_rest_of_a_run_takes_as_long_as_if_it_began_there() {
    let mut ratios = Vec::new();
    soak("REST", 5, 3600, |pair| {
        // Each is the first of every other pair.
        let first = rest(pair % 2 == 1);
        let second = rest(pair % 2 == 0);
        let (lost, begun) = if pair % 2 == 1 { (first, second) } else { (second, first) };
        assert_eq!(lost.x, begun.x);
        let ratio = lost.seconds / begun.seconds;
        eprintln!(
            "REST {pair}: from column {SINCE} of {ORDER} to the end, lost {:.2} s ({:.2} s of cores, \
             load {}), begun {:.2} s ({:.2} s of cores, load {}): {ratio:.3}",
            lost.seconds,
            lost.core_seconds,
            lost.load,
            begun.seconds,
            begun.core_seconds,
            begun.load
        );
        ratios.push(ratio);
    });
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    eprintln!("REST median {median:.3} of {ratios:.3?}");
    assert!(median <= MAX_RATIO, "{ratios:?}");
}
