//! The codes that all calls return, with a text for each.

use std::ffi::CStr;
use std::time::Duration;

use skt_comm::CommError;
use skt_host::named;

/// What a call returns. The numbers are those of `skt.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "their names in `skt.h` are below")]
pub enum Code {
    Success = 0,
    Ended = 1,
    Argument = -1,
    Order = -2,
    Options = -3,
    Mpi = -4,
    Thread = -5,
    Space = -6,
    Region = -7,
    Refused = -8,
    System = -9,
    Timeout = -10,
    Lost = -11,
    Internal = -12,
    Level = -13,
    Device = -14,
}

named!(Code {
    Success: "SKT_SUCCESS",
    Ended: "SKT_ENDED",
    Argument: "SKT_ERR_ARGUMENT",
    Order: "SKT_ERR_ORDER",
    Options: "SKT_ERR_OPTIONS",
    Mpi: "SKT_ERR_MPI",
    Thread: "SKT_ERR_THREAD",
    Space: "SKT_ERR_SPACE",
    Region: "SKT_ERR_REGION",
    Refused: "SKT_ERR_REFUSED",
    System: "SKT_ERR_SYSTEM",
    Timeout: "SKT_ERR_TIMEOUT",
    Lost: "SKT_ERR_LOST",
    Internal: "SKT_ERR_INTERNAL",
    Level: "SKT_ERR_LEVEL",
    Device: "SKT_ERR_DEVICE",
});

impl Code {
    /// The code with this number.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|&code| code as i32 == number)
    }

    /// What the code means in general; `skt_message` describes what has happened.
    pub fn text(self) -> &'static CStr {
        match self {
            Self::Success => c"success",
            Self::Ended => c"an earlier start has ended this run; nothing of it is left to compute",
            Self::Argument => c"an argument is not legal",
            Self::Order => c"this call is out of order, or the ranks have made different calls",
            Self::Options => c"an option is not legal",
            Self::Mpi => c"MPI is not initialized, is finalized, or refuses a call",
            Self::Thread => c"another thread is in a call, or MPI does not allow calls of this one",
            Self::Space => c"the regions are larger than announced to skt_init",
            Self::Region => c"a region is not as the checkpoint has it",
            Self::Refused => c"the run cannot begin, or continue from what was found, as asked; nothing was changed",
            Self::System => c"the system refuses memory or a file",
            Self::Timeout => c"a rank has not made this call in time",
            Self::Lost => c"a rank is lost: end the job; the same command continues",
            Self::Internal => c"a bug of this library",
            Self::Level => c"a level of images has failed; the run continues without it",
            Self::Device => c"memory of a device cannot be copied, or its driver is missing",
        }
    }
}

/// Why a call fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// What the call returns.
    pub code: Code,
    /// What has happened, and what to do.
    pub text: String,
    /// Whether this job can no longer use the run.
    pub is_over: bool,
}

impl Stop {
    /// A failure that changes nothing: another call may succeed.
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), is_over: false }
    }

    /// A failure after which this job can no longer use the run.
    pub(crate) fn over(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), is_over: true }
    }
}

/// The error of a failed MPI call: MPI fails when a rank is lost.
pub fn lost(why: &CommError) -> Stop {
    Stop::over(Code::Lost, format!("{why}. End this job; the same command continues the run"))
}

/// The result of a step of a call.
pub type Result<T> = std::result::Result<T, Stop>;

/// The collective calls, as messages name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Call {
    Init = 1,
    /// The end of `skt_init`, when the run is open.
    Opened = 2,
    Restore = 3,
    Checkpoint = 4,
    Due = 5,
    Done = 6,
    Later = 7,
    Begin = 8,
    Wait = 9,
    Images = 10,
}

named!(Call {
    Init: "skt_init",
    Opened: "skt_init",
    Restore: "skt_restore",
    Checkpoint: "skt_checkpoint",
    Due: "skt_due",
    Done: "skt_finalize(1)",
    Later: "skt_finalize(0)",
    Begin: "skt_checkpoint_begin",
    Wait: "skt_checkpoint_wait",
    Images: "skt_images_wait",
});

impl Call {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&call| call as u8 == number)
    }
}

/// The error if not all ranks have made a call within `limit`.
pub(crate) fn late(call: Call, limit: Duration) -> Stop {
    let (call, seconds) = (call.name(), limit.as_secs_f64());
    let text = format!(
        "not all ranks have called {call} within {seconds} s (option timeout_seconds): a rank \
         hangs, computes for longer, or has left out the call"
    );
    Stop::over(Code::Timeout, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_map_to_codes_with_distinct_texts() {
        let mut texts: Vec<_> = Code::ALL.iter().map(|code| code.text()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), Code::ALL.len());
        for code in Code::ALL {
            assert_eq!(Code::from_number(code as i32), Some(code));
        }
        assert_eq!(Code::from_number(2), None);
        assert_eq!(Code::from_number(-15), None);
    }
}
