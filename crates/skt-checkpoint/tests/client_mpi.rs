//! The client's interface over MPI: what becomes of a job in which the application fails, and a
//! code that initialises MPI itself.

#[path = "../../../tests/mpirun/mod.rs"]
mod mpirun;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mpi::traits::Communicator as _;
use mpirun::mpirun;
use skt_checkpoint::checkpoint::decide::Refusal;
use skt_checkpoint::client::{CheckpointError, Next, Options, Region, on_mpi, open};
use skt_comm::mpi::{MpiComm, MpiWorld};
use skt_comm::{CommError, PageBuf};
use skt_store::store::StoreKind;

const ROLE: &str = "SKT_TEST_CLIENT_ROLE";
/// The folder of its store.
const FOLDER: &str = "SKT_TEST_CLIENT_FOLDER";

/// What the ranks of the other tests run; does nothing when run directly.
#[test]
fn as_a_rank() {
    match std::env::var(ROLE).as_deref() {
        Ok("fails-alone") => {
            on_mpi(|world| {
                if world.rank() == 0 {
                    return Err("this rank gives up".into());
                }
                world.recv_bytes(&mut [0; 8], 0, 1)?;
                unreachable!("no rank sends")
            });
        }
        Ok("refused") => {
            let code = on_mpi(|_| {
                Err(CheckpointError::Refused(Refusal::NothingFound { bare: 0, images: 0 }).into())
            });
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(2)));
        }
        Ok("own-mpi") => own_mpi(),
        Ok("fails-in-a-message") => fails_in_a_message(),
        _ => {}
    }
}

/// A code with a second communicator, whose messages do not mix with those of its checkpoints.
fn own_mpi() {
    let universe = mpi::initialize().expect("MPI");
    let world = universe.world();
    let comm = MpiComm::duplicate_of(&world).expect("a duplicate");
    assert_eq!((comm.rank() as i32, comm.size() as i32), (world.rank(), world.size()));
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let options = Options::new("own-mpi", "").with_store(StoreKind::Files(folder));
    let Next::Compute(mut saved) = open(&comm, &options, &[Region::of::<u8>(100)]).expect("open")
    else {
        panic!("nothing is there")
    };
    let [region] = saved.regions::<u8, 1>();
    region.fill(7);
    saved.checkpoint(&1u64).expect("a checkpoint");
    saved.finish(&2u64).and_then(|ended| ended.clear()).expect("the end");
    if world.rank() == 0 {
        eprintln!("checkpoints next to a second communicator");
    }
}

/// Rank 0 fails, and makes no more calls of MPI, when a part of its message has arrived: the wait
/// of rank 1 for the rest ends when it is notified.
fn fails_in_a_message() {
    let world = MpiWorld::init().expect("MPI");
    let comm = world.comm().expect("a communicator");
    let notified = PathBuf::from(std::env::var_os(FOLDER).expect("a folder")).join("told");
    const DOUBLES: usize = 8 << 20;
    if comm.rank() == 0 {
        let message = PageBuf::for_messages(DOUBLES).expect("memory");
        let send = comm.isend(message.into(), 0..DOUBLES, 1, 1).expect("begun");
        while !notified.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        send.wait().expect("its receiver is there");
        return;
    }
    while !comm.probe(0, 1).expect("a live sender") {}
    let watch = Arc::new(|| Err(CommError::aborted("rank 0 has failed")));
    let watched = world.watched_comm(watch).expect("a communicator");
    let mut memory = vec![0; 8 * DOUBLES];
    let ended = watched.recv_bytes(&mut memory, 0, 1);
    assert!(matches!(ended, Err(CommError::Aborted { .. })), "{ended:?}");
    eprintln!("the wait has ended");
    std::fs::write(notified, "").expect("room");
    // The message comes to its end, in memory that has been leaked.
    drop(watched);
}

fn job(role: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = mpirun(2);
    command.arg(std::env::current_exe().expect("this test"));
    command.args(["--exact", "as_a_rank", "--nocapture"]);
    // A job that hangs is ended, by Open MPI and MPICH alike.
    command.env(ROLE, role).env(FOLDER, folder.path()).env("MPIEXEC_TIMEOUT", "180");
    // A receiver must not read the sender's memory directly.
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    let output = command.output().expect("mpirun");
    let text = [output.stdout, output.stderr].concat();
    let left = folder.path().read_dir().expect("a folder").map(|file| file.unwrap().file_name());
    assert_eq!(left.filter(|name| name != "told").count(), 0);
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_rank_that_fails_alone_ends_all() {
    let (code, text) = job("fails-alone");
    assert!(text.contains("error: rank 0: this rank gives up"), "{text}");
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn refusal_by_all_ranks_is_reported_once() {
    let (code, text) = job("refused");
    assert_eq!(text.matches("no checkpoint of this run was found").count(), 1, "{text}");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_code_may_initialise_mpi_itself() {
    let (code, text) = job("own-mpi");
    assert!(text.contains("checkpoints next to a second communicator"), "{text}");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_rank_that_fails_within_a_message_is_not_waited_for() {
    let (code, text) = job("fails-in-a-message");
    assert!(text.contains("the wait has ended"), "{text}");
    assert_eq!(code, Some(0), "{text}");
}
