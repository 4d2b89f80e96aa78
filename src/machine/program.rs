//! The file that starts this program elsewhere.

use std::path::PathBuf;
use std::{env, io};

/// The variable with which a package's starter (crates/skt-starter) names itself.
const STARTER: &str = "SKT_HPL_STARTER";

/// The file that ranks and other hosts start. In a package that has a program for each MPI, this is
/// the one that chooses among them: only there is it known which one fits.
///
/// # Errors
/// When the system does not name this program's file.
pub fn file() -> io::Result<PathBuf> {
    env::var_os(STARTER).map_or_else(env::current_exe, |file| Ok(file.into()))
}
