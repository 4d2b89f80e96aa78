//! Wrong uses of the calls: each returns a code and a text, on all ranks that are concerned, and
//! nothing crashes, hangs or is printed by the library. The cases are in
//! `tests/c_sources/bad_use.c`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use skt_checkpoint::client::{Next, Options, Region, open};
use skt_checkpoint_c::code::Code::{
    self, Argument, Ended, Mpi, Order, Refused, Region as Differs, Space, Success, System, Thread,
    Timeout,
};
use skt_comm::threads;
use skt_store::store::{Store as _, SysV};

use crate::build::{checkout, compile_c, under};
use crate::clients::mpirun::mpirun;

const RANKS: usize = 3;
/// A job that takes longer hangs.
const LIMIT_SECONDS: &str = "120";

/// What a rank prints of a call: the call, its code, and a part of the text.
pub type Expected = (&'static str, Code, &'static str);

fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let compile = || {
        let source = checkout().join("crates/skt-checkpoint-c/tests/c_sources/bad_use.c");
        compile_c(&source, "bad_use", "gcc", &["-D_XOPEN_SOURCE=600", "-lpthread"])
    };
    PROGRAM.get_or_init(compile).clone()
}

fn run_of(name: &str) -> String {
    format!("bad-{}-{name}", std::process::id())
}

/// Runs a case, and compares the output of each rank with `wanted`. Nothing of the run is left.
#[track_caller]
fn case(name: &str, wanted: impl Fn(usize) -> Vec<Expected>) {
    assert_eq!(segments_after(name, wanted), 0, "{name}");
}

/// As [`case`], and removes what is left of the run: the number of ranks whose memory was there.
#[track_caller]
fn segments_after(name: &str, wanted: impl Fn(usize) -> Vec<Expected>) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    // A case makes a file of its name, or has images there.
    let is_in_folder = ["alone", "level", "slow-disk"].iter().any(|one| name.starts_with(one));
    let argument = if is_in_folder { folder.path().to_owned() } else { folder.path().join("file") };
    segments_after_case(&program(), name, &argument, wanted)
}

/// As [`segments_after`], of any program.
#[track_caller]
pub fn segments_after_case(
    program: &Path,
    name: &str,
    argument: &Path,
    wanted: impl Fn(usize) -> Vec<Expected>,
) -> usize {
    let run = run_of(name);
    let mut command = mpirun(RANKS);
    command.args(under()).arg(program).arg(name).arg(argument).stdin(Stdio::null());
    command.env("SKT_RUN_ID", &run).env("MPIEXEC_TIMEOUT", LIMIT_SECONDS);
    let output = command.output().expect("mpirun");
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let left = SysV::new(false).list_once().expect("a store");
    let left: Vec<_> = left.into_iter().filter(|info| info.name.run() == run).collect();
    for info in &left {
        SysV::new(false).remove(&info.name).expect("no process has it open");
    }
    assert!(output.status.success() && err.is_empty(), "{name}: {}\n{out}\n{err}", output.status);
    for rank in 0..RANKS {
        let lines = out.lines().filter_map(|line| line.strip_prefix(&format!("{rank} ")));
        let (lines, wanted) = (lines.collect::<Vec<_>>(), wanted(rank));
        assert_eq!(lines.len(), wanted.len(), "{name}, rank {rank}: {out}");
        for (line, (call, code, text)) in lines.iter().zip(wanted) {
            let rest = line.strip_prefix(&format!("{call} {} ", code as i32));
            let is_right = rest.is_some_and(|rest| rest.contains(text));
            assert!(is_right, "{name}, rank {rank}: {line}\nwanted: {call} {code:?} {text}");
        }
    }
    left.iter().filter(|info| info.name.role().starts_with('t')).count()
}

/// All calls of `all_calls` in the source, with one code.
fn all_calls(code: Code, text: &'static str) -> Vec<Expected> {
    [
        "skt_comm(&comm)",
        "skt_found(&found)",
        "skt_saved(1, &count, &item)",
        "skt_alloc(1, 1, 8, &memory)",
        "skt_protect(1, numbers, 1, 8)",
        "skt_unprotect(1)",
        "skt_restore()",
        "skt_checkpoint()",
        "skt_checkpoint_begin()",
        "skt_checkpoint_test(&due)",
        "skt_checkpoint_wait()",
        "skt_due(&due)",
        "skt_time_left(&seconds)",
        "skt_image(0, &found)",
        "skt_images_wait()",
        "skt_finalize(1)",
    ]
    .map(|call| (call, code, text))
    .to_vec()
}

const INIT: &str = "skt_init(MPI_COMM_WORLD, 8000, NULL)";

