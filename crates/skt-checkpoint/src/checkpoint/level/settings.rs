//! Levels of images, as a user specifies them.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skt_terms::shown::shell_quoted;
use skt_terms::units::{self, parse_seconds};

use super::folder::{ImageFolder, close_folders};
use super::{Disk, ImageCost, ImagesEvery, Level, MOST_LEVELS, Reach, Unopened, WhenBusy};

/// The default mean time between events that memory does not survive: a power failure, or more
/// losses than the groups survive. These are rarer than the loss of a node, for which a day is
/// assumed.
pub const IMAGES_MTBF_SECONDS: f64 = 30.0 * 86400.0;
/// The default number of generations to keep: one is left when one has rotted.
const KEEP: usize = 2;
/// The longest path, which goes into results of bounded size.
const FOLDER_BYTES_MAX: usize = 255;
/// The most levels that a user may name.
const LEVELS_MAX: usize = if MOST_LEVELS < 4 { MOST_LEVELS } else { 4 };
/// The options of a level.
const OPTIONS: [&str; 5] = ["every", "mtbf", "keep", "when-busy", "max-rate"];
/// The most generations to keep.
const MOST_KEPT: usize = 16;

/// A level of images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelSettings {
    /// Which nodes see the folder.
    pub reach: Reach,
    /// The folder, which exists on each node.
    pub folder: PathBuf,
    /// The least seconds between two images; `None`: chosen by what an image costs.
    pub every_seconds: Option<f64>,
    /// Mean seconds between failures that need an image.
    pub mtbf_seconds: f64,
    /// Generations to keep.
    pub keep: usize,
    /// What to do when an image is not complete in time.
    pub when_busy: WhenBusy,
    /// The most bytes a second that a rank writes while the solver does not wait for it.
    pub max_bytes_per_second: Option<f64>,
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
            mtbf_seconds: IMAGES_MTBF_SECONDS,
            keep: KEEP,
            when_busy: WhenBusy::Wait,
            max_bytes_per_second: None,
        })
    }

    /// Sets one of the options of the level.
    fn take(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=')?;
        match key {
            "every" if value == "auto" => self.every_seconds = None,
            "every" => self.every_seconds = Some(parse_seconds(value).ok()?),
            "mtbf" => self.mtbf_seconds = parse_seconds(value).ok()?,
            "keep" => {
                let keep = value.parse().ok()?;
                self.keep = (1..=MOST_KEPT).contains(&keep).then_some(keep)?;
            }
            "when-busy" => self.when_busy = WhenBusy::named(value)?,
            "max-rate" => {
                self.max_bytes_per_second = Some(units::parse_bytes_per_second(value)?);
            }
            _ => return None,
        }
        Some(())
    }

    /// Opens the level for test `test` of `run`, on a rank of `threads` threads. `shares` says
    /// whether the writer of images uses the cores of these threads. For `number` see
    /// [`ImageFolder::open`]. A folder that cannot be opened is a disk that fails: what a start
    /// does about it is decided when all ranks know.
    pub fn open(&self, run: &str, test: usize, number: u64, threads: usize, shares: bool) -> Level {
        let disk: Arc<dyn Disk> = match ImageFolder::open(&self.folder, run, test, number) {
            Ok(disk) => Arc::new(disk),
            Err(source) => Arc::new(Unopened(source)),
        };
        let (name, every) = (self.name(), self.images_every(threads, shares));
        let &Self { reach, keep, when_busy, max_bytes_per_second, .. } = self;
        Level { name, disk, reach, every, keep, when_busy, max_bytes_per_second }
    }

    /// How often a rank of `threads` threads writes images. `shares` says whether the writer uses
    /// the cores of these threads.
    fn images_every(&self, threads: usize, shares: bool) -> ImagesEvery {
        let mtbf_seconds = self.mtbf_seconds;
        match self.every_seconds {
            Some(seconds) => ImagesEvery::Seconds(seconds),
            None => ImagesEvery::Cost(Arc::new(move |cost| {
                let cpu_seconds = if shares { cost.cpu_seconds } else { 0.0 };
                let cost = ImageCost { cpu_seconds, ..*cost };
                images_interval_seconds(&cost, threads, mtbf_seconds)
            })),
        }
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

/// The time between two images, in seconds, when the last one has cost a rank of `threads` threads
/// `cost`, and failures that need one occur every `mtbf_seconds` on average: `max(sqrt(2 M C), W)`
/// (Benoit et al., IEEE TC 2017; `skt_model::levels` derives it). The work loses C, the time that
/// the rank waits, and the time that the writer takes on its cores, which the threads share; an
/// image takes W.
pub fn images_interval_seconds(cost: &ImageCost, threads: usize, mtbf_seconds: f64) -> f64 {
    let cost_seconds = cost.wait_seconds + cost.cpu_seconds / threads as f64;
    (2.0 * mtbf_seconds * cost_seconds).sqrt().max(cost.write_seconds)
}

impl Levels {
    /// Removes the folders of the run, which are empty.
    pub fn close(&self, run: &str) {
        for level in &self.0 {
            // Levels that cannot be read now were reported when images were removed.
            let _ = close_folders(&level.folder, run);
        }
    }

    /// The folders of the levels.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.0.iter().map(|level| level.folder.clone()).collect()
    }
}

/// Parses words with commas between them. A word that `begin` accepts begins an item; each other
/// word is an option that the item before it has to `take`. `None` if a word is neither.
pub fn with_options<T>(
    text: &str,
    begin: impl Fn(&str) -> Option<T>,
    take: impl Fn(&mut T, &str) -> Option<()>,
) -> Option<Vec<T>> {
    let mut items: Vec<T> = Vec::new();
    for word in text.split(',') {
        match begin(word) {
            Some(item) => items.push(item),
            None => take(items.last_mut()?, word)?,
        }
    }
    Some(items)
}

