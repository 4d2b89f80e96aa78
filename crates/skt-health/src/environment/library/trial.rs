//! The trial of a library, in a separate process: it is loaded and its results are checked, as
//! are the threads that it uses. Then the process measures its rate whenever it is asked to.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::io::Write as _;

use serde::{Deserialize, Serialize};
use skt_host::thread_clock::thread_cpu_seconds;
use skt_solver::blas::check;
use skt_solver::blas::library::{self, check_work_space};
use skt_solver::blas::load::{self, LoadError, file_names};
use skt_solver::team::Team;

use super::super::kernel::{self, VARIABLE};
use super::super::selftest;
use super::files::{LibraryFiles, check_name};
use super::{BUILT_IN, Products, remembered};

/// A library that has passed its trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub name: String,
    pub path: Option<String>,
    /// The files; none if it is called by default or the built-in one.
    pub files: LibraryFiles,
    /// The check that it has passed ([`check_name`]); none if a file cannot be read.
    pub check: Option<String>,
    pub kernel: Option<String>,
    /// The kernel that OpenBLAS has to be given by its variable.
    pub kernel_variable: Option<String>,
}

impl Answer {
    /// Names the kernel for when this process, which has one thread, loads the library.
    pub(super) fn set_kernel(&self) {
        if let Some(kernel) = &self.kernel_variable {
            // SAFETY: this process has one thread.
            unsafe { env::set_var(VARIABLE, kernel) };
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub why: String,
    /// Whether there is no library of that name, or it is one that is known.
    pub is_no_other: bool,
}

/// A line that the process of a trial prints; a library may print others.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Line {
    /// What is tried next: "the trial crashes while ...".
    Step(String),
    Refused(Refusal),
    Passed(Answer),
    /// The rate of the library in Gflop/s.
    Rate(f64),
}

/// How each line begins; then comes its JSON.
const MARK: &str = "skt-hpl trial: ";

impl Line {
    pub(super) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(MARK)?).ok()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{}", serde_json::to_string(self).expect("plain data"))
    }
}

/// Prints a line. Nothing of it may be left in a buffer if the library ends the process.
fn print(line: &Line) {
    let mut out = std::io::stdout().lock();
    // The line begins where the library may have left one open.
    let _ = writeln!(out, "\n{line}").and_then(|()| out.flush());
}

/// How long the check for threads takes.
const THREADS_SECONDS: f64 = 0.02;
/// The most processor time of a call on the calling thread alone, as a multiple of that thread's.
const MAX_TIMES_OWN: f64 = 4.0 / 3.0;

/// How long the rate of a library is measured.
pub(super) const RATE_SECONDS: f64 = 0.04;

/// Tries the library `wanted` in this process, or what is preloaded if that is called `by_default`,
/// and prints how it goes; one of the files `known` is refused. Returns whether it passed, after
/// all measurements.
pub fn run(wanted: &str, by_default: bool, products: &Products, known: &[String]) -> bool {
    let line = match try_here(wanted, by_default, &products.depths, known) {
        Ok(answer) => Line::Passed(answer),
        Err(refusal) => Line::Refused(refusal),
    };
    print(&line);
    let has_passed = matches!(line, Line::Passed(_));
    if has_passed {
        measure_when_asked(products);
    }
    has_passed
}

/// Measures the rate of the library for each line that comes, until there are no more.
fn measure_when_asked(Products { order, depths, is_single }: &Products) {
    let measure =
        if *is_single { selftest::gemm_gflops_at::<f32> } else { selftest::gemm_gflops_at::<f64> };
    library::use_one_thread();
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        print(&match measure(*order, depths, RATE_SECONDS) {
            Ok(gflops) => Line::Rate(gflops),
            Err(why) => Line::Refused(Refusal { why: why.to_string(), is_no_other: false }),
        });
    }
}

