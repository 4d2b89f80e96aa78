//! A limit of the machine is reported at creation, by its name, and never as a SIGBUS later. Each
//! test runs itself once more in a separate namespace with a low limit; if the system grants no
//! namespaces, it is skipped.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use crate::mpirun::{Ended, mpirun, run};
use crate::skipped::{namespaces, skipped};
use skt_store::segments::node_store::NodeStore;
use skt_store::store::{Files, SegmentName, Store, StoreError, StoreKind, SysV};

/// Runs the test that calls this in new namespaces after `setup`, a line of shell in which `$DIR`
/// is an empty folder. Returns the folder if this process is the one that runs inside.
#[track_caller]
fn inside<Test: Fn()>(_: Test, setup: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("STORE_LIMITS_DIR") {
        return Some(folder.into());
    }
    let folder = tempfile::TempDir::new().unwrap();
    // Without the name of the crate.
    let (_, test) = std::any::type_name::<Test>().split_once("::").unwrap();
    let words = namespaces(&["--ipc", "--mount"])?;
    let unshare = |script: &str| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["sh", "-ec", script]);
        command.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture"]);
        command.env("STORE_LIMITS_DIR", folder.path());
        command
    };
    let setup = format!("export DIR=$STORE_LIMITS_DIR; {setup}");
    let can = unshare(&setup).output();
    if !can.is_ok_and(|output| output.status.success()) {
        skipped("no namespaces here (needs unshare and the right to use it)");
        return None;
    }
    let output = unshare(&format!("{setup}; exec \"$0\" \"$@\"")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    text.lines().filter_map(|line| line.strip_prefix("skipped: ")).for_each(skipped);
    None
}

fn name(rank: u32) -> SegmentName {
    SegmentName::new("limits", "state", rank).unwrap()
}

#[test]
fn a_full_tmpfs_is_an_error_at_creation() {
    let Some(folder) =
        inside(a_full_tmpfs_is_an_error_at_creation, "mount -t tmpfs -o size=1m none $DIR")
    else {
        return;
    };
    let store = Files::in_folder(&folder);
    let kind = StoreKind::Files(folder.clone());
    let lack = || NodeStore::ask(&kind, &store, &[]).lack(1, 512 << 10);
    assert_eq!(lack(), None);
    let first = store.create(&name(0), 700 << 10).unwrap();
    let refused = store.create(&name(1), 700 << 10).unwrap_err();
    assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
    assert!(lack().is_some_and(|why| why.contains("remount,size=")), "{:?}", lack());
    assert!(!folder.join(name(1).to_string()).exists(), "nothing is left of it");
    // Every byte of the first segment is there; otherwise this would be a SIGBUS.
    let mut first = first;
    first.as_mut_slice().fill(1);
}

#[test]
fn the_largest_segment_is_named_as_the_limit() {
    let setup = "echo 65536 > /proc/sys/kernel/shmmax";
    let Some(_) = inside(the_largest_segment_is_named_as_the_limit, setup) else { return };
    let refused = SysV::new(false).create(&name(0), 65536).unwrap_err();
    assert!(
        matches!(refused, StoreError::Limit { limit: "kernel.shmmax", enough: 69632, .. }),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(text.contains("sysctl -w kernel.shmmax=69632"), "{text}");
    assert!(SysV::new(false).create(&name(0), 65536 - 8192).is_ok());
    let hazards = SysV::new(false).hazards();
    assert!(hazards.iter().any(|it| it.words.contains("its own IPC namespace")), "{hazards:?}");
}

#[test]
fn all_segments_together_are_named_as_the_limit() {
    let setup = "echo 10 > /proc/sys/kernel/shmall";
    let Some(_) = inside(all_segments_together_are_named_as_the_limit, setup) else { return };
    let store = SysV::new(false);
    // Segments of 5 and of 6 pages, the last of which is almost empty.
    let _first = store.create(&name(0), (3 << 12) + 8).unwrap();
    let refused = store.create(&name(1), (4 << 12) + 8).unwrap_err();
    assert!(
        matches!(refused, StoreError::Limit { limit: "kernel.shmall", value: 10, enough: 11, .. }),
        "{refused}"
    );
}

#[test]
fn the_number_of_segments_is_named_as_the_limit() {
    let Some(_) =
        inside(the_number_of_segments_is_named_as_the_limit, "echo 2 > /proc/sys/kernel/shmmni")
    else {
        return;
    };
    let store = SysV::new(false);
    let _segments = [0, 1].map(|rank| store.create(&name(rank), 8).unwrap());
    let refused = store.create(&name(2), 8).unwrap_err();
    assert!(matches!(refused, StoreError::Limit { limit: "kernel.shmmni", .. }), "{refused}");
}

#[test]
fn a_low_memory_limit_is_an_error_and_not_a_kill() {
    // A /proc/meminfo with little memory imitates a machine that has no more.
    let setup = "echo 'MemAvailable: 200000 kB' > $DIR/meminfo; \
                 mount --bind $DIR/meminfo /proc/meminfo; \
                 mkdir -p $DIR/shm; mount -t tmpfs none $DIR/shm";
    let Some(folder) = inside(a_low_memory_limit_is_an_error_and_not_a_kill, setup) else { return };
    let files = Files::in_folder(&folder.join("shm"));
    // Files take their memory at once, System V segments when they are touched.
    for (store, takes_late) in [(&SysV::new(false) as &dyn Store, true), (&files, false)] {
        let refused = store.create(&name(0), 200 << 20).unwrap_err();
        assert!(matches!(refused, StoreError::NoMemory { .. }), "{refused}");
        assert!(refused.to_string().contains("MemAvailable"), "{refused}");
        assert_eq!(store.list().unwrap(), []);
        // Memory runs out while it is being taken.
        let new = store.begin(&name(0), 100 << 20).unwrap();
        std::fs::write(folder.join("meminfo"), "MemAvailable: 100 kB\n").unwrap();
        let finished = new.finish();
        std::fs::write(folder.join("meminfo"), "MemAvailable: 200000 kB\n").unwrap();
        let is_refused = matches!(finished, Err(StoreError::NoMemory { .. }));
        assert_eq!(is_refused, takes_late, "{finished:?}");
        assert_eq!(store.remove(&name(0)).unwrap(), !takes_late);
        assert_eq!(store.list().unwrap(), []);
    }
}

/// Calls `act` under a limit of this process; `None` for the present limit.
fn under<T>(resource: u32, most: Option<u64>, act: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the system fills in and reads plain numbers.
    let set = |limit| assert_eq!(unsafe { libc::setrlimit(resource, limit) }, 0);
    // SAFETY: the system fills in plain numbers.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut before) }, 0);
    set(&libc::rlimit { rlim_cur: most.unwrap_or(before.rlim_cur), ..before });
    let done = act();
    set(&before);
    done
}

/// A limit of address space that leaves 16 MiB to this process.
fn little_more_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    (pages << 12) + (16 << 20)
}