impl FromStr for Levels {
    type Err = BadLevels;

    /// Parses `local:FOLDER` and `global:FOLDER`, each followed by its options, with commas between
    /// all.
    fn from_str(text: &str) -> Result<Self, BadLevels> {
        let bad = || BadLevels(fault(text));
        let levels = with_options(text, LevelSettings::begin, LevelSettings::take);
        let levels: Vec<LevelSettings> = levels.ok_or_else(bad)?;
        let folders = levels.iter().map(|level| &level.folder);
        let is_twice = folders.collect::<std::collections::BTreeSet<_>>().len() < levels.len();
        if levels.len() > LEVELS_MAX || is_twice { Err(bad()) } else { Ok(Self(levels)) }
    }
}

/// Says which word of a text that specifies no levels is wrong, and why.
fn fault(text: &str) -> String {
    let mut level: Option<LevelSettings> = None;
    for word in text.split(',') {
        let key = word.split_once('=').map(|(key, _)| key).filter(|key| !key.contains(':'));
        match (key, &mut level) {
            (None, _) => match LevelSettings::begin(word) {
                Some(begun) => level = Some(begun),
                None => return no_level(word),
            },
            (Some(_), None) => return format!("`{word}` has no local:FOLDER before it"),
            (Some(key), Some(level)) => {
                if !OPTIONS.contains(&key) {
                    let known = OPTIONS.join(", ");
                    return format!("`{key}` is no option of a level; these are {known}");
                }
                if level.take(word).is_none() {
                    return format!("`{word}`: that is no {key}");
                }
            }
        }
    }
    format!("{LEVELS_MAX} levels at most, each with a folder of its own")
}

/// Why a word begins no level.
fn no_level(word: &str) -> String {
    match word.split_once(':') {
        Some((reach, _)) if Reach::named(reach).is_none() => {
            format!("`{reach}` is neither {}", Reach::NAMES.join(" nor "))
        }
        Some((_, folder)) if !Path::new(folder).is_absolute() => {
            format!("`{folder}` is no absolute path: ranks may start in folders of their own")
        }
        Some(_) => format!("the path of a folder has {FOLDER_BYTES_MAX} bytes at most"),
        None => {
            format!("`{word}` is neither a level, local:FOLDER or global:FOLDER, nor an option")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The interval for all costs of an image and all times between failures.
        #[test]
        fn the_interval_between_images(
            write in 0.0..1e4f64, wait in 0.0..1e3f64, cpu in 0.0..1e3f64,
            threads in 1usize..128, mtbf in 1.0..1e9f64,
        ) {
            let interval = |cost: &ImageCost, mtbf| images_interval_seconds(cost, threads, mtbf);
            let cost =
                ImageCost { write_seconds: write, wait_seconds: wait, cpu_seconds: cpu };
            let seconds = interval(&cost, mtbf);
            prop_assert!(seconds >= write, "one is written at a time");
            let young = (2.0 * mtbf * (wait + cpu / threads as f64)).sqrt();
            prop_assert!((seconds - young.max(write)).abs() <= 1e-9 * seconds);
            prop_assert!(interval(&cost, 2.0 * mtbf) >= seconds);
            let dearer = ImageCost { wait_seconds: wait + 1.0, ..cost };
            prop_assert!(interval(&dearer, mtbf) >= seconds);
        }
    }

    #[test]
    fn levels_are_read_with_their_options() {
        let text = "local:/scratch,every=10min,keep=1,global:/pfs/me,when-busy=skip";
        let levels: Levels = text.parse().expect("legal");
        let [local, global] = &levels.0[..] else { panic!("{levels:?}") };
        assert_eq!((local.reach, local.every_seconds, local.keep), (Reach::Local, Some(600.0), 1));
        assert_eq!((global.every_seconds, global.mtbf_seconds), (None, IMAGES_MTBF_SECONDS));
        let asked: Levels = "local:/x,every=1h,every=auto,mtbf=7d".parse().expect("legal");
        assert_eq!((asked.0[0].every_seconds, asked.0[0].mtbf_seconds), (None, 604_800.0));
        assert_eq!((global.reach, global.keep), (Reach::Global, KEEP));
        assert_eq!(global.when_busy, WhenBusy::Skip);
        assert_eq!((local.max_bytes_per_second, global.max_bytes_per_second), (None, None));
        let limited: Levels = "local:/x,max-rate=200MB/s".parse().expect("legal");
        assert_eq!(limited.0[0].max_bytes_per_second, Some(2e8));
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
            "local:/x,mtbf=0",
            "local:/x,mtbf=auto",
            "local:/x,when-busy=so",
            "local:/x,max-rate=200",
            "local:/x,max-rate=0MB/s",
            "local:/x,global:/x",
            "local:/x,",
        ] {
            assert!(text.parse::<Levels>().is_err(), "{text}");
        }
        for (text, said) in [
            ("local:/x,evry=3s", "`evry` is no option of a level; these are every, mtbf"),
            ("local:scratch", "`scratch` is no absolute path"),
            ("near:/x", "`near` is neither local nor global"),
            ("local:/x,keep=17", "`keep=17`: that is no keep"),
            ("every=1h", "`every=1h` has no local:FOLDER before it"),
            ("local:/x,global:/x", "4 levels at most, each with a folder of its own"),
            ("local", "`local` is neither a level"),
        ] {
            let why = text.parse::<Levels>().unwrap_err().to_string();
            assert!(why.starts_with(said), "{text}: {why}");
        }
    }
}
