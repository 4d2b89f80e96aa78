//! The BLAS that a process calls: the one that `--blas` names, or that the loader finds first, and
//! its check.
//!
//! A library can crash, hang or compute wrong numbers on a processor that is newer than it is. So
//! each process first tries it in a child process, before MPI starts, as many networks forbid a
//! fork afterwards; then it calls what has passed. Its numbers are checked once for each file and
//! host (`files`).

mod auto;
mod decision;
mod files;
mod process;
mod remembered;
pub mod trial;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skt_solver::blas::library::BUILT_IN;
use skt_solver::blas::load::file_names;
use skt_solver::blas::{check, library, load};

use super::kernel;
pub(crate) use auto::rated_here;
pub use auto::{AUTO, AutoTrials, BlasChoice, KnownBlas};
pub use decision::{ROUNDS, RatedBlas, TriedBlas, fastest, on_all};
pub use files::{CalledBlas, LibraryFiles};
use process::TrialProcess;
use trial::Answer;

/// The variable that names a library as `--blas` does.
pub const VARIABLE: &str = "SKT_HPL_BLAS";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryId {
    /// The value of `--blas` that names it.
    pub name: String,
    /// The files; none if it is the built-in one.
    pub files: LibraryFiles,
}

/// The products of a run, in which libraries are checked and timed.
#[derive(Debug, Clone)]
pub struct Products {
    /// Rows and columns of the products that are timed.
    pub order: usize,
    pub depths: Vec<usize>,
    /// Whether the rate is that of SGEMM, as in HPL-MxP, instead of DGEMM.
    pub is_single: bool,
}

impl Products {
    /// Rows and columns of the largest product that is timed. Libraries that copy their operands
    /// often, or seldom, rank as in a whole run from about 1500 on, and in smaller products do not.
    /// No power of two, with which rows share the sets of a cache.
    const MAX_ORDER: usize = 1700;
    /// Rows and columns of the smallest one.
    const MIN_ORDER: usize = 96;

    /// The products of a run whose matrix has `n` columns, on `ranks` ranks: as the mean of their
    /// sizes, weighted by operations, but no larger than it takes to rank libraries.
    pub fn in_run(n: usize, ranks: usize, depths: Vec<usize>, is_single: bool) -> Self {
        let order = 0.75 * n as f64 / (ranks.max(1) as f64).sqrt();
        let order = (order as usize).clamp(Self::MIN_ORDER, Self::MAX_ORDER);
        Self { order, depths, is_single }
    }
}

impl Default for Products {
    /// The products of a large run with the default NB.
    fn default() -> Self {
        Self { order: Self::MAX_ORDER, depths: Vec::new(), is_single: false }
    }
}

/// The BLAS that `--blas` names for a process, and what came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChosenBlas {
    /// The value of `--blas`, if there is one.
    pub named: Option<String>,
    /// The library that is called if there is none, as `--blas` names it.
    #[serde(default)]
    pub default: Option<String>,
    /// The library's files, if it is named; none if it is the built-in one.
    pub files: LibraryFiles,
    /// Why the process must not compute with it.
    pub failure: Option<String>,
    /// What `--blas auto` has chosen, once all ranks have.
    #[serde(default)]
    pub choice: Option<BlasChoice>,
    /// The libraries that `--blas auto` has tried in this process.
    #[serde(skip)]
    pub trials: Option<Arc<AutoTrials>>,
}

impl ChosenBlas {
    /// Once this process calls what `auto` has chosen: that library as one which the user names.
    /// Any other one as it is.
    pub fn named_as_settled(&self) -> Self {
        let settled = self.trials.as_ref().and_then(|trials| trials.known().settled);
        let Some((LibraryId { name, files }, choice)) = settled else { return self.clone() };
        // What is preloaded needs no name.
        let named = self.default.is_none().then_some(name);
        let default = self.default.clone();
        Self { named, default, files, choice: Some(choice), ..Self::default() }
    }

    /// The value of `--blas` that names the library which is called.
    pub fn library(&self) -> Option<&str> {
        let chosen = self.choice.as_ref().map(|choice| &choice.library);
        chosen.or(self.named.as_ref()).or(self.default.as_ref()).map(String::as_str)
    }
}

/// Times that plain loops would need for the checks of a library, after which it hangs. A library
/// is no slower than plain loops.
const MAX_TIMES_PLAIN: f64 = 10.0;
/// Times that reading a library's file took, after which loading it hangs: it may load others.
const MAX_TIMES_READ: f64 = 100.0;

/// Makes the library that `--blas` names the BLAS of this process, after a trial; with `auto`,
/// tries all that there are. Without a name, takes the default one. Called before MPI and threads.
pub fn choose(named: Option<String>, products: &Products) -> ChosenBlas {
    let mut chosen = ChosenBlas { named, ..ChosenBlas::default() };
    let loaded = match chosen.named.as_deref() {
        Some(AUTO) if load::preloaded().is_none() => {
            chosen.trials = Some(Arc::new(AutoTrials::begin(auto::candidates(), products)));
            Ok(LibraryFiles::default())
        }
        None | Some(AUTO) => {
            take_default();
            if let Some(file) = load::preloaded().filter(|_| chosen.named.is_some()) {
                let file = file.display().to_string();
                chosen.trials = Some(Arc::new(AutoTrials::preloaded(file)));
            }
            chosen.default = Some(library::name().to_owned());
            check_called(true, products).map(|()| LibraryFiles::default())
        }
        Some(BUILT_IN) => use_built_in(products).map(|()| LibraryFiles::default()),
        Some(wanted) => load_after_trial(wanted, products),
    };
    match loaded {
        Ok(files) => chosen.files = files,
        Err(why) => chosen.failure = Some(why),
    }
    chosen
}