#[test]
fn outside_of_mpi() {
    case("outside", |rank| {
        // Before MPI is initialized all take themselves for rank 0.
        let before = vec![(INIT, Mpi, "MPI is not initialized: call MPI_Init first"); RANKS];
        let mut expected = if rank == 0 { before } else { Vec::new() };
        expected.extend(all_calls(Mpi, "MPI is finalized"));
        expected.push((INIT, Mpi, "MPI is finalized"));
        expected
    });
}

#[test]
fn without_an_open_run() {
    case("before-init", |_| all_calls(Order, "no run is open; call skt_init first"));
    case("after-finalize", |_| {
        let mut expected = all_calls(Order, "no run is open; call skt_init first");
        expected.push((INIT, Order, "skt_init: a run is open; call skt_finalize first"));
        expected
    });
}

#[test]
fn wrong_arguments_of_init_are_reported_on_all_ranks() {
    case("init", |_| {
        vec![
            ("skt_init(MPI_COMM_NULL, 8000, NULL)", Argument, "is MPI_COMM_NULL"),
            (
                "skt_init(MPI_COMM_WORLD, rank == 1 ? 0 : 8000, NULL)",
                Argument,
                "rank 1: skt_init: 0 bytes",
            ),
            (
                "skt_init(MPI_COMM_WORLD, (size_t)-1, NULL)",
                Argument,
                "rank 0: skt_init: 18446744073709551615",
            ),
            (
                "skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? \"parities = 0\" : NULL)",
                Code::Options,
                "rank 1: option parities: `0`: legal: whole numbers from 1 to 127",
            ),
            (
                "skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? \"group_size = 3\" : NULL)",
                Code::Options,
                "rank 1 has group_size = \"3\", rank 0 has 16 (the default)",
            ),
            (
                "skt_init(MPI_COMM_WORLD, 8000, \"resume = \\\"require\\\"\")",
                Refused,
                "resume = \"require\", but no checkpoint of this run was found",
            ),
        ]
    });
}

#[test]
fn null_and_empty_arguments_are_refused() {
    case("nulls", |_| {
        vec![
            ("skt_comm(NULL)", Argument, "the place for the answer is null"),
            ("skt_comm_f(NULL)", Argument, "the place for the answer is null"),
            ("skt_found(NULL)", Argument, "the place for the answer is null"),
            ("skt_saved(1, NULL, &one)", Argument, "the place for the answer is null"),
            ("skt_saved(1, &one, NULL)", Argument, "the place for the answer is null"),
            ("skt_alloc(1, 1, 8, NULL)", Argument, "the place for the answer is null"),
            ("skt_protect(1, NULL, 1, 8)", Argument, "the memory of region 1 is null"),
            ("skt_due(NULL)", Argument, "the place for the answer is null"),
            ("skt_time_left(NULL)", Argument, "the place for the answer is null"),
            ("skt_image(0, NULL)", Argument, "the place for the answer is null"),
            ("skt_checkpoint_test(NULL)", Argument, "the place for the answer is null"),
            ("skt_protect(1, numbers, 0, 8)", Argument, "region 1 of 0 x 8 bytes"),
            ("skt_protect(1, numbers, 8, 0)", Argument, "region 1 of 8 x 0 bytes"),
            (
                "skt_protect(1, numbers, (size_t)-1, 8)",
                Argument,
                "region 1 of 18446744073709551615 x 8",
            ),
            ("skt_unprotect(9)", Argument, "region 9 is not protected"),
            ("skt_checkpoint()", Argument, "rank 0: skt_alloc: the place for the answer is null"),
            ("skt_protect(1, NULL, 1, 8)", Argument, "the memory of region 1 is null"),
            ("skt_checkpoint()", Argument, "rank 0: skt_protect: the memory of region 1 is null"),
            ("skt_checkpoint()", Order, "rank 0: skt_checkpoint: nothing is protected"),
        ]
    });
}

#[test]
fn oversized_regions_fail_the_next_checkpoint_on_all_ranks() {
    case("space", |rank| {
        let large = "region 1 of 30000 x 8 bytes does not fit: skt_init was given 832 bytes";
        let mut expected = Vec::new();
        if rank == 1 {
            expected.push(("skt_protect(1, numbers, 30000, 8)", Space, large));
        }
        expected.push((
            "skt_checkpoint()",
            Space,
            "rank 1: region 1 of 30000 x 8 bytes does not fit",
        ));
        if rank == 1 {
            expected.push(("skt_unprotect(1)", Argument, "region 1 is not protected"));
        }
        if rank == 0 {
            expected.push(("skt_alloc(3, 30000, 8, &memory)", Space, "region 3 of 30000 x 8"));
        }
        expected.push((
            "skt_checkpoint()",
            Space,
            "rank 0: region 3 of 30000 x 8 bytes does not fit",
        ));
        expected.push(("skt_protect(SKT_REGIONS, numbers, 1, 1)", Space, "more than 256 regions"));
        expected.push(("skt_finalize(1)", Space, "rank 0: more than 256 regions"));
        expected
    });
}

