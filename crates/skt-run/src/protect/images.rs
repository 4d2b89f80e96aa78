//! The images of a run on its levels: opens them for a test, looks for them, and removes them.

use std::collections::BTreeSet;

use super::LevelSettings;
use crate::events::Saved;
use skt_checkpoint::checkpoint::level::folder::{self, Remover};
use skt_checkpoint::checkpoint::level::{Level, LevelReport};
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::protection::Settings;

/// The images that were complete when the levels were last looked at.
#[derive(Default)]
pub(crate) struct ImagesSeen {
    /// For each level: the newest epoch that was complete, and the seconds of all images.
    levels: Vec<(u64, f64)>,
}

impl ImagesSeen {
    /// The images that are complete since the last call; all that are, in the first one.
    pub(crate) fn completed(&mut self, reports: &[LevelReport]) -> Vec<Saved> {
        self.levels.resize(reports.len(), (0, 0.0));
        let newer = |((epoch, seconds), report): (&mut (u64, f64), &LevelReport)| {
            if report.complete_epoch <= *epoch {
                return None;
            }
            let took_seconds = report.seconds - *seconds;
            (*epoch, *seconds) = (report.complete_epoch, report.seconds);
            let (level, epoch) = (report.name.clone(), *epoch);
            Some(Saved::Images { level, epoch, seconds: took_seconds })
        };
        self.levels.iter_mut().zip(reports).filter_map(newer).collect()
    }
}

/// Opens the levels for test `test` of the run, on a rank of `threads` threads.
pub(crate) fn open_levels(settings: &Settings, test: usize, threads: usize) -> Vec<Level> {
    // The cores' time is a cost only if the writer takes it from the solver. With `abft` the
    // rank itself writes, and the time that it waits counts already; a helper core does not
    // belong to the solver.
    let shares = settings.method != Method::Abft && settings.helper_cores == 0;
    let Settings { levels, run_id, job_number, mtbf_seconds, .. } = settings;
    levels.open(run_id, test, *job_number, threads, shares, *mtbf_seconds)
}

/// Removes the images of tests that `is_meant` selects from the levels, as far as this node
/// sees them. Returns a line about each level that refuses.
pub(crate) fn remove_images(settings: &Settings, is_meant: impl Fn(usize) -> bool) -> Vec<String> {
    let remover = Remover::Job(settings.job_number);
    let refused = |level: &LevelSettings| {
        let why =
            folder::remove_images_of(&level.folder, &settings.run_id, remover, &is_meant).err()?;
        let (name, run, folder) = (level.name(), &settings.run_id, level.quoted_folder());
        Some(format!(
            "images of run {run} may stay on {name}: {why}; a later run of that name would \
             continue from them: `skt-hpl store clean --run {run} --images {folder}` removes them"
        ))
    };
    settings.levels.0.iter().filter_map(refused).collect()
}

/// The tests of which each level has images, as far as this node sees it, or why the level cannot be
/// read.
pub(crate) fn tests_with_images(settings: &Settings) -> Vec<Result<BTreeSet<usize>, String>> {
    let of_level = |level: &LevelSettings| {
        let tests = folder::tests_with_images(&level.folder, &settings.run_id);
        tests.map_err(|why| format!("level {}: {why}", level.name()))
    };
    settings.levels.0.iter().map(of_level).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Levels;
    use super::*;
    use skt_checkpoint::checkpoint::level::ImageCost;
    use skt_checkpoint::checkpoint::level::folder::ImageFolder;
    use skt_model::levels::Level as Planned;

    /// Where the writer has dedicated cores, the time that it takes on them is no cost.
    #[test]
    fn writer_costs_the_solver_its_time_on_shared_cores() {
        let folder = tempfile::tempdir().expect("a folder");
        let level = format!("local:{}", folder.path().display());
        let levels: Levels = level.parse().expect("legal");
        let interval = |method, helper_cores, cpu_seconds| {
            let settings =
                Settings { levels: levels.clone(), method, helper_cores, ..Settings::new("costs") };
            let opened = open_levels(&settings, 0, 2);
            opened[0].every.interval_seconds(&ImageCost {
                write_seconds: 1.0,
                wait_seconds: 1.0,
                cpu_seconds,
            })
        };
        let method = Method::SelfCheckpoint;
        assert!(interval(method, 0, 1.0) > interval(method, 0, 0.0));
        assert_eq!(interval(method, 1, 1.0), interval(method, 0, 0.0));
        // The rank itself writes, and the time that it waits counts already.
        assert_eq!(interval(Method::Abft, 0, 1.0), interval(method, 0, 0.0));
    }

    /// A run takes images at the interval that `skt-hpl plan` counts on.
    #[test]
    fn the_interval_is_the_best_period_of_the_model() {
        let level: Levels = "local:/x".parse().expect("legal");
        let settings = Settings { levels: level, mtbf_seconds: 2880.0, ..Settings::new("model") };
        for (wait_seconds, cpu_seconds, write_seconds) in
            [(2.0, 3.0, 1.0), (0.0, 0.0, 7.0), (0.5, 0.0, 1e5)]
        {
            let opened = open_levels(&settings, 0, 2);
            let planned = Planned {
                cost_seconds: wait_seconds + cpu_seconds / 2.0,
                write_seconds,
                outage_seconds: 0.0,
                mtbf_seconds: 86400.0,
            };
            let taken = opened[0].every.interval_seconds(&ImageCost {
                write_seconds,
                wait_seconds,
                cpu_seconds,
            });
            assert_eq!(taken, planned.best_period_seconds().expect("legal"));
        }
    }

    /// What a start does about it is decided when all ranks know.
    #[test]
    fn missing_or_linked_folder_is_a_failed_disk() {
        let above = tempfile::tempdir().expect("a folder");
        let fails = |folder: &Path, named: &Path| {
            let levels: Levels = format!("local:{}", folder.display()).parse().expect("legal");
            let settings = Settings { levels, ..Settings::new("fails") };
            let levels = open_levels(&settings, 0, 1);
            let why = levels[0].disk.list().expect_err("a disk that fails").to_string();
            assert!(why.contains(&named.display().to_string()), "{why}");
        };
        let nowhere = above.path().join("nowhere");
        fails(&nowhere, &nowhere);
        let link = ImageFolder::path_of(above.path(), "fails");
        std::os::unix::fs::symlink(&nowhere, &link).expect("a link");
        fails(above.path(), &link);
    }
}