/// Makes the library that is called by default the BLAS of this process, with a kernel that fits.
/// Called before MPI, threads and files, as it may execute this program again.
pub fn take_default() {
    without_threads(|| load::use_default(is_as_fast_as_built_in));
    kernel::take_one_that_fits();
}

/// Loads a library while OpenBLAS is asked to start no threads, as it else starts one for each core
/// that this process never uses. Called by a process that has one thread.
fn without_threads<T>(load: impl FnOnce() -> T) -> T {
    const NAME: &str = "OPENBLAS_NUM_THREADS";
    let before = env::var_os(NAME);
    // SAFETY: this process has one thread.
    unsafe { env::set_var(NAME, "1") };
    let loaded = load();
    // SAFETY: as above, as OpenBLAS starts none.
    match before {
        Some(before) => unsafe { env::set_var(NAME, before) },
        None => unsafe { env::remove_var(NAME) },
    }
    loaded
}

/// Whether a library multiplies at least as fast as the built-in one, which one process of a host
/// finds out for its contents.
fn is_as_fast_as_built_in(file: &Path) -> bool {
    let Some(name) = file.to_str() else { return false };
    let products = Products::in_run(1000, 1, Vec::new(), false);
    let measure = || {
        let [its, built_in] = auto::rates_of([name, BUILT_IN], &products);
        let is_fast = its.is_some() && its >= built_in;
        Ok::<_, String>(if is_fast { "fast" } else { "slow" }.to_owned())
    };
    let found = files::contents(file).and_then(|(_, sum)| {
        let key = format!("rate of the BLAS {sum}, processor {}", files::processor());
        remembered::once(&key, || patience(name, &[]), measure)
    });
    found.is_ok_and(|rate| rate == "fast")
}

/// Checks the library that this process calls already, by default or as the built-in one.
fn check_called(by_default: bool, products: &Products) -> Result<(), String> {
    let (blas, name) = (library::loaded(), library::name());
    let at = blas.path.as_ref().map_or(blas.library.clone(), |path| path.display().to_string());
    let tried = || try_in_child(name, by_default, products).map(|_| "passed".to_owned());
    let checked = match LibraryFiles::called_in(library::mapped_files()) {
        Ok(files) => {
            let patience = || patience(name, &products.depths);
            remembered::once(&files::check_name(&files, &products.depths), patience, tried)
        }
        // What cannot be read cannot be recognized.
        Err(_) => tried(),
    };
    checked.map(|_| ()).map_err(|why| {
        // Nothing may call it until the job is refused.
        load::use_built_in();
        format!("{at}: {why}")
    })
}

/// Refuses another library where a profiler would not notice it.
fn refuse_preloaded() -> Result<(), String> {
    load::preloaded().map_or(Ok(()), |file| {
        Err(format!(
            "{} is preloaded in place of dgemm_, and would not be called: take it out of \
             LD_PRELOAD",
            file.display()
        ))
    })
}

/// Takes the built-in BLAS, once its results are right.
fn use_built_in(products: &Products) -> Result<(), String> {
    refuse_preloaded()?;
    load::use_built_in();
    check_called(false, products)
}

/// Loads the library `wanted`, and returns its files.
fn load_after_trial(wanted: &str, products: &Products) -> Result<LibraryFiles, String> {
    refuse_preloaded()?;
    let answer = try_in_child(wanted, false, products)?;
    answer.set_kernel();
    without_threads(|| load::load(&answer.name)).map_err(|why| why.to_string())?;
    Ok(answer.files)
}

fn try_in_child(wanted: &str, by_default: bool, products: &Products) -> Result<Answer, String> {
    let passed = TrialProcess::run(wanted, by_default, products, &[]);
    let (answer, mut process) = passed.map_err(|refusal| refusal.why)?;
    process.end(patience(wanted, &products.depths)).map(|()| answer)
}

/// How long a trial may take, by what this machine does now.
fn patience(wanted: &str, depths: &[usize]) -> Duration {
    let start = Instant::now();
    // Also brings the file into the host's memory.
    let _bytes = found(wanted).filter(|file| Path::new(file).is_file()).map(fs::read);
    let read_seconds = start.elapsed().as_secs_f64();
    let plain_seconds = check::operations(depths) * check::plain_seconds_an_operation();
    Duration::from_secs_f64(MAX_TIMES_PLAIN * plain_seconds + MAX_TIMES_READ * read_seconds)
}

/// The file of a library that is not where the system's libraries are.
fn found(wanted: &str) -> Option<OsString> {
    if wanted.contains('/') {
        return Some(wanted.into());
    }
    let folders = env::var_os("LD_LIBRARY_PATH")?;
    let files = env::split_paths(&folders)
        .flat_map(|folder| file_names(wanted).map(move |name| folder.join(name)));
    files.into_iter().find(|file| Path::new(file).exists()).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_run_up_to_a_size() {
        let order = |n, ranks| Products::in_run(n, ranks, vec![8], false).order;
        assert_eq!([order(1000, 1), order(1000, 4), order(2000, 4)], [750, 375, 750]);
        assert_eq!([order(0, 1), order(10, 0), order(1_000_000, 4)], [96, 96, 1700]);
    }
}