#[test]
fn a_folder_that_is_not_there_or_is_not_ours_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let refused = Files::in_folder(&missing).list().unwrap_err();
    assert!(refused.is_permanent(), "{refused}");
    assert!(refused.to_string().ends_with("the folder of the segments must exist"), "{refused}");
    let system = |errno| {
        let source = std::io::Error::from_raw_os_error(errno);
        StoreError::System { what: String::new(), source }
    };
    assert!(system(libc::EACCES).is_permanent());
    // So is a disk that fails seen, which a supervisor replaces with its node.
    assert!(!system(libc::EROFS).is_permanent() && !system(libc::EIO).is_permanent());
    assert!(refused.is_of_the_folder() && system(libc::EACCES).is_of_the_folder());
}

#[test]
fn a_low_limit_of_address_space_is_named_as_the_limit() {
    let Some(folder) = inside(a_low_limit_of_address_space_is_named_as_the_limit, "true") else {
        return;
    };
    let stores: [Box<dyn Store>; 2] =
        [Box::new(SysV::new(false)), Box::new(Files::in_folder(&folder))];
    for store in stores {
        let create = || store.create(&name(0), 64 << 20);
        let refused = under(libc::RLIMIT_AS, Some(little_more_bytes()), create).unwrap_err();
        assert!(refused.is_permanent() && refused.to_string().contains("(ulimit -v)"), "{refused}");
        assert_eq!(store.list().unwrap(), [], "nothing is left of it");
    }
}

#[test]
fn a_segment_that_cannot_be_looked_at_keeps_its_name() {
    let Some(folder) = inside(a_segment_that_cannot_be_looked_at_keeps_its_name, "true") else {
        return;
    };
    let refuses = |store: &dyn Store, resource, most| {
        let second = under(resource, most, || store.create(&name(0), 8));
        assert!(second.is_err(), "{resource} {most:?}: {second:?}");
        matches!(second, Err(StoreError::Exists { .. }))
    };
    let store = SysV::new(false);
    drop(store.create(&name(0), 32 << 20).unwrap());
    assert!(!refuses(&store, libc::RLIMIT_AS, Some(little_more_bytes())));
    assert!(refuses(&store, libc::RLIMIT_AS, None));

    let store = Files::in_folder(&folder);
    drop(store.create(&name(0), 8).unwrap());
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let reported = (0..8).filter(|spare| refuses(&store, libc::RLIMIT_NOFILE, Some(next + spare)));
    assert!(reported.count() > 0, "never seen");
}

/// Runs the benchmark on two ranks.
fn benchmark(flags: &str) -> Ended {
    let mut job = mpirun(2);
    job.args(["--bind-to", "none"]).arg(env!("CARGO_BIN_EXE_skt-hpl"));
    job.args("--nb 32 --p 1 --q 2 --progress off".split(' '));
    run(job.args(flags.split_whitespace()))
}

