//! Tries other kernels of the BLAS: the library chooses its kernel when it is loaded, so each trial
//! is a separate process, with the variable that names the kernel.

use std::env;

use serde::{Deserialize, Serialize};

use super::kernel;
use crate::environment::BlasInfo;
use crate::environment::kernel::variable;
use crate::environment::library::{Change, rate_with};
use skt_host::counters::processor::Processor;

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
        try_others(&mut trial, &changes, &rate_with);
    }
    trial
}

/// Runs a trial with this change of the environment, if one is given. Returns the kernel and its
/// rate.
type RunTrial<'a> = &'a dyn Fn(Option<Change>) -> Option<(String, f64)>;

/// Runs the kernel in use and those of the `changes` in turn with `run`.
fn try_others(trial: &mut Trial, changes: &[Change], run: RunTrial) {
    for _ in 0..TURNS {
        if let Some((_, gflops)) = run(None) {
            trial.gflops = Some(trial.gflops.unwrap_or(0.0).max(gflops));
        }
        for &(variable, value) in changes {
            let tried = run(Some((variable, value)));
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
            Some((kernel.to_owned(), calls.get()))
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
