//! `mpirun` for tests, also as root, and on fewer cores than ranks.
#![allow(dead_code)] // Each test uses its part.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::IntoRawFd as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `mpirun -np RANKS`, to be followed by its arguments and the program.
pub fn mpirun(ranks: usize) -> Command {
    launcher(OsStr::new("mpirun"), ranks)
}

/// `mpirun -np RANKS` of the MPI library that is installed in the folder.
pub fn mpirun_in(folder: &Path, ranks: usize) -> Command {
    let mut command = launcher(folder.join("bin/mpirun").as_os_str(), ranks);
    command.env("LD_LIBRARY_PATH", folder.join("lib"));
    command
}

/// A program that initializes MPI or starts one that does, also as root.
pub fn mpi_program(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    // Variables are used and not flags, because other MPIs ignore them.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // The libraries that have passed their check are those of these tests.
    command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    // Each mpirun would load a compiler (LLVM) to look for devices of OpenCL, and ask each PCI
    // device for its settings, which takes up to 0.1 s where they are emulated.
    command.env("HWLOC_PLUGINS_PATH", "/nowhere").env("HWLOC_COMPONENTS", "-linuxio");
    own_session(&mut command);
    command
}

fn launcher(program: &OsStr, ranks: usize) -> Command {
    let mut command = mpi_program(program);
    command.args(["-np", &ranks.to_string()]);
    // These permit more ranks than cores, in Open MPI 4 and in 5.
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    // Ranks that wait leave the cores to others.
    static SLEEPS: OnceLock<String> = OnceLock::new();
    command.env("LD_PRELOAD", SLEEPS.get_or_init(|| shared_library("waits", WAITS)));
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    // What one host without a fabric gets anyway: to look for others takes 0.2 s of each start.
    command.env("OMPI_MCA_pml", "ob1");
    // The ranks that are left when one has ended are killed then, and not after a second or two.
    command.env(PATIENCE, "0");
    // The threads that OpenBLAS starts when it is loaded spin for 20 ms, and no rank uses them.
    command.env(BLAS_THREADS, "1");
    command
}

/// With this source in a library, ranks that wait sleep.
pub const WAITS: &str = include_str!("waits.c");

/// Compiles a library, and returns it as it can be preloaded on this machine. `cc` is there:
/// without it `scripts/needs.sh` fails, and so does the build of any Rust program.
///
/// # Panics
/// `cc` does not compile it without a warning; as [`preloadable`].
pub fn shared_library(name: &str, source: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(name).with_extension("so");
    // Other processes may compile it at the same time, or have it loaded: it gets its name when it
    // is whole.
    let draft = folder.join(format!("{name}.{}.so", std::process::id()));
    let mut compiler = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-o"])
        .arg(&draft)
        .args(["-x", "c", "-", "-ldl"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("`cc`, without which nothing is built");
    compiler.stdin.take().expect("piped").write_all(source.as_bytes()).expect("`cc` reads");
    let compiled = compiler.wait_with_output().expect("our child");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    std::fs::rename(&draft, &library).expect("our folder");
    preloadable(&library)
}

/// The name by which `LD_PRELOAD` takes a library on this machine, as long as this process runs.
///
/// # Panics
/// The library cannot be loaded. To the loader this is no error: it prints a warning, and the test
/// would run without what it plants.
pub fn preloadable(library: &Path) -> String {
    let path = library.display().to_string();
    // LD_PRELOAD is a list with blanks and colons between the names.
    let name = if path.contains([' ', ':']) {
        let open = File::open(library).expect("a library").into_raw_fd();
        format!("/proc/{}/fd/{open}", std::process::id())
    } else {
        path
    };
    let loaded = Command::new("true").env("LD_PRELOAD", &name).output().expect("true");
    let printed = String::from_utf8_lossy(&loaded.stderr);
    assert!(loaded.status.success() && printed.is_empty(), "{name} is not preloaded: {printed}");
    name
}

/// How many seconds Open MPI 4 waits before it kills the ranks that are left.
const PATIENCE: &str = "OMPI_MCA_odls_base_sigkill_timeout";

const BLAS_THREADS: &str = "OPENBLAS_NUM_THREADS";

/// Makes the launcher as slow as users have it: it finds its network itself, and signals the ranks
/// that are left to end a second before it kills them.
pub fn as_installed(launcher: &mut Command) -> &mut Command {
    launcher.env_remove("OMPI_MCA_pml").env_remove(PATIENCE).env_remove(BLAS_THREADS)
}

/// Gives a job a separate folder for the files of Open MPI. By default all jobs of a user share
/// one, which the job that ends last removes: a job that starts just then fails ("unable to create
/// the desired directory"). A program that is started without mpirun is a job, too, and a launcher
/// of another MPI starts as many jobs as ranks: they share a folder here, which is never empty, so
/// that the first that ends does not remove it.
pub fn own_session(job: &mut Command) {
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    static CLEAN: Once = Once::new();
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let sessions = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sessions");
    CLEAN.call_once(|| remove_old_sessions(&sessions));
    let folder = sessions.join(format!("{}-{number}", std::process::id()));
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("UTF-8");
    let host = host.split('.').next().unwrap_or(&host);
    let shared = folder.join(format!("ompi.{host}.{}", nix::unistd::geteuid()));
    std::fs::create_dir_all(shared.join("kept")).expect("a folder for the sessions of Open MPI");
    job.env("OMPI_MCA_orte_tmpdir_base", &folder).env("PRTE_MCA_prte_tmpdir_base", &folder);
}

/// Removes the folders of tests that have ended. A job that was killed leaves megabytes there.
fn remove_old_sessions(sessions: &Path) {
    let Ok(folders) = std::fs::read_dir(sessions) else { return };
    for folder in folders.flatten() {
        let name = folder.file_name().into_string().unwrap_or_default();
        let process = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(process).exists() {
            // Another test may remove it, too.
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

/// Reads a pipe of a job to its end during the test, so that the job never waits for a reader.
pub fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end of a job, for `limit` at most.
///
/// # Panics
/// The job hangs; its launcher is killed.
pub fn status_within(job: &mut Child, limit: Duration) -> ExitStatus {
    let start = Instant::now();
    loop {
        match job.try_wait().expect("our child") {
            Some(status) => return status,
            None if start.elapsed() > limit => {
                let _ = job.kill();
                panic!("no end in {limit:?}");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Runs a job, which hangs if it takes longer than ten minutes.
pub fn run(job: &mut Command) -> Ended {
    let start = Instant::now();
    job.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = job.spawn().expect("mpirun, of Open MPI or MPICH");
    let out = reader(child.stdout.take().expect("piped"));
    let err = reader(child.stderr.take().expect("piped"));
    let code = status_within(&mut child, Duration::from_secs(600)).code();
    let [out, err] = [out, err].map(|reader| reader.join().expect("no panic"));
    Ended { code, out, err, took: start.elapsed() }
}

/// How a job ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Ended {
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }
}
