//! Calling another BLAS than the linked one (`--blas`).
//!
//! A library can crash, hang or compute wrong numbers on a processor that is newer than it is. So
//! each process first tries it in a child process, before MPI starts, as many networks forbid a
//! fork afterwards; then it loads what has passed.

pub mod trial;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skt_host::child;
use skt_solver::blas::{check, load};

use super::kernel::VARIABLE;
use trial::{Answer, Line};

/// The value of `--blas` that is the linked library.
pub const LINKED: &str = "linked";

/// The BLAS that `--blas` names for a process, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenBlas {
    /// The value of `--blas`, if there is one.
    pub named: Option<String>,
    /// Checksums of the files that were mapped with the library, by their names; none if it is the
    /// linked one.
    pub files: BTreeMap<String, String>,
    /// Why the process calls the linked library nevertheless.
    pub failure: Option<String>,
}

/// Times that plain loops would need for the checks of a library, after which it hangs. A library
/// is no slower than plain loops.
const MAX_TIMES_PLAIN: f64 = 10.0;
/// Times that reading a library's file took, after which loading it hangs: it may load others.
const MAX_TIMES_READ: f64 = 100.0;

/// Makes the library that `--blas` names the BLAS of this process, after a trial with products
/// whose depths (NB) are `depths`. Called before MPI and threads.
pub fn choose(named: Option<String>, depths: &[usize]) -> ChosenBlas {
    let other = named.as_deref().filter(|named| *named != LINKED);
    let loaded = other.map_or(Ok(BTreeMap::new()), |wanted| load_after_trial(wanted, depths));
    let failure = loaded.as_ref().err().cloned();
    ChosenBlas { files: loaded.unwrap_or_default(), named, failure }
}

/// Loads the library `wanted`, and returns its files.
fn load_after_trial(wanted: &str, depths: &[usize]) -> Result<BTreeMap<String, String>, String> {
    if let Some(file) = load::preloaded() {
        return Err(format!(
            "{} is preloaded in place of dgemm_, and would not be called: take it out of \
             LD_PRELOAD",
            file.display()
        ));
    }
    let Answer { name, files, kernel_variable } = try_in_child(wanted, depths)?;
    if let Some(kernel) = kernel_variable {
        // SAFETY: this process has one thread.
        unsafe { env::set_var(VARIABLE, kernel) };
    }
    load::load(OsStr::new(&name)).map_err(|why| why.to_string())?;
    Ok(files)
}

/// Runs the trial of a library.
fn try_in_child(wanted: &str, depths: &[usize]) -> Result<Answer, String> {
    let patience = patience(wanted, depths);
    let mut command = Command::new(env::current_exe().map_err(|why| why.to_string())?);
    let depths: Vec<String> = depths.iter().map(usize::to_string).collect();
    command.args(["blas-trial", "--depths", &depths.join(","), "--"]).arg(wanted);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut run = || {
        let mut child = command.spawn()?;
        // What it prints fits into the pipe.
        let status = child::wait_while_served(&mut child, patience)?;
        Ok::<_, std::io::Error>((status, child.wait_with_output()?.stdout))
    };
    let (status, printed) = run().map_err(|why| format!("its trial cannot be started: {why}"))?;
    result(status, &String::from_utf8_lossy(&printed), patience)
}

/// The result of a trial that ended with `status`, or was killed after `patience`.
fn result(status: Option<ExitStatus>, printed: &str, patience: Duration) -> Result<Answer, String> {
    let mut during = "it starts".to_owned();
    for line in printed.lines().filter_map(Line::read) {
        match line {
            Line::Step(step) => during = step,
            Line::Refused(why) => return Err(why),
            Line::Passed(answer) => return Ok(answer),
        }
    }
    Err(match status {
        None => format!("it hangs: {:.0} s were not enough while {during}", patience.as_secs_f64()),
        Some(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("it crashes (signal {signal}) while {during}"),
            (None, code) => format!(
                "it ends the process (exit code {}) while {during}",
                code.map_or("none".to_owned(), |code| code.to_string())
            ),
        },
    })
}

/// How long a trial may take, by what this machine does now.
fn patience(wanted: &str, depths: &[usize]) -> Duration {
    let start = Instant::now();
    // Also brings the file into the host's memory.
    let _bytes = found(wanted).map(fs::read);
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
        .flat_map(|folder| names(wanted).into_iter().map(move |name| folder.join(name)));
    files.into_iter().find(|file| Path::new(file).exists()).map(Into::into)
}

/// The names under which the loader may have a library: its file, or `NAME` as `libNAME.so`, with a
/// version after it.
fn names(wanted: &str) -> Vec<String> {
    if wanted.contains('/') || wanted.contains(".so") {
        return vec![wanted.to_owned()];
    }
    let versions = (0..10).rev().map(|version| format!("lib{wanted}.so.{version}"));
    [format!("lib{wanted}.so")].into_iter().chain(versions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(status: Option<i32>, printed: &str) -> String {
        result(status.map(ExitStatus::from_raw), printed, Duration::from_secs(7)).unwrap_err()
    }

    #[test]
    fn a_trial_that_does_not_end_well_names_its_step() {
        let step = Line::Step("it is loaded".to_owned()).to_string();
        let printed = format!("a banner of the library\n{step}\n");
        assert_eq!(failed(None, &printed), "it hangs: 7 s were not enough while it is loaded");
        assert_eq!(failed(Some(11), &printed), "it crashes (signal 11) while it is loaded");
        assert_eq!(failed(Some(3 << 8), ""), "it ends the process (exit code 3) while it starts");
        let refused = Line::Refused("no".to_owned()).to_string();
        assert_eq!(failed(Some(1 << 8), &format!("{printed}{refused}\n")), "no");
    }

    #[test]
    fn a_name_is_looked_up_with_and_without_version() {
        assert_eq!(names("/opt/libx.so.3"), ["/opt/libx.so.3"]);
        assert_eq!(names("libx.so.3"), ["libx.so.3"]);
        let names = names("mkl_rt");
        assert_eq!((&*names[0], names.len()), ("libmkl_rt.so", 11));
        assert!(names.contains(&"libmkl_rt.so.2".to_owned()));
    }
}