#[test]
fn a_region_is_of_one_kind_and_size() {
    case("kinds", |_| {
        vec![
            ("skt_alloc(1, 10, 8, &two)", Success, ""),
            (
                "skt_alloc(1, 11, 8, &two)",
                Differs,
                "region 1 is 10 x 8 bytes of skt_alloc in this run, here it is 11 x 8 of skt_alloc",
            ),
            ("skt_protect(1, numbers, 10, 8)", Order, "region 1 is memory of skt_alloc"),
            ("skt_alloc(2, 10, 8, &two)", Order, "region 2 is protected already"),
            (
                "skt_protect(3, (char *)one + 72, 1, 8)",
                Argument,
                "region 3 lies in memory of skt_alloc",
            ),
            ("skt_unprotect(1)", Argument, "region 1 is of skt_alloc, and stays"),
            ("skt_finalize(1)", Differs, "rank 0: region 1 is 10 x 8 bytes"),
            ("skt_restore()", Differs, "rank 0: region 2 is not in the checkpoint"),
        ]
    });
}

#[test]
fn other_sizes_after_a_restart() {
    case("sizes", |_| {
        vec![
            (
                "skt_init(MPI_COMM_WORLD, 9000, NULL)",
                Refused,
                "made with other settings: memory of a rank",
            ),
            (
                "skt_init(MPI_COMM_WORLD, 8000, \"application = \\\"other\\\"\")",
                Refused,
                "there, not given here. Restart with the settings of the run, or start afresh \
                 with the option resume = \"never\"",
            ),
            (
                "skt_restore()",
                Differs,
                "rank 1: region 1 is 100 x 8 bytes in the checkpoint, here it is 101 x 8",
            ),
            (
                "skt_restore()",
                Differs,
                "rank 0: region 2 of the checkpoint is not protected: call skt_protect or skt_protect_with first",
            ),
            ("skt_restore()", Differs, "rank 0: region 3 is not in the checkpoint"),
            (
                "skt_checkpoint()",
                Order,
                "rank 0: skt_checkpoint: the checkpoint that was found is not",
            ),
            ("skt_restore()", Order, "rank 0: skt_restore: the regions are restored already"),
        ]
    });
}

#[test]
fn checkpoints_are_due_at_once_by_interval_and_before_the_end() {
    case("due", |_| Vec::new());
}

#[test]
fn begun_checkpoint_has_the_state_of_its_beginning() {
    let left = segments_after("overlap", |_| {
        let none = "no checkpoint is under way; call skt_checkpoint_begin first";
        let one = "a checkpoint is under way; call skt_checkpoint_wait first";
        let written = "rank 1: region 1 of skt_alloc was written to between skt_checkpoint_begin";
        vec![
            ("skt_checkpoint_test(&done)", Order, none),
            ("skt_checkpoint_wait()", Order, none),
            ("skt_checkpoint_begin()", Order, "rank 0: skt_checkpoint_begin: nothing is protected"),
            ("skt_checkpoint()", Order, one),
            ("skt_checkpoint_begin()", Order, one),
            ("skt_images_wait()", Order, one),
            ("skt_finalize(1)", Order, one),
            ("skt_checkpoint_wait()", Order, none),
            ("skt_alloc(3, 10, 8, &memory)", Order, one),
            ("skt_checkpoint_wait()", Order, one),
            ("skt_checkpoint_wait()", Differs, written),
            ("skt_finalize(0)", Differs, written),
        ]
    });
    assert_eq!(left, RANKS, "the next start continues");
}

#[test]
fn memory_that_is_asked_for_before_a_restore_leaves_room_for_it() {
    case("alloc-first", |_| {
        let message = "region 4 of 30000 x 8 bytes does not fit: skt_init was given 8000 bytes";
        vec![
            ("skt_alloc(4, 30000, 8, &memory)", Space, message),
            ("skt_finalize(1)", Space, message),
        ]
    });
}

