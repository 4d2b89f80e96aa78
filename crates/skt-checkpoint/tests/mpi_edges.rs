//! A job in which one rank fails in the middle, while the others wait for it: all ranks must end
//! promptly, and the job's exit code and messages must report it.

#[path = "../../../tests/mpirun/mod.rs"]
mod mpirun;

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mpirun::mpirun;
use skt_comm::mpi::{MpiWorld, PANIC_EXIT_CODE};

/// The variable that selects what goes wrong on rank 0.
const ROLE: &str = "SKT_TEST_MPI_ROLE";
const LIMIT: Duration = Duration::from_secs(180);

/// The body of the ranks of the other tests; does nothing without the variable.
#[test]
fn as_a_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let world = MpiWorld::init().expect("MPI");
    let comm = world.comm().expect("ranks");
    let mut never = [0u8; 8];
    match (comm.rank(), role.as_str()) {
        (0, "rank-panics") => panic!("this rank gives up"),
        (0, "helper-panics") => {
            std::thread::spawn(|| panic!("this thread gives up"));
        }
        (0, "exchange-fails") => {
            let sends = [(&[1u8; 8][..], 99, 2)];
            let returned = comm.exchange_bytes(&sends, &mut [(&mut never, 1, 1)]);
            eprintln!("returned, with a receive pending: {returned:?}");
        }
        _ => {}
    }
    comm.recv_bytes(&mut never, 1 - comm.rank(), 1).expect("no rank sends");
}

fn job(role: &str) -> (Option<i32>, String) {
    let mut child = mpirun(2)
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "as_a_rank", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mpirun");
    let mut err = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).expect("a pipe");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > LIMIT {
            // SAFETY: a signal to a process that this test has started, which ends its ranks.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            let _ = child.wait();
            panic!("{role}: the job hangs: {}", reader.join().expect("no panic"));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    (status.code(), reader.join().expect("no panic"))
}

#[test]
fn a_panic_of_a_rank_ends_all() {
    let (code, text) = job("rank-panics");
    assert!(text.contains("this rank gives up") && text.contains("ends all ranks"), "{text}");
    assert_eq!(code, Some(PANIC_EXIT_CODE), "{text}");
}

/// The rank itself keeps waiting.
#[test]
fn a_panic_of_a_helper_thread_ends_all() {
    let (code, text) = job("helper-panics");
    assert!(text.contains("this thread gives up") && text.contains("ends all ranks"), "{text}");
    assert_eq!(code, Some(PANIC_EXIT_CODE), "{text}");
}

/// Borrowed memory is not returned while MPI may write to it.
#[test]
fn an_error_with_a_receive_pending_ends_all() {
    let (code, text) = job("exchange-fails");
    assert!(text.contains("MPI_Isend failed") && text.contains("still in progress"), "{text}");
    assert!(!text.contains("returned"), "{text}");
    assert_eq!(code, Some(75), "{text}");
}