#[test]
fn a_limit_that_stays_is_no_interruption() {
    let Some(_) =
        inside(a_limit_that_stays_is_no_interruption, "echo 65536 > /proc/sys/kernel/shmmax")
    else {
        return;
    };
    let printed = benchmark("--n 512 --checkpoint-every 2p!").expect(2).err;
    assert!(printed.contains("kernel.shmmax"), "{printed}");
}

/// The run would compute for hours, and lose everything with its processes.
#[test]
fn a_store_that_ends_with_its_processes_is_refused_first() {
    let setup = "echo 1 > /proc/sys/kernel/shm_rmid_forced; mount -t tmpfs none /dev/shm";
    let Some(_) = inside(a_store_that_ends_with_its_processes_is_refused_first, setup) else {
        return;
    };
    let Ended { out: report, err: printed, .. } = benchmark("--n 512").expect(2);
    for words in ["kernel.shm_rmid_forced = 1", "--store posix"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(!report.contains("PASSED"), "{report}");
    let report = benchmark("--n 512 --store posix").expect(0).out;
    assert!(report.contains("segments in the store posix"), "{report}");
    benchmark("--n 512 --ft none").expect(0);
}

/// Open MPI's files in /dev/shm stay when ranks are killed; the next start removes them, and no
/// files of others.
#[test]
fn the_next_start_removes_shared_memory_of_open_mpi() {
    let Some(_) =
        inside(the_next_start_removes_shared_memory_of_open_mpi, "mount -t tmpfs none /dev/shm")
    else {
        return;
    };
    let files = || {
        let names = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    // SAFETY: geteuid cannot fail and touches no memory.
    let other = format!("vader_segment.other.{}.1.0", unsafe { libc::geteuid() });
    std::fs::write(format!("/dev/shm/{other}"), "").unwrap();
    let flags = "--n 512 --run-id left --checkpoint-every 2p! --inject 1@column:200";
    let Ended { code, err: printed, .. } = benchmark(flags);
    assert_ne!(code, Some(0));
    assert!(printed.contains("--inject 1@column:200: rank 1 dies"), "{printed}");
    if files().len() == 1 {
        skipped("this MPI leaves no files");
    }
    let printed = benchmark(flags).expect(0).err;
    assert!(printed.contains("has struck it, and this one does not"), "{printed}");
    assert_eq!(files(), [other]);
}

/// A run that mpirun starts gets the same warnings as one that `skt-hpl launch` starts.
#[test]
fn a_run_is_warned_of_what_may_remove_its_segments() {
    let Some(folder) = inside(
        a_run_is_warned_of_what_may_remove_its_segments,
        "mount -t tmpfs -o size=1m none $DIR",
    ) else {
        return;
    };
    let text = benchmark("--n 200").expect(0).err;
    assert_eq!(text.matches("its own IPC namespace").count(), 1, "{text}");
    let text = benchmark("--n 200 --ft none").err;
    assert!(!text.contains("its own IPC namespace"), "it has no segments: {text}");
    // The second test would not get the memory that it needs when the first one is done.
    let of_order = |n: &str| benchmark(&format!("--n {n} --store file:{}", folder.display()));
    let text = of_order("64,512").expect(2).err;
    let has = format!("its store {} has ", folder.display());
    assert!(text.contains(&has) && text.contains(" and the segments of 2 ranks need"), "{text}");
    // What the message advises is enough: a smaller N, or a larger file system.
    let between = |start: &str, end: &str| {
        let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no `{start}`: {text}"));
        rest.split(end).next().unwrap().trim().to_owned()
    };
    let largest = between("The largest N that fits there is ", "\n");
    of_order(&largest).expect(0);
    of_order(&(largest.parse::<usize>().unwrap() + 1).to_string()).expect(2);
    let remount = between("(as root: ", ")");
    assert!(remount.ends_with(&format!("M {}", folder.display())), "{remount}");
    assert!(Command::new("sh").args(["-c", &remount]).status().unwrap().success());
    of_order("64,512").expect(0);
}

#[test]
fn a_json_report_without_room_costs_no_line_of_the_report() {
    let Some(folder) = inside(
        a_json_report_without_room_costs_no_line_of_the_report,
        "mount -t tmpfs -o size=48k none $DIR",
    ) else {
        return;
    };
    let json = folder.join("report.json");
    let orders: Vec<String> = (1..=20).map(|order: u32| (order * 8).to_string()).collect();
    for ft in ["none", "self"] {
        let flags = format!("--n {} --ft {ft} --json {}", orders.join(","), json.display());
        let Ended { out: report, err: printed, .. } = benchmark(&flags).expect(2);
        assert!(printed.contains("error: cannot write the JSON report"), "{printed}");
        assert!(printed.contains("the report itself is whole"), "{printed}");
        assert_eq!(
            printed.matches("warning: cannot write the JSON report").count(),
            1,
            "{printed}"
        );
        assert!(report.contains("    20 tests completed and passed residual checks"), "{report}");
        assert!(report.contains("End of Tests."), "{report}");
        // The part that could be written is a whole document.
        let document = std::fs::read(&json).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(document["finished"], false);
    }
}
