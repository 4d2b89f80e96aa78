//! `--blas auto` in one process: its libraries are tried before MPI starts, and timed when all
//! ranks have started, so that those of a node compute at once.
//!
//! Each library has a separate process, as it may crash or hang, and as two libraries in one
//! process may disturb each other. The processes wait while they are not asked: many networks
//! forbid a fork once MPI has started. A restart asks none of them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skt_solver::blas::load::{NAMES, file_names};
use skt_solver::blas::{check, library, load};

use super::decision::{ROUNDS, RatedBlas, TriedBlas, flaw};
use super::process::TrialProcess;
use super::trial::{Line, RATE_SECONDS, Refusal};
use super::{BUILT_IN, LibraryId, MAX_TIMES_PLAIN, Products};
use crate::environment::selftest;

/// The value of `--blas` by which the program chooses.
pub const AUTO: &str = "auto";

/// What `--blas auto` has chosen, and from what; the same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlasChoice {
    /// The library, as `--blas` names it.
    pub library: String,
    pub why: String,
    pub tried: Vec<RatedBlas>,
}

impl BlasChoice {
    /// The choice and its reason, with the rates.
    pub fn words(&self) -> String {
        let rate = |it: &RatedBlas| Some(format!("{} {:.1}", it.name, it.gflops_per_core?));
        let rates: Vec<String> = self.tried.iter().filter_map(rate).collect();
        let Self { library, why, .. } = self;
        if rates.is_empty() {
            return format!("{library}: {why}");
        }
        format!("{library}: {why} (Gflop/s a core: {})", rates.join(", "))
    }

    /// The choice, and the libraries that were refused, each in a line.
    pub fn lines(&self) -> Vec<String> {
        let refused = |it: &RatedBlas| Some(format!("not {}: {}", it.name, it.refused.as_ref()?));
        [self.words()].into_iter().chain(self.tried.iter().filter_map(refused)).collect()
    }
}

/// What a process knows of the libraries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KnownBlas {
    pub tried: Vec<TriedBlas>,
    /// The library that it calls already, and why.
    pub settled: Option<(LibraryId, BlasChoice)>,
}

#[derive(Debug)]
pub struct AutoTrials(Mutex<State>);

#[derive(Debug)]
struct State {
    known: KnownBlas,
    /// The names by which the loader knows the libraries, and their processes, in the order of
    /// `known`; none for one that is refused.
    processes: Vec<Option<(String, TrialProcess)>>,
    patience: Duration,
}

impl AutoTrials {
    /// Tries these libraries. Called before MPI and threads.
    pub(super) fn begin(names: Vec<String>, products: &Products) -> Self {
        let patience = rate_patience(products);
        let mut state = State { known: KnownBlas::default(), processes: Vec::new(), patience };
        state.try_all(names, products);
        Self(Mutex::new(state))
    }

