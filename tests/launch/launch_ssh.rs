//! `skt-hpl launch` with ssh as the agent, on a cluster in a box with an sshd on each node: the
//! time from the loss of a node until the job computes again.

use std::time::Duration;

use crate::supervised::*;

/// The longest time from a loss to the first panel that is done again, in the median.
const LONGEST_SECONDS: f64 = 10.0;

/// How a node is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// The node is powered off; its peers get a last packet.
    PowerOff,
    /// The node is powered off; its peers get no packet.
    SilentPowerOff,
    /// The node stays alive, but its link is dead until the job computes without it.
    LinkCut,
}

/// Seconds from a loss until the job computes again, by phase.
struct Parts {
    detection: f64,
    replacement: f64,
    restart: f64,
    recovery: f64,
}

impl Parts {
    fn total(&self) -> f64 {
        self.detection + self.replacement + self.restart + self.recovery
    }
}

/// Loses one node, or two at once, of a separate run, the `round`-th here.
fn lose(kind: Kind, round: usize, loss: Loss, count: usize) -> Option<Parts> {
    let mut cluster = cluster(kind, 4, 2)?;
    // Two that follow each other have different processors in the box, as their spares do.
    let victims: Vec<usize> = (0..count).map(|next| 1 + (round + next) % 4).collect();
    let spares: Vec<usize> = victims.iter().map(|index| 5 + (index + 1) % 2).collect();
    let lines = spares.iter().map(|spare| format!("n{spare} slots=1\n"));
    cluster.write("spares", &lines.collect::<String>());
    let [victims, spares] =
        [victims, spares].map(|all| all.iter().map(|i| format!("n{i}")).collect::<Vec<_>>());
    // Long enough to be at work for some seconds more, on any machine.
    let run = format!("{} --parities {count}", run().replace(N, "4800"));
    let launch = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 800);
    // At any moment between two heartbeats.
    std::thread::sleep(Duration::from_millis(137 * round as u64 % 1000));
    let lost = unix();
    for victim in &victims {
        match loss {
            Loss::PowerOff => cluster.power_off(victim),
            Loss::SilentPowerOff => cluster.power_off_silently(victim),
            Loss::LinkCut => cluster.cut(victim),
        }
    }
    wait_for_column(&cluster, 2, 0);
    for victim in victims.iter().filter(|victim| cluster.is_on(victim)) {
        cluster.heal(victim);
    }
    let ended = launch.end(&cluster);
    ended.passed();
    let taken: Vec<&str> = victims.iter().map(|victim| ended.spare_for(0, victim)).collect();
    assert!(spares.iter().all(|spare| taken.contains(&spare.as_str())), "{taken:?}");
    assert_clean(&cluster);
    let failure = ended.failure(0);
    let at = |key: &str| failure[key].as_f64().unwrap_or_else(|| panic!("{key} of {failure}"));
    let parts = Parts {
        detection: at("detected_unix") - lost,
        replacement: at("relaunched_unix") - at("detected_unix"),
        restart: at("alive_unix") - at("relaunched_unix"),
        recovery: at("computing_unix") - at("alive_unix"),
    };
    let how = failure["how"].as_str().unwrap_or_default();
    eprintln!(
        "{round:>3} {:<14} {:>9.2} {:>11.2} {:>7.2} {:>8.2} {:>7.2}  {}: {how}",
        format!("{loss:?}"),
        parts.detection,
        parts.replacement,
        parts.restart,
        parts.recovery,
        parts.total(),
        victims.join(" ")
    );
    Some(parts)
}

/// Loses `count` nodes at once in each of `rounds` runs, by each kind of loss in turn. Prints the
/// seconds of all parts, and returns them in order of their totals.
fn losses(kind: Kind, rounds: usize, count: usize) -> Vec<Parts> {
    let kinds = [Loss::PowerOff, Loss::SilentPowerOff, Loss::LinkCut];
    eprintln!("loss               detection replacement restart recovery   total  node");
    let lost = (0..rounds).filter_map(|round| lose(kind, round, kinds[round % kinds.len()], count));
    let mut all: Vec<Parts> = lost.collect();
    all.sort_by(|a, b| a.total().total_cmp(&b.total()));
    let of = |part: fn(&Parts) -> f64| {
        let mut seconds: Vec<f64> = all.iter().map(part).collect();
        seconds.sort_by(f64::total_cmp);
        seconds
    };
    let columns = [
        of(|parts| parts.detection),
        of(|parts| parts.replacement),
        of(|parts| parts.restart),
        of(|parts| parts.recovery),
        of(Parts::total),
    ];
    for (name, at) in [("median", all.len() / 2), ("largest", all.len().saturating_sub(1))] {
        let cell = |seconds: &Vec<f64>| seconds.get(at).map_or("-".into(), |s| format!("{s:.2}"));
        let [detection, replacement, restart, recovery, total] = columns.each_ref().map(cell);
        eprintln!(
            "{name:<18} {detection:>9} {replacement:>11} {restart:>7} {recovery:>8} {total:>7}"
        );
    }
    all
}

/// `scripts/dev/soak-node-loss --agent ssh` runs it.
#[test]
#[ignore = "takes minutes"]
fn nodes_lost_many_times() {
    let from = |name: &str| std::env::var(name).ok();
    let number = |name, default| from(name).map_or(default, |text| text.parse().expect("a number"));
    let (rounds, count) = (number("SKT_HPL_ROUNDS", 20), number("SKT_HPL_LOSSES", 1));
    let kind = match from("SKT_HPL_AGENT").as_deref() {
        None | Some("ssh") => Kind::Ssh,
        Some("box") => Kind::Openmpi,
        Some(other) => panic!("SKT_HPL_AGENT={other}: ssh or box"),
    };
    let all = losses(kind, rounds, count);
    assert_eq!(all.len(), rounds, "skipped");
    let median = all[rounds / 2].total();
    assert!(median <= LONGEST_SECONDS, "{median} s in the median of {rounds}");
}

mod timing {
    use super::*;

    #[test]
    #[ignore = "timing: it takes at most 15 s until the job runs again"]
    fn a_node_lost_is_replaced_by_ssh() {
        for parts in losses(Kind::Ssh, 2, 1) {
            // Other work may have the machine, and recovery is as slow as that makes it.
            let until_restarted = parts.total() - parts.recovery;
            assert!(until_restarted < 1.5 * LONGEST_SECONDS, "{until_restarted}");
        }
    }
}
