//! The scenarios that are the same under every launcher.

use super::*;

/// Makes tests of the scenarios of these names, for one launcher.
macro_rules! scenarios {
    ($kind:expr; $($(#[$attribute:meta])* $name:ident)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                $crate::supervised::scenarios::$name($kind);
            }
        )*
    };
}

pub fn an_undisturbed_run_passes_and_leaves_nothing(kind: Kind) {
    let Some(cluster) = cluster(kind, 4, 1) else { return };
    let ended = launch(&cluster, true, "", &run()).end(&cluster);
    assert_eq!(ended.passed_with_the_same_x(&cluster).account["starts"], 1);
}

pub fn a_node_powered_off_while_computing(kind: Kind) {
    let Some(mut cluster) = cluster(kind, 4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 800);
    let off = unix();
    cluster.power_off("n2");
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster).replaced(0, "n2", "n5");
    ended.print("power-off", 0, off);
    ended.resumed_beyond(0, 350);
}

/// A run with checksums and these flags that has lost n2 and passed; also returns when n2 was lost,
/// in Unix time.
fn powered_off_under_checksums(kind: Kind, flags: &str) -> Option<(Ended, f64)> {
    let mut cluster = cluster(kind, 4, 1)?;
    // Without checkpoints, the other systems are solved before a busy host has looked once.
    let run = format!("--n 2400 --nb 64 --p 1 --q 3 --ft abft --progress off {flags}");
    let launch = launch(&cluster, true, "", &run);
    wait_for_column(&cluster, 1, 800);
    let off = unix();
    cluster.power_off("n2");
    let ended = launch.end(&cluster);
    ended.passed().replaced(0, "n2", "n5");
    Some((ended, off))
}

/// Three process columns of data and one of checksums: nothing is saved, and the run continues from
/// where it was.
pub fn a_node_powered_off_under_checksums(kind: Kind) {
    let Some((ended, off)) = powered_off_under_checksums(kind, "") else { return };
    ended.print("power-off under checksums", 0, off);
    let report = &ended.report;
    let restart = report.lines().find(|line| line.starts_with("# restart: at column "));
    let restart = restart.unwrap_or_else(|| panic!("{report}"));
    let column = restart["# restart: at column ".len()..].split(';').next();
    assert!(column.and_then(|column| column.parse().ok()) > Some(700usize), "{restart}");
    assert!(restart.contains("ranks rebuilt: [1]"), "{restart}");
}

/// The launcher kills the remaining ranks at once, so one of them may be torn, which is one loss
/// too many for memory, but not for images.
pub fn a_node_powered_off_under_checksums_with_images(kind: Kind) {
    let level = "--level local:/mnt/disk,every=1s!";
    let Some((ended, off)) = powered_off_under_checksums(kind, level) else { return };
    let is_from = |line: &&str| line.starts_with("# restart: ");
    let how = ended.report.lines().find(is_from).expect("a restart").to_owned();
    ended.print(&how, 0, off);
}

pub fn a_node_powered_off_without_a_last_packet(kind: Kind) {
    let Some(mut cluster) = cluster(kind, 4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 800);
    let off = unix();
    cluster.power_off_silently("n3");
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster).replaced(0, "n3", "n5");
    ended.print("silent power-off", 0, off);
}

pub fn a_rank_killed(kind: Kind) {
    let Some(cluster) = cluster(kind, 4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 800);
    signal(&cluster.pids("n3", "skt-hpl"), Signal::SIGKILL);
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster);
    assert_eq!(ended.failures(), 1);
    ended.resumed_beyond(0, 350);
}

pub fn the_launcher_killed(kind: Kind) {
    let Some(cluster) = cluster(kind, 4, 1) else { return };
    let launch = launch(&cluster, true, "", &run());
    wait_for_column(&cluster, 1, 800);
    signal(&cluster.launchers(), Signal::SIGKILL);
    let ended = launch.end(&cluster);
    ended.passed_with_the_same_x(&cluster);
    assert_eq!(ended.failures(), 1);
    assert_eq!(ended.failure(0)["how"], "the launcher was killed by signal 9");
}