#[test]
fn invalid_levels_are_refused_and_failing_ones_dropped() {
    case("levels", |rank| {
        let call = |options| match options {
            0 => "skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? \"levels = 'near:/x'\" : NULL)",
            1 => "skt_init(MPI_COMM_WORLD, 8000, rank == 1 ? \"levels = 'local:/x'\" : NULL)",
            _ => "skt_init(MPI_COMM_WORLD, 8000, \"levels = 'local:/nowhere/at/all'\")",
        };
        let failed = match rank {
            1 => "The run continues without this level",
            _ => "a write has failed on another rank. The run continues without this level",
        };
        vec![
            (call(0), Code::Options, "rank 1: option levels: `near:/x`: `near:/x` is neither"),
            (
                call(1),
                Code::Options,
                "rank 1 has levels = \"local:/x\", rank 0 has none (the default)",
            ),
            (call(2), Refused, "leave it out of the option levels to do without what it has"),
            ("skt_image(-1, &image)", Argument, "skt_image: level -1 of 1 (from 0 on)"),
            ("skt_image(1, &image)", Argument, "skt_image: level 1 of 1 (from 0 on)"),
            ("skt_image(0, &image)", Code::Level, failed),
        ]
    });
}

/// A run whose images would be all that stays.
#[test]
fn a_run_whose_level_is_gone_ends() {
    case("level-gone", |rank| {
        // The first rank whose disk fails reports it.
        let message = if rank == 0 { "removing the images of level local:" } else { "" };
        vec![("skt_finalize(1)", Success, message)]
    });
}

#[test]
fn a_rank_whose_disk_is_slow_is_waited_for_without_a_limit() {
    for name in ["slow-disk", "slow-disk-in-parts"] {
        case(name, |_| Vec::new());
    }
}

#[test]
fn calls_at_the_exit_of_a_process_have_a_code() {
    // The text belongs to the thread, and is gone.
    case("at-exit", |_| vec![("skt_unprotect(9)", Argument, "")]);
}

/// The table, and gaps between 256 regions.
const TABLE_AND_GAPS: usize = 8256 + 256 * 64;

/// A start that dies between the mark of its result and the end leaves marked memory.
#[test]
fn run_ended_by_an_earlier_start_is_reported_and_removed() {
    let run = run_of("ended");
    let ended = threads::run(RANKS, |world| {
        let options = Options::new(&run, "");
        let Next::Compute(saved) =
            open(&world, &options, &[Region::of::<u8>(8000 + TABLE_AND_GAPS)])?
        else {
            panic!("the run begins")
        };
        // Dropped without being cleared.
        saved.finish(&1u64).map(drop)
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    // The same of an interface without a default: the empty text may be given, too.
    let init = "skt_init(MPI_COMM_WORLD, 8000, \"application = ''\")";
    case("ended", |_| vec![(init, Ended, "")]);
}

/// All ranks report it if one comes too late for a checkpoint: rank 0 notifies the others, and they
/// notify it.
#[test]
fn rank_that_does_not_call_is_reported_and_none_hangs() {
    let message = "not all ranks have called skt_checkpoint within ";
    for name in ["late-1", "late-0"] {
        let calls = ["skt_checkpoint()", "skt_checkpoint()", "skt_finalize(1)", INIT];
        let left = segments_after(name, |_| calls.map(|call| (call, Timeout, message)).to_vec());
        assert_eq!(left, RANKS, "the next start continues");
    }
    case("late-init", |_| {
        let call = "skt_init(MPI_COMM_WORLD, 8000, \"timeout_seconds = 1\")";
        vec![(call, Timeout, "not all ranks have called skt_init within ")]
    });
}

#[test]
fn ranks_in_different_calls_are_reported_and_run_stays_open() {
    case("different", |rank| {
        let message = "rank 1 has called skt_finalize(1), rank 0 skt_checkpoint";
        let call = if rank == 1 { "skt_finalize(1)" } else { "skt_checkpoint()" };
        let other = "rank 1 has called skt_finalize(0), rank 0 skt_finalize(1)";
        vec![(call, Order, message), ("skt_finalize(rank == 0)", Order, other)]
    });
}

#[test]
fn a_rank_that_comes_late_in_its_time_is_waited_for() {
    case("in-time", |rank| {
        let call = if rank == 1 { "skt_finalize(1)" } else { "skt_checkpoint()" };
        vec![(call, Order, "rank 1 has called skt_finalize(1), rank 0 skt_checkpoint")]
    });
}

/// The others wait for it within the library's own messages.
#[test]
fn rank_that_fails_alone_within_a_call_is_reported() {
    case("alone", |rank| {
        let call =
            "skt_init(MPI_COMM_WORLD, 8000, \"store = \\\"file:/proc/self/cwd/store-of-all\\\"\")";
        let message = if rank == 1 { "the store of rank 1" } else { "rank 1: " };
        vec![(call, System, message), (INIT, System, message)]
    });
}

#[test]
fn calls_of_two_threads() {
    case("threads", |rank| {
        let message =
            "another thread is in a call of this library, or a callback of this one: make";
        if rank == 0 { vec![("skt_found(&found)", Thread, message)] } else { Vec::new() }
    });
    case("other-thread", |_| {
        vec![("skt_checkpoint()", Thread, "for calls of its main thread alone")]
    });
}
