//! Ranks that report different host names, as containers do, but see one store: they are one job
//! with one store, are killed, and end with the same x.
//!
//! The tests need the right to make namespaces; without it they report that they are skipped.

use std::path::Path;

use crate::mpirun::{self, Ended, mpi_program, mpirun};
use crate::skipped::namespaces;
use skt_store::segments::Plain;
use tempfile::TempDir;

/// Gives each rank its own host name.
const AS_NODE: &str = "hostname box$OMPI_COMM_WORLD_RANK; exec \"$0\" \"$@\"";

fn benchmark(folder: &Path, run: &str, flags: &str) -> Ended {
    let mut command = mpirun(4);
    let unshare = namespaces(&["--uts"]).expect("asked for before");
    command.args(["--bind-to", "none"]).args(unshare).args(["sh", "-c", AS_NODE]);
    command.arg(env!("CARGO_BIN_EXE_skt-hpl"));
    command.args("--n 400 --nb 32 --p 2 --q 2 --progress off --run-id".split(' ')).arg(run);
    mpirun::run(command.args(flags.split(' ')).current_dir(folder))
}

/// The fingerprint of x in the report of a run that passed.
fn x(ended: &Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = ended.out.lines().find_map(|line| line.strip_prefix("# x: "));
    line.expect("a line about x").split_whitespace().next().unwrap().to_owned()
}

fn store_command(store: &str, args: &str) -> String {
    let mut command = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
    let output = command.arg("store").args(args.split(' ')).args(["--store", store]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn hosts_that_see_one_store_run_are_killed_and_go_on() {
    if namespaces(&["--uts"]).is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let plain = x(&benchmark(folder.path(), "plain", "--ft none"));
    for store in
        ["sysv".to_owned(), "posix".to_owned(), format!("file:{}", folder.path().display())]
    {
        let run = format!("shared-{}", std::process::id());
        // Within the first checkpoint, later in the work, and at the end.
        let flags = format!(
            "--store {store} --checkpoint-every 2p! --inject 1@column:128 --inject 2@encode \
             --inject 3@back"
        );
        for _ in 0..3 {
            let Ended { code, err: error, .. } = benchmark(folder.path(), &run, &flags);
            assert_ne!(code, Some(0), "{store}: a fault strikes each start");
            assert!(error.contains("hosts box[0-3] share one memory"), "{error}");
            assert!(!error.contains("is running on"), "{store}: {error}");
        }
        let last = benchmark(folder.path(), &run, &format!("{flags} --resume require"));
        assert_eq!(x(&last), plain, "{store}");
        assert!(last.out.contains("# restart: column"), "{store}: {}", last.out);
        assert!(!store_command(&store, "list").contains(&run), "{store}: all is removed");
    }
}

/// A second job of the same name on another host of the store is refused, and the memory that the
/// first job uses is left alone.
#[test]
fn a_second_job_on_the_store_is_refused_for_the_true_reason() {
    if namespaces(&["--uts"]).is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let store = format!("file:{}", folder.path().display());
    let kind: skt_store::store::StoreKind = store.parse().unwrap();
    let open = kind.open();
    let held =
        skt_run::protect::hold::RunLock::take(&*open, "twice", "elsewhere", 0, &Plain).unwrap();
    let error = benchmark(folder.path(), "twice", &format!("--store {store}")).expect(2).err;
    assert!(error.contains("waits for another start of the same run to end"), "{error}");
    assert!(error.contains("run `twice` is running on host box0"), "{error}");
    assert!(held.is_ok());
}
