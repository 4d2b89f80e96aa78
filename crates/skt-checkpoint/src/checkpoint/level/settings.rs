//! Levels of images, as a user specifies them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skt_host::levels::{IMAGES_MTBF_SECONDS, with_options};
use skt_host::shown::shell_quoted;
use skt_host::units::parse_seconds;

use super::folder::{ImageFolder, close_folder};
use super::{CostLimits, Disk, ImagesEvery, Level, MAX_LEVELS, Reach, Unopened};

/// The default number of generations to keep: one is left when one has rotted.
const KEEP: usize = 2;
/// The largest share of a run's time that images may cost, those of all levels together, where a
/// user gives their interval. A tenth is far above what the best interval costs, and leaves a run
/// most of its rate.
pub(crate) const IMAGES_SHARE_MAX: f64 = 0.1;
/// The longest path, which goes into results of bounded size.
const FOLDER_BYTES_MAX: usize = 255;
const MAX_NAMED_LEVELS: usize = 4;
const _: () = assert!(MAX_NAMED_LEVELS <= MAX_LEVELS);
/// Events that memory does not survive are this many times rarer than failures of the job.
const MTBF_RATIO: f64 = IMAGES_MTBF_SECONDS / 86400.0;
const MAX_KEPT: usize = 16;

/// A level of images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelSettings {
    /// Which nodes see the folder.
    pub reach: Reach,
    /// The folder, which exists on each node.
    pub folder: PathBuf,
    /// The least seconds between two images; `None`: chosen by what an image costs.
    pub every_seconds: Option<f64>,
    /// Whether these seconds count even if images cost more than `IMAGES_SHARE_MAX`.
    pub is_every_strict: bool,
    /// Generations to keep.
    pub keep: usize,
}

/// The levels of a run, the nearest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Levels(pub Vec<LevelSettings>);

/// A text that specifies no levels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadLevels(String);

impl LevelSettings {
    fn begin(word: &str) -> Option<Self> {
        let (reach, folder) = word.split_once(':')?;
        let (reach, folder) = (Reach::named(reach)?, PathBuf::from(folder));
        // Ranks may be started in different folders.
        let is_legal = folder.is_absolute() && folder.as_os_str().len() <= FOLDER_BYTES_MAX;
        is_legal.then_some(Self {
            reach,
            folder,
            every_seconds: None,
            is_every_strict: false,
            keep: KEEP,
        })
    }

    fn take(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=')?;
        match key {
            "every" if value == "auto" => self.every_seconds = None,
            "every" => {
                let strict = value.strip_suffix('!');
                self.every_seconds = Some(parse_seconds(strict.unwrap_or(value)).ok()?);
                self.is_every_strict = strict.is_some();
            }
            "keep" => {
                let keep = value.parse().ok()?;
                self.keep = (1..=MAX_KEPT).contains(&keep).then_some(keep)?;
            }
            _ => return None,
        }
        Some(())
    }

    /// A folder that cannot be opened is a disk that fails: what a start does about it is decided
    /// when all ranks know. For `job` see [`ImageFolder::open`].
    fn open(&self, run: &str, test: usize, job: Option<u64>, limits: CostLimits) -> Level {
        let disk: Arc<dyn Disk> = match ImageFolder::open(&self.folder, run, test, job) {
            Ok(disk) => Arc::new(disk),
            Err(source) => Arc::new(Unopened(source)),
        };
        let every = match self.every_seconds {
            Some(seconds) if self.is_every_strict => ImagesEvery::Seconds(seconds),
            asked_seconds => ImagesEvery::Cost { asked_seconds, limits },
        };
        Level { name: self.name(), disk, reach: self.reach, every, keep: self.keep }
    }

    /// The folder, quoted so that a shell reads it back from a command.
    pub fn quoted_folder(&self) -> String {
        shell_quoted(&self.folder.display().to_string())
    }

    /// The name of the level in the report.
    pub fn name(&self) -> String {
        format!("{}:{}", self.reach, self.folder.display())
    }
}

impl Levels {
    /// Opens the levels for test `test` of `run`, on a rank of `threads` threads. `shares` is
    /// whether the writer of images uses the cores of these threads, `mtbf_seconds` the mean time
    /// between failures of the job. For `job` see [`ImageFolder::open`]. A folder that cannot be
    /// opened is a disk that fails: what a start does about it is decided when all ranks know.
    pub fn open(
        &self,
        run: &str,
        test: usize,
        job: Option<u64>,
        threads: usize,
        shares: bool,
        mtbf_seconds: f64,
    ) -> Vec<Level> {
        let share_max = IMAGES_SHARE_MAX / self.0.len() as f64;
        let mtbf_seconds = MTBF_RATIO * mtbf_seconds;
        let limits = CostLimits { threads, shares, share_max, mtbf_seconds };
        self.0.iter().map(|level| level.open(run, test, job, limits)).collect()
    }

