//! Tries other kernels of the BLAS: the library chooses its kernel when it is loaded, so each trial
//! is a separate process, with the variable that names the kernel.

use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kernel;
use crate::environment::kernel::variable;
use crate::environment::{BlasInfo, selftest};
use skt_host::child;
use skt_host::counters::processor::Processor;
use skt_solver::blas::library::{self, NoWorkSpace};

/// The hidden flag that makes `doctor` measure one core and print an [`Answer`].
pub(crate) const FLAG: &str = "--one-trial";
/// Seconds of processor time of DGEMM in a trial: what else the cores do, and a quota, must not
/// make one kernel look slower than another.
const SECONDS: f64 = 0.1;
/// The longest time of a trial, with the start of the process.
const PATIENCE: Duration = Duration::from_secs(20);
/// Trials of each kernel, in turn: the best counts, as other programs only ever slow one down.
const TURNS: usize = 2;

/// The kernel in use, and what others do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The library.
    pub library: String,
    /// The library's version, if it reports one.
    pub version: Option<String>,
    /// The kernel in use.
    pub kernel: Option<String>,
    /// The rate of the kernel in use in trials, in Gflop/s; `None` if there was none.
    pub gflops: Option<f64>,
    /// Other kernels that were tried and that the library has.
    pub others: Vec<OtherKernel>,
}

/// A kernel that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherKernel {
    /// The variable that names it.
    pub variable: String,
    /// The value of the variable; `None` if the environment has one and the trial had none.
    pub value: Option<String>,
    /// The kernel, as the library calls it.
    pub kernel: String,
    /// The rate in Gflop/s.
    pub gflops: f64,
}

/// What the process of a trial prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    kernel: Option<String>,
    gflops: f64,
}

/// Measures one core in this process.
pub fn answer() -> Result<Answer, NoWorkSpace> {
    library::use_one_thread();
    let gflops = selftest::dgemm_gflops_of_cpu_time(SECONDS)?;
    Ok(Answer { kernel: library::loaded().kernel, gflops })
}

/// The BLAS `blas`, with trials of kernels that fit the processor better if the one in use is
/// doubtful. `best_gflops` is its rate on a core, `units_gflops` what the vector units do.
pub(crate) fn try_kernels(
    blas: &BlasInfo,
    processor: &Processor,
    best_gflops: f64,
    units_gflops: Option<f64>,
) -> Trial {
    let mut trial = Trial {
        library: blas.library.clone(),
        version: blas.version.clone(),
        kernel: blas.kernel.clone(),
        gflops: None,
        others: Vec::new(),
    };
    let mut changes: Vec<Change> = Vec::new();
    // First, because it is the simplest remedy.
    changes.extend(
        variable(&blas.library).filter(|name| env::var_os(name).is_some()).map(|name| (name, None)),
    );
    let fitting = kernel::fitting(&blas.library, processor);
    changes.extend(fitting.into_iter().map(|(name, value)| (name, Some(value))));
    if kernel::is_doubtful(blas.kernel.as_deref(), processor, best_gflops, units_gflops) {
        try_others(&mut trial, &changes, &|change| run(change, PATIENCE));
    }
    trial
}

/// A variable, and its value in a trial: `None` removes it.
type Change<'a> = (&'a str, Option<&'a str>);

/// Runs a trial with this change of the environment, if one is given.
type RunTrial<'a> = &'a dyn Fn(Option<Change>) -> Option<Answer>;

/// Runs the kernel in use and those of the `changes` in turn with `run`.
fn try_others(trial: &mut Trial, changes: &[Change], run: RunTrial) {
    for _ in 0..TURNS {
        if let Some(now) = run(None) {
            trial.gflops = Some(trial.gflops.unwrap_or(0.0).max(now.gflops));
        }
        for &(variable, value) in changes {
            let tried = run(Some((variable, value))).and_then(|it| Some((it.kernel?, it.gflops)));
            let is_another = |kernel: &str| match value {
                // A library without this kernel takes another one, which the answer names.
                Some(value) => kernel.eq_ignore_ascii_case(value),
                // The variable may name what would be taken without it.
                None => trial.kernel.as_deref() != Some(kernel),
            };
            let Some((kernel, gflops)) = tried.filter(|it| is_another(&it.0)) else { continue };
            match trial.others.iter_mut().find(|other| other.value.as_deref() == value) {
                Some(other) => other.gflops = other.gflops.max(gflops),
                None => trial.others.push(OtherKernel {
                    variable: variable.to_owned(),
                    value: value.map(str::to_owned),
                    kernel,
                    gflops,
                }),
            }
        }
    }
}

/// Runs a trial in a separate process; `None` if it fails or takes too long.
fn run(change: Option<Change>, patience: Duration) -> Option<Answer> {
    let mut command = Command::new(env::current_exe().ok()?);
    command.args(["doctor", FLAG]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    match change {
        Some((variable, Some(value))) => command.env(variable, value),
        Some((variable, None)) => command.env_remove(variable),
        None => &mut command,
    };
    let mut child = command.spawn().ok()?;
    // The answer is a line, which fits into the pipe.
    child::wait(&mut child, patience).ok()?;
    let output = child.wait_with_output().ok()?;
    output.status.success().then(|| serde_json::from_slice(&output.stdout).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_trial_of_each_kernel_counts_missing_ones_do_not() {
        let calls = std::cell::Cell::new(0.0);
        let run = |change: Option<Change>| {
            calls.set(calls.get() + 1.0);
            let kernel = match change {
                None | Some((_, None)) => "Nehalem",
                Some((_, Some("SkylakeX"))) => "SKYLAKEX",
                Some(_) => "Prescott",
            };
            Some(Answer { kernel: Some(kernel.to_owned()), gflops: calls.get() })
        };
        let mut trial = Trial {
            library: "OpenBLAS".to_owned(),
            version: None,
            kernel: Some("Nehalem".to_owned()),
            gflops: None,
            others: Vec::new(),
        };
        let changes = [("V", None), ("V", Some("SkylakeX")), ("V", Some("Haswell"))];
        try_others(&mut trial, &changes, &run);
        assert_eq!((trial.gflops, trial.others.len()), (Some(5.0), 1));
        assert_eq!((trial.others[0].kernel.as_str(), trial.others[0].gflops), ("SKYLAKEX", 7.0));
    }
}