    /// Tries none, as this file is preloaded, and called, in place of all.
    pub(super) fn preloaded(file: String) -> Self {
        let why = "it is preloaded in place of dgemm_".to_owned();
        let choice = BlasChoice { library: file.clone(), why, tried: Vec::new() };
        let id = LibraryId { name: file, ..LibraryId::default() };
        let known = KnownBlas { settled: Some((id, choice)), ..KnownBlas::default() };
        Self(Mutex::new(State { known, processes: Vec::new(), patience: Duration::ZERO }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while it is held")
    }

    /// What this process knows of the libraries.
    pub fn known(&self) -> KnownBlas {
        self.state().known.clone()
    }

    /// The rate of GEMM in Gflop/s of a library that has passed its trial here, on one thread, for
    /// each second of its processor time.
    pub fn measure(&self, library: &LibraryId) -> Result<f64, String> {
        let mut state = self.state();
        let (at, patience) = (state.position(library)?, state.patience);
        let process = state.processes.get_mut(at).and_then(Option::as_mut);
        let (_, process) = process.ok_or("it is refused here, or its trial has ended")?;
        process.ask_for_rate().map_err(|why| format!("its trial has ended: {why}"))?;
        match process.answer(patience, "its rate is measured")? {
            Line::Rate(gflops) => Ok(gflops),
            Line::Refused(Refusal { why, .. }) => Err(why),
            _ => Err("its trial gives another answer than a rate".to_owned()),
        }
    }

    /// Makes `library` the BLAS of this process, unless one is already, and ends the processes.
    /// `choice` is for reports.
    pub fn settle(&self, library: &LibraryId, choice: &BlasChoice) -> Result<(), String> {
        let mut state = self.state();
        if state.known.settled.is_some() {
            return Ok(());
        }
        let mut processes = std::mem::take(&mut state.processes);
        if let Some(why) = flaw(library, &state.known.tried) {
            return Err(why);
        }
        let (at, patience) = (state.position(library)?, state.patience);
        let process = processes.get_mut(at).and_then(Option::as_mut);
        let (name, process) = process.ok_or("its trial has ended")?;
        process.end(patience)?;
        match name.as_str() {
            BUILT_IN => load::use_built_in(),
            name => load::load(name).map_err(|why| why.to_string())?,
        }
        state.known.settled = Some((library.clone(), choice.clone()));
        Ok(())
    }
}

/// The libraries of this host, with their rates on one core, the one that this process calls first.
/// None if it is preloaded in place of all.
pub(crate) fn rated_here(products: &Products) -> Vec<RatedBlas> {
    if load::preloaded().is_some() {
        return Vec::new();
    }
    let mut names = candidates();
    names.sort_by_key(|name| name != library::name());
    rated(AutoTrials::begin(names, products))
}

pub(super) fn rates_of(names: [&str; 2], products: &Products) -> [Option<f64>; 2] {
    let rated = rated(AutoTrials::begin(names.map(str::to_owned).into(), products));
    names.map(|name| rated.iter().find(|it| it.name == name)?.gflops_per_core)
}

fn rated(trials: AutoTrials) -> Vec<RatedBlas> {
    let libraries = trials.known().tried;
    let mut rated: Vec<RatedBlas> = libraries.iter().map(RatedBlas::unmeasured).collect();
    for _ in 0..ROUNDS {
        let all = rated.iter_mut().zip(&libraries);
        for (rated, library) in all.filter(|(rated, _)| rated.refused.is_none()) {
            match trials.measure(&library.id) {
                Ok(gflops) => {
                    let best = rated.gflops_per_core.map_or(gflops, |best| best.max(gflops));
                    rated.gflops_per_core = Some(best);
                }
                Err(why) => (rated.gflops_per_core, rated.refused) = (None, Some(why)),
            }
        }
    }
    rated
}

impl State {
    fn position(&self, library: &LibraryId) -> Result<usize, String> {
        let is_it = |tried: &TriedBlas| tried.id.is_same(library);
        self.known.tried.iter().position(is_it).ok_or_else(|| "it is not found here".to_owned())
    }

    fn try_all(&mut self, names: Vec<String>, products: &Products) {
        // The files that are tried already.
        let mut files: Vec<String> = Vec::new();
        for name in names {
            let tried = TrialProcess::run(&name, false, products, &files);
            let (files_of, refused, process) = match tried {
                Ok((answer, process)) => {
                    answer.set_kernel();
                    files.extend(answer.path);
                    (answer.files, None, Some((answer.name, process)))
                }
                Err(Refusal { is_no_other: true, .. }) => continue,
                Err(Refusal { why, .. }) => (Default::default(), Some(why), None),
            };
            let id = LibraryId { name, files: files_of };
            self.known.tried.push(TriedBlas { id, refused });
            self.processes.push(process);
        }
    }
}

/// How long a measurement may take, by what this machine does now.
fn rate_patience(Products { order, depths, .. }: &Products) -> Duration {
    let plain = selftest::operations_at(*order, depths) * check::plain_seconds_an_operation();
    Duration::from_secs_f64(MAX_TIMES_PLAIN * (plain + RATE_SECONDS))
}

impl LibraryId {
    /// Whether it is the same library, whatever its name and where it is. The built-in one has no
    /// files.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.files == other.files && (!self.files.is_empty() || self.name == other.name)
    }
}

/// Variables that name the folder where a vendor's libraries are installed.
const ROOTS: [&str; 5] = ["MKLROOT", "AOCL_ROOT", "ARMPL_DIR", "NVPL_ROOT", "OPENBLAS_ROOT"];
const FOLDERS: [&str; 3] = ["lib", "lib64", "lib/intel64"];

/// The values of `--blas` to try here, in the order in which one is taken by default. The loader
/// may not find all of those that are names, and several may be one library.
pub(super) fn candidates() -> Vec<String> {
    let in_roots = in_roots(|name| env::var_os(name), Path::exists);
    let names = NAMES.into_iter().chain([BUILT_IN]).map(str::to_owned);
    names.chain(in_roots).collect()
}

/// The files in the folders that variables name.
fn in_roots(
    variable: impl Fn(&str) -> Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let roots = ROOTS.iter().filter_map(|name| variable(name)).map(PathBuf::from);
    let folders = roots.flat_map(|root| FOLDERS.map(|folder| root.join(folder)));
    let exists = &exists;
    let first = |folder: &Path, name: &str| {
        file_names(name).map(|file| folder.join(file)).find(|file| exists(file))
    };
    let files = |folder: PathBuf| NAMES.into_iter().filter_map(move |name| first(&folder, name));
    // A path that is no text can be named with --blas.
    folders.flat_map(files).filter_map(|file| file.into_os_string().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_of_each_name_is_found_in_each_folder() {
        let there = ["lib/libblis-mt.so.4", "lib/libblis-mt.so", "lib64/libmkl_rt.so.2", "lib/x"];
        let there = there.map(|file| Path::new("/opt/aocl").join(file));
        let exists = |file: &Path| there.iter().any(|it| it == file);
        let variable = |name: &str| (name == "AOCL_ROOT").then(|| "/opt/aocl".into());
        let want = ["/opt/aocl/lib/libblis-mt.so", "/opt/aocl/lib64/libmkl_rt.so.2"];
        assert_eq!(in_roots(variable, exists), want);
        assert_eq!(in_roots(|_| None, exists), [""; 0]);
    }
}