    /// Removes the folders of the run, which are empty.
    pub fn close(&self, run: &str) {
        for level in &self.0 {
            // Levels that cannot be read now were reported when images were removed.
            let _ = close_folder(&level.folder, run);
        }
    }

    /// The folders of the levels.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.0.iter().map(|level| level.folder.clone()).collect()
    }
}

impl FromStr for Levels {
    type Err = BadLevels;

    /// `local:FOLDER` and `global:FOLDER`, each followed by its options, with commas between all.
    fn from_str(text: &str) -> Result<Self, BadLevels> {
        let levels = with_options(text, LevelSettings::begin, LevelSettings::take);
        let levels: Vec<LevelSettings> = levels.map_err(|word| {
            BadLevels(format!(
                "`{word}` is neither a level in an absolute path, nor an option of the level before"
            ))
        })?;
        let folders: BTreeSet<_> = levels.iter().map(|level| &level.folder).collect();
        if levels.len() > MAX_NAMED_LEVELS || folders.len() < levels.len() {
            let text = format!("{MAX_NAMED_LEVELS} levels at most, each with its own folder");
            return Err(BadLevels(text));
        }
        Ok(Self(levels))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::ImageCost;
    use super::*;

    proptest! {
        /// An interval that a user gives, for all costs of the images of several levels.
        #[test]
        fn images_at_a_given_interval_cost_at_most_their_share(
            asked in 1e-3..1e6f64, waits in prop::collection::vec(0.0..1e5f64, 1..5),
            cpu in 0.0..1e4f64, threads in 1usize..128, shares: bool,
        ) {
            let text: Vec<String> =
                (0..waits.len()).map(|i| format!("local:/{i},every={asked:?}s")).collect();
            let levels: Levels = text.join(",").parse().expect("legal");
            let mut share = 0.0;
            let opened = levels.open("run", 0, None, threads, shares, 1.0);
            for (level, &wait_seconds) in opened.iter().zip(&waits) {
                let ImagesEvery::Cost { asked_seconds, .. } = level.every else {
                    panic!("{level:?}")
                };
                prop_assert_eq!(asked_seconds, Some(asked));
                let cost = ImageCost { write_seconds: 1e9, wait_seconds, cpu_seconds: cpu };
                let seconds = level.every.interval_seconds(&cost);
                let lost = wait_seconds + if shares { cpu / threads as f64 } else { 0.0 };
                prop_assert!(seconds >= asked);
                if lost / asked <= IMAGES_SHARE_MAX / waits.len() as f64 {
                    prop_assert_eq!(seconds, asked, "as asked where that is cheap enough");
                }
                share += lost / seconds;
            }
            prop_assert!(share <= IMAGES_SHARE_MAX * (1.0 + 1e-9), "{}", share);
        }
    }

    #[test]
    fn strict_interval_is_kept_whatever_it_costs() {
        let strict: Levels = "local:/x,every=2s!".parse().expect("legal");
        let every = &strict.open("run", 0, None, 1, true, 1.0)[0].every;
        assert!(matches!(every, ImagesEvery::Seconds(2.0)), "{every:?}");
        let last: Levels = "local:/x,every=2s!,every=3s".parse().expect("legal");
        assert!(!last.0[0].is_every_strict);
        for text in ["local:/x,every=!", "local:/x,every=auto!", "local:/x,every=2s!!"] {
            assert!(text.parse::<Levels>().is_err(), "{text}");
        }
    }

    #[test]
    fn levels_are_read_with_their_options() {
        let text = "local:/scratch,every=10min,keep=1,global:/pfs/me";
        let levels: Levels = text.parse().expect("legal");
        let [local, global] = &levels.0[..] else { panic!("{levels:?}") };
        assert_eq!((local.reach, local.every_seconds, local.keep), (Reach::Local, Some(600.0), 1));
        assert_eq!(global.every_seconds, None);
        let asked: Levels = "local:/x,every=1h,every=auto".parse().expect("legal");
        assert_eq!(asked.0[0].every_seconds, None);
        assert_eq!((global.reach, global.keep), (Reach::Global, KEEP));
        assert_eq!(global.folder, Path::new("/pfs/me"));
        assert_eq!(levels.folders(), [Path::new("/scratch"), Path::new("/pfs/me")]);
        for text in [
            "",
            "local",
            "local:",
            "local:scratch",
            "every=1h",
            "near:/x",
            "local:/x,keep=0",
            "local:/x,keep=17",
            "local:/x,every=0",
            "local:/x,every=never",
            "local:/x,mtbf=7d",
            "local:/x,global:/x",
            "local:/x,",
        ] {
            assert!(text.parse::<Levels>().is_err(), "{text}");
        }
        for (text, message) in [
            ("local:/x,evry=3s", "`evry=3s` is neither a level in an absolute path, nor"),
            ("local:/x,global:/x", "4 levels at most, each with its own folder"),
        ] {
            let why = text.parse::<Levels>().unwrap_err().to_string();
            assert!(why.starts_with(message), "{text}: {why}");
        }
    }
}
