//! What each level of images has done, in words.

use skt_checkpoint::checkpoint::level::LevelReport;

pub(super) fn level_words(level: &LevelReport) -> String {
    let LevelReport { name, images, seconds, stall_seconds, complete_epoch, .. } = level;
    let mut words = format!("{name}: ");
    if *images == 0 {
        words += "no image since the last start";
    } else {
        let rate = level.rate() / 1e6;
        words += &format!("{images} image(s) a rank in {seconds:.2} s ({rate:.0} MB/s)");
        words += &format!(", the solver waited {stall_seconds:.2} s");
    }
    words += &match complete_epoch {
        0 => "; none is complete".to_owned(),
        _ => format!("; complete up to checkpoint {complete_epoch}"),
    };
    if let Some(seconds) = level.interval_seconds {
        words += &format!("; by their cost one every {seconds:.1} s");
    }
    if level.given_up > 0 {
        words += &format!("; {} given up", level.given_up);
    }
    if let Some(why) = &level.failure {
        words += &format!("; NO MORE ARE WRITTEN: {why}");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_images_has_no_rate_of_them() {
        let facts = |images| LevelReport {
            name: "local:/l".to_owned(),
            images,
            bytes: 3_000_000,
            seconds: 1.5,
            stall_seconds: 0.25,
            cpu_seconds: 0.0,
            interval_seconds: None,
            given_up: 0,
            complete_epoch: 3,
            failure: None,
            is_over: false,
        };
        let some = "local:/l: 2 image(s) a rank in 1.50 s (2 MB/s), the solver waited 0.25 s; \
                    complete up to checkpoint 3";
        let none = "local:/l: no image since the last start; complete up to checkpoint 3";
        assert_eq!([level_words(&facts(2)), level_words(&facts(0))], [some, none]);
        let nothing = level_words(&LevelReport { complete_epoch: 0, ..facts(0) });
        assert_eq!(nothing, "local:/l: no image since the last start; none is complete");
    }
}
