//! `mpirun` for tests, also as root, and on fewer cores than ranks.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// `mpirun -np RANKS`, to be followed by its arguments and the program.
#[allow(dead_code)] // not every suite needs it
pub fn mpirun(ranks: usize) -> Command {
    launcher(OsStr::new("mpirun"), ranks)
}

/// `mpirun -np RANKS` of the MPI library that is installed in the folder.
#[allow(dead_code)] // not every suite needs it
pub fn mpirun_in(folder: &Path, ranks: usize) -> Command {
    let mut command = launcher(folder.join("bin/mpirun").as_os_str(), ranks);
    command.env("LD_LIBRARY_PATH", folder.join("lib"));
    command
}

fn launcher(program: &OsStr, ranks: usize) -> Command {
    let mut command = Command::new(program);
    command.args(["-np", &ranks.to_string()]);
    // Variables are used and not flags, because other MPIs ignore them.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // These permit more ranks than cores, in Open MPI 4 and in 5.
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    // What one host without a fabric gets anyway: to look for others takes 0.2 s of each start.
    command.env("OMPI_MCA_pml", "ob1");
    // The ranks that are left when one has ended are killed then, and not after a second or two.
    command.env(PATIENCE, "0");
    // The threads that OpenBLAS starts when it is loaded spin for 20 ms, and no rank uses them.
    command.env(BLAS_THREADS, "1");
    own_session(&mut command);
    command
}

/// How many seconds Open MPI 4 waits before it kills the ranks that are left.
const PATIENCE: &str = "OMPI_MCA_odls_base_sigkill_timeout";

const BLAS_THREADS: &str = "OPENBLAS_NUM_THREADS";

/// Makes the launcher as slow as users have it: it finds its network itself, and tells the ranks
/// that are left to end a second before it kills them.
#[allow(dead_code)] // not every suite needs it
pub fn as_installed(launcher: &mut Command) -> &mut Command {
    launcher.env_remove("OMPI_MCA_pml").env_remove(PATIENCE).env_remove(BLAS_THREADS)
}

/// Gives a job a folder of its own for the files of Open MPI. By default all jobs of a user share
/// one, which the job that ends last removes: a job that starts just then fails ("unable to create
/// the desired directory"). A program that is started without mpirun is a job, too.
pub fn own_session(job: &mut Command) {
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sessions");
    let folder = folder.join(format!("{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the sessions of Open MPI");
    job.env("OMPI_MCA_orte_tmpdir_base", &folder).env("PRTE_MCA_prte_tmpdir_base", &folder);
}

/// How a job ended.
#[allow(dead_code)] // not every suite needs it
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Ended {
    #[allow(dead_code)] // not every suite needs it
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }
}