fn try_here(
    wanted: &str,
    by_default: bool,
    depths: &[usize],
    known: &[String],
) -> Result<Answer, Refusal> {
    let refused = |why: String| Refusal { why, is_no_other: false };
    let before = library::mapped_files();
    print(&Line::Step("it is loaded".to_owned()));
    let is_own = by_default || wanted == BUILT_IN;
    let mut name = wanted.to_owned();
    if wanted == BUILT_IN {
        load::use_built_in();
    } else if by_default && load::is_any_preloaded() {
        load::use_default(|_| true);
    } else {
        name = load_one_of(wanted)?;
    }
    let path = library::loaded().path.map(|path| path.display().to_string());
    if let Some(path) = path.as_ref().filter(|path| known.contains(path)) {
        let why = format!("{path} is known by another name");
        return Err(Refusal { why, is_no_other: true });
    }
    kernel::take_one_that_fits();
    // As on a thread of a team, where some libraries keep another number of threads.
    let checked = std::thread::scope(|scope| {
        let check = || {
            library::use_one_thread();
            check_work_space(1).map_err(|why| why.to_string())?;
            library::load_parts();
            let mapped = library::mapped_files();
            // What a preloaded library maps later is part of it.
            let before = if is_own { BTreeSet::new() } else { before };
            let files = LibraryFiles::called_in(mapped.difference(&before).cloned());
            let name = files.as_ref().ok().map(|files| check_name(files, depths));
            if name.as_deref().and_then(remembered::value).is_none() {
                let step = |function: &str| print(&Line::Step(format!("{function} is checked")));
                check::check(depths, step).map_err(|why| format!("it is wrong: {why}"))?;
            }
            // The threads of the library that is called by default only cost time.
            if !is_own {
                check_threads()?;
            }
            Ok((files, name))
        };
        scope.spawn(check).join().expect("a check does not panic")
    });
    let (files, check) = checked.map_err(refused)?;
    let (kernel, kernel_variable) = (library::loaded().kernel, env::var(VARIABLE).ok());
    let files = if is_own { LibraryFiles::default() } else { files.map_err(refused)? };
    Ok(Answer { name, path, files, check, kernel, kernel_variable })
}

/// Loads the first file of the library `wanted` that the loader finds, and returns its name.
fn load_one_of(wanted: &str) -> Result<String, Refusal> {
    let mut first: Option<Refusal> = None;
    for name in file_names(wanted) {
        match load::load(&name) {
            Ok(()) => return Ok(name),
            Err(why @ LoadError::Loader(_)) => {
                // Other messages are about what it needs, or about its contents.
                let absent = format!("{name}: cannot open shared object file: No such file");
                let is_no_other =
                    matches!(&why, LoadError::Loader(text) if text.starts_with(&absent));
                // The first message is that for the name that most libraries have; one about a
                // file that is there is more precise.
                if first.as_ref().is_none_or(|it| it.is_no_other && !is_no_other) {
                    first = Some(Refusal { why: why.to_string(), is_no_other });
                }
            }
            Err(why) => return Err(Refusal { why: why.to_string(), is_no_other: false }),
        }
    }
    Err(first.expect("there is a name"))
}

/// Checks that a call computes on the calling thread alone.
fn check_threads() -> Result<(), String> {
    print(&Line::Step("its threads are counted".to_owned()));
    let mut times = 0.0;
    // On a busy machine the threads that OpenBLAS starts when it is loaded may still spin.
    for _ in 0..3 {
        let (process, thread) = (selftest::cpu_seconds(), thread_cpu_seconds());
        selftest::dgemm_gflops(&Team::solo(), THREADS_SECONDS).map_err(|why| why.to_string())?;
        times = (selftest::cpu_seconds() - process) / (thread_cpu_seconds() - thread);
        if times <= MAX_TIMES_OWN {
            return Ok(());
        }
    }
    Err(format!(
        "a call takes {times:.1} times the processor time of the thread that calls it, so it starts \
         threads: set its variable to 1, e.g. OMP_NUM_THREADS=1"
    ))
}
