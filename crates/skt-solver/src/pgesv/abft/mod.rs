//! The elimination with checksums (algorithm-based fault tolerance): it solves a system through the
//! loss of ranks, without copies of the matrix.
//!
//! In addition to the Q process columns that hold the matrix there are m more, which hold sums of
//! the columns of their process row (`groups`, `weights`). All that the elimination does to columns
//! it does to the sums as well. So at each cut any m ranks of a process row can be computed from
//! the others.
//!
//! ```text
//! for each panel k:
//!     P, L1, L2        factored and broadcast
//!     rows that change are copied to the log                    LOGGED(k)
//!  E  A1 = P A1,  U = L1^-1 A1      on all columns              EXCHANGED(k)
//!  G  A2 = A2 - L2 U                in parts, each              BEGUN, DONE
//!     during the product panel k + 1 is factored and broadcast, and, if a group ended before
//!     k, its new checksums pass from rank to rank               SUMMED(k)
//!     when they have passed this rank, it enters the barrier T, without waiting there
//!  T  wait until all ranks have entered the barrier, which also reports whether any rank
//!     wants an image or has noticed wrong numbers
//!     U1 into the panel's columns                               REST(k + 1)
//!     the new checksums replace the old ones                    renewal
//!     the checksums of a group that ends here are checked       check_group
//!     the checksums are compared with the matrix, where due     check
//!     the checksums of that group begin to be recomputed        renewal
//!     an image, if any rank wants one
//! x, on all ranks                                               SOLVED
//! ```
//!
//! The words on the right are written to memory that outlives the process (`memory`), each when it
//! has become true. From the words of all ranks `standing` decides to which cut all ranks go, and
//! how; `restore` takes them there. The remaining ranks are compared with the checksums that are
//! not needed to replace what is lost (`check`). Only then is a lost rank's matrix rebuilt, and
//! `left_over` keeps the residual from growing with it. In undisturbed runs, x has the bits of a
//! run without checksums on P x Q.
//!
//! A rank writes SOLVED when all of x is in its memory, and may overwrite A from then on. A lost
//! rank takes x from any such rank; if no remaining rank has written SOLVED, none has overwritten
//! A.

mod beginning;
mod check;
mod groups;
mod left_over;
mod memory;
mod noticed;
mod relay;
mod renewal;
mod replacement;
mod restore;
mod rounding;
mod run;
mod standing;
mod system;
mod weights;

pub use beginning::{Beginning, Flip, Unverified};
pub use check::{CheckEvery, Checked, CorrectedRank};
pub use memory::{At, GoOn, MemoryHook, RankMemory, RelayMessages, work_doubles};
pub use replacement::{grid_without, work_doubles_after_replacement};
pub use standing::AbftRefusal;
pub use system::{Absent, Solution, System, doubles, image_doubles};
pub use weights::{MAX_CHECKSUMS, Weights};

use super::SolveError;
use skt_comm::CommError;

/// Most panels of the look-ahead. With more, panels would be applied to columns in the look-ahead
/// before they are applied to the checksums of their group.
pub(crate) const MAX_DEPTH: usize = 1;

#[derive(Debug, thiserror::Error)]
pub enum AbftError {
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error("{0}")]
    Refused(AbftRefusal),
}

impl From<CommError> for AbftError {
    fn from(error: CommError) -> Self {
        Self::Solve(error.into())
    }
}
