//! The time limit of a job: that of its allocation, or the user's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use skt_host::clock::now_unix;
use skt_host::units::{BadQuantity, parse_seconds};

/// Slurm's variable for the end of the allocation, in seconds since 1970, from version 23.02 on.
pub const SLURM_END: &str = "SLURM_JOB_END_TIME";
const SLURM_JOB: &str = "SLURM_JOB_ID";

/// The time that a user gives a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum TimeLimit {
    /// The run has until the end of the Slurm job, if there is one.
    #[default]
    Auto,
    /// The run has as much time as it needs.
    Never,
    /// The run has this many seconds from the start of the job.
    Seconds(f64),
    /// The run has until this time, in seconds since 1970.
    At(f64),
    /// The end that rank 0 has determined for all ranks ([`TimeLimit::settled`]).
    Until {
        /// The end, in seconds since 1970.
        end_unix: f64,
        /// Seconds from the beginning of the job to the end.
        seconds: f64,
    },
}

impl FromStr for TimeLimit {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let at = text.strip_prefix('@').and_then(|text| text.parse().ok());
        match (text, at) {
            ("auto", _) => Ok(Self::Auto),
            ("never", _) => Ok(Self::Never),
            (_, Some(at)) if f64::is_finite(at) && at >= 0.0 => Ok(Self::At(at)),
            _ => parse_seconds(text).map(Self::Seconds),
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Never => f.write_str("never"),
            Self::Seconds(seconds) => write!(f, "{seconds}s"),
            Self::At(at) | Self::Until { end_unix: at, .. } => write!(f, "@{at}"),
        }
    }
}

impl TimeLimit {
    /// The end of the time of a job that began at `begun`, in seconds since 1970. `slurm` is the
    /// value of [`SLURM_END`].
    pub fn end_unix(self, begun: f64, slurm: Option<&str>) -> Option<f64> {
        match self {
            Self::Auto => slurm?.trim().parse().ok().filter(|end: &f64| end.is_finite()),
            Self::Never => None,
            Self::Seconds(seconds) => Some(begun + seconds),
            Self::At(at) | Self::Until { end_unix: at, .. } => Some(at),
        }
    }

    /// A warning in a Slurm job if neither job nor user sets its end. `get` reads the environment.
    pub fn unknown_end(self, get: impl Fn(&str) -> Option<String>) -> Option<String> {
        let is_slurm = self == Self::Auto && get(SLURM_JOB).is_some();
        let is_known = self.end_unix(0.0, get(SLURM_END).as_deref()).is_some();
        (is_slurm && !is_known).then(|| {
            format!(
                "the end of this Slurm job is not known ({SLURM_END} is missing before Slurm \
                 23.02), so the run will not save its state before it: give --time-limit"
            )
        })
    }

    /// The end on rank 0 of a job that begins now, by its clock and its environment, for all ranks.
    pub fn settled(self) -> Self {
        let now = now_unix();
        let end = self.end_unix(now, std::env::var(SLURM_END).ok().as_deref());
        end.map_or(Self::Never, |end_unix| Self::Until { end_unix, seconds: end_unix - now })
    }

    /// The end, in seconds since 1970, once it is settled.
    pub fn end(self) -> Option<f64> {
        match self {
            Self::Until { end_unix, .. } => Some(end_unix),
            _ => None,
        }
    }

    /// Seconds from the beginning of the job to the end, once it is settled.
    pub fn seconds(self) -> Option<f64> {
        match self {
            Self::Until { seconds, .. } => Some(seconds),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        for (text, want) in [
            ("auto", TimeLimit::Auto),
            ("never", TimeLimit::Never),
            ("2h", TimeLimit::Seconds(7200.0)),
            ("@1764028800", TimeLimit::At(1_764_028_800.0)),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
            assert_eq!(want.to_string().parse(), Ok(want), "{text}");
        }
        for text in ["", "@", "@x", "@inf", "@-1", "0", "-1h", "soon"] {
            assert!(text.parse::<TimeLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn slurms_end_of_a_job_is_used_unless_the_user_sets_one() {
        let end = |limit: TimeLimit, slurm| limit.end_unix(1000.0, slurm);
        assert_eq!(end(TimeLimit::Auto, Some("5000")), Some(5000.0));
        assert_eq!(end(TimeLimit::Auto, Some("soon")), None);
        assert_eq!(end(TimeLimit::Auto, None), None);
        assert_eq!(end(TimeLimit::Never, Some("5000")), None);
        assert_eq!(end(TimeLimit::Seconds(60.0), Some("5000")), Some(1060.0));
        assert_eq!(end(TimeLimit::At(2000.0), Some("5000")), Some(2000.0));
    }

    #[test]
    fn slurm_job_of_unknown_end_is_reported() {
        let warns = |limit: TimeLimit, job: Option<&str>, end: Option<&str>| {
            let of = |name: &str| if name == SLURM_JOB { job } else { end };
            limit.unknown_end(|name| of(name).map(str::to_owned)).is_some()
        };
        assert!(warns(TimeLimit::Auto, Some("7"), None));
        assert!(warns(TimeLimit::Auto, Some("7"), Some("soon")));
        assert!(!warns(TimeLimit::Auto, Some("7"), Some("5000")));
        assert!(!warns(TimeLimit::Auto, None, None));
        for limit in [TimeLimit::Never, TimeLimit::Seconds(60.0), TimeLimit::At(2000.0)] {
            assert!(!warns(limit, Some("7"), None), "{limit}");
        }
    }
}
