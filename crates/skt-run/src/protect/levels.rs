//! What a report contains about the levels of images.

use crate::record::LevelFacts;
use skt_checkpoint::checkpoint::level::LevelReport;

/// The longest reason of a failure: it goes into results of bounded size.
const REASON_CHARS_MAX: usize = 200;

impl From<LevelReport> for LevelFacts {
    fn from(report: LevelReport) -> Self {
        let LevelReport { name, images, bytes, seconds, stall_seconds, given_up, .. } = report;
        let LevelReport { cpu_seconds, interval_seconds, .. } = report;
        let elsewhere = || report.is_over.then(|| "a write has failed on another rank".to_owned());
        let cut = |why: String| why.chars().take(REASON_CHARS_MAX).collect();
        let failure = report.failure.or_else(elsewhere).map(cut);
        let complete_epoch = report.complete_epoch;
        Self {
            name,
            images,
            bytes,
            seconds,
            stall_seconds,
            cpu_seconds,
            interval_seconds,
            given_up,
            complete_epoch,
            failure,
        }
    }
}
