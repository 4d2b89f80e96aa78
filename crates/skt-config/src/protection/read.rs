//! Turns the configuration into [`Settings`]: the only file that decides which protection is legal.

use std::collections::BTreeMap;
use std::path::Path;

use skt_host::shown::shown;
use skt_host::units::parse_seconds;

use super::Settings;
use crate::checkpoint::SETTINGS;
use crate::validate::parse_whole;
use crate::value::{Form, Range, Written};
use crate::{At, CheckpointDraft, ConfigError, Pin, RunSpec, Setting, TestSpec, ValueSource};
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::group::PlacementError;
use skt_checkpoint::checkpoint::level::settings::Levels;
use skt_checkpoint::checkpoint::methods::Method;
use skt_host::choice::OnLoss;
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_solver::pgesv::abft::{CheckEvery, MAX_CHECKSUMS};
use skt_store::codec::{CodecKind, checksum};
use skt_store::store::{SegmentName, StoreKind};

/// The most members that a group may have: GF(2^8) has no more points.
pub const MAX_MEMBERS: usize = 255;

const NO_CHECKSUMS: &str = "has no meaning without --ft abft, which has checksums; leave it out";

impl Settings {
    /// For the run `spec`. The file of failure domains is read by [`read_domains`].
    pub fn read(draft: &CheckpointDraft, spec: &RunSpec) -> Result<Self, ConfigError> {
        let from = Reader(draft);
        let method_is_asked = draft.contains_key(&Setting::Method);
        let method = Method::SelfCheckpoint;
        let mut settings = Self { method, method_is_asked, ..Self::none() };
        for row in SETTINGS {
            if let Some(field) = row.field
                && let Some(text) = from.text(row.setting, row.range)?
            {
                let set = field(&mut settings).set(&[text]);
                set.ok_or_else(|| from.not_understood(row.setting))?;
            }
        }
        if let Some(mtbf) = from.text(Setting::Mtbf, None)? {
            let seconds = parse_seconds(&mtbf);
            settings.mtbf_seconds = seconds.map_err(|_| from.not_understood(Setting::Mtbf))?;
        }
        from.legal(Setting::Domains, |text| !text.is_empty())?;
        from.refuse_numbers(&settings)?;
        from.refuse_losses(&settings)?;
        if settings.method == Method::Abft {
            from.refuse_checkpoints()?;
            settings.parities = from.whole(Setting::Parities, 1, Range::whole(1, MAX_CHECKSUMS))?;
            from.refuse_replacement(&settings, spec.tests().len())?;
            let widest = spec.grids.iter().map(|(_, q)| q + settings.parities).max();
            if let Some(width) = widest.filter(|&width| width > MAX_MEMBERS) {
                return Err(ConfigError::Other(format!(
                    "--ft abft: a process row has {width} ranks, checksum columns included; legal: \
                     at most {MAX_MEMBERS}. Take a grid of more rows, or another --ft"
                )));
            }
        } else if settings.check_every != CheckEvery::Auto {
            let at = from.at(Setting::CheckEvery).expect("it was given");
            return Err(at.error(NO_CHECKSUMS));
        } else {
            (settings.group_size, settings.parities) = from.group()?;
            from.refuse_small_grids(&settings, spec)?;
        }
        settings.codec = from.codec(&settings)?;
        let is_name = |text: &str| SegmentName::new(text, "t0.a0", 0).is_ok();
        let name = from.legal(Setting::RunId, is_name)?;
        settings.run_id = name.unwrap_or_else(|| default_run_id(spec));
        let is_store = |text: &str| text.parse::<StoreKind>().is_ok();
        settings.store = from.legal(Setting::Store, is_store)?.unwrap_or(settings.store);
        settings.levels = from.levels(settings.method)?;
        from.refuse_helper_cores(&settings, spec)?;
        Ok(settings)
    }
}

struct Reader<'a>(&'a CheckpointDraft);

impl Reader<'_> {
    /// The text of a setting, if it was given: of a choice the name that is written, of a number
    /// one in this range.
    fn text(&self, setting: Setting, range: Option<Range>) -> Result<Option<String>, ConfigError> {
        let (Some(value), row) = (self.0.get(&setting), setting.info()) else { return Ok(None) };
        let fits = value.form == Form::Token || row.fits(value.form);
        let text = match (row.written, row.choices) {
            (Written::Whole, _) => parse_whole(&value.text).map(|number| number.to_string()),
            (_, []) => Some(value.text.clone()),
            (_, choices) => {
                let named = choices.iter().find(|names| names.contains(&&*value.text));
                named.map(|names| names[0].to_owned())
            }
        };
        let text = text.filter(|_| fits).ok_or_else(|| self.not_understood(setting))?;
        range.map_or(Ok(()), |range| setting.at(&value.place).check(range, &text))?;
        Ok(Some(text))
    }

    /// The text of a setting, if it was given; it must be what `is_legal` accepts.
    fn legal(
        &self,
        setting: Setting,
        is_legal: fn(&str) -> bool,
    ) -> Result<Option<String>, ConfigError> {
        let text = self.text(setting, None)?;
        match &text {
            Some(text) if !is_legal(text) => Err(self.not_understood(setting)),
            _ => Ok(text),
        }
    }

    /// A whole number in a range that does not follow from the row.
    fn whole(&self, setting: Setting, default: usize, range: Range) -> Result<usize, ConfigError> {
        let text = self.text(setting, Some(range))?;
        Ok(text.map_or(default, |text| text.parse().expect("a number in its range")))
    }

    /// Where a setting was given.
    fn at(&self, setting: Setting) -> Option<At> {
        self.0.get(&setting).map(|value| setting.at(&value.place))
    }

    fn not_understood(&self, setting: Setting) -> ConfigError {
        let (value, row) = (&self.0[&setting], setting.info());
        let wanted = match (row.written, row.choices) {
            (Written::Whole, _) => "a whole number",
            (Written::Real, _) => "a number",
            (Written::Flag, _) | (_, [_, ..]) => "one of the choices",
            (Written::Time, _) | (Written::Text, []) => "understood",
        };
        setting.at(&value.place).not_understood(&shown(&value.text), wanted, &row.legal())
    }

    /// The levels, which are legal for methods with images only.
    fn levels(&self, method: Method) -> Result<Levels, ConfigError> {
        let Some(value) = self.0.get(&Setting::Level) else { return Ok(Levels::default()) };
        let at = Setting::Level.at(&value.place);
        let levels = value.text.parse::<Levels>().map_err(|why| {
            at.clone().error(format!("{why}. Legal is {}", Setting::Level.info().legal()))
        })?;
        if !method.has_images() {
            return Err(at.error(format!(
                "levels need --ft self, --ft double or --ft abft; this is {method}, so leave them out"
            )));
        }
        Ok(levels)
    }

    /// Refuses settings that only checkpoints have.
    fn refuse_checkpoints(&self) -> Result<(), ConfigError> {
        use Setting::{Codec, Every, GroupSize, MessageBytes, Overlap, Region};
        let of_checkpoints = [Every, GroupSize, Region, Codec, MessageBytes, Overlap];
        of_checkpoints.into_iter().find_map(|setting| self.at(setting)).map_or(Ok(()), |at| {
            Err(at.error("has no meaning with --ft abft, which takes no checkpoints; leave it out"))
        })
    }

    /// Refuses the number of a checkpoint in a file, by which each start would go back to it.
    fn refuse_numbers(&self, settings: &Settings) -> Result<(), ConfigError> {
        match (settings.resume, self.at(Setting::Resume)) {
            (Resume::At(_), Some(at)) if at.place != ValueSource::Flag => Err(at
                .error("each start would go back to this checkpoint: give it to one, by --resume")),
            _ => Ok(()),
        }
    }

    /// Refuses to recover from losses where that is impossible.
    fn refuse_losses(&self, settings: &Settings) -> Result<(), ConfigError> {
        let Some(at) = self.at(Setting::OnLoss) else { return Ok(()) };
        match (settings.on_loss, settings.method, settings.resume) {
            (OnLoss::Restart, ..) => Ok(()),
            (_, Method::Abft, Resume::Never) => Err(at.error(
                "continues from memory, which --resume never does not; to restart from scratch, \
                 remove the memory before (skt-hpl store clean --run NAME)",
            )),
            (_, Method::Abft, _) => Ok(()),
            _ => Err(at.error(NO_CHECKSUMS)),
        }
    }

    /// Where the number of checksums is not one, or where a further test would have none.
    fn refuse_replacement(&self, settings: &Settings, tests: usize) -> Result<(), ConfigError> {
        let parities = settings.parities;
        match self.at(Setting::OnLoss) {
            Some(at) if settings.on_loss == OnLoss::Replace && (parities, tests) != (1, 1) => {
                Err(at.error(format!(
                    "replace takes one checksum column (--parities 1) and one test, as none is \
                     left for another; here are {parities} and {tests}. Change that, or take recover"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Refuses groups that have no room on a grid, if groups are asked for: a grid is too small for
    /// the method, or all are too small for the parities. A test may be too short for a checkpoint,
    /// but it must not pass with settings that stop a longer one.
    fn refuse_small_grids(&self, settings: &Settings, spec: &RunSpec) -> Result<(), ConfigError> {
        let (parities, least) = (settings.parities, 2 * settings.parities);
        let tests = spec.tests();
        let sizes = tests.iter().map(TestSpec::ranks);
        let ranks = match self.0.contains_key(&Setting::Method) {
            true if settings.is_on() => sizes.min(),
            false if parities != Settings::none().parities => sizes.max(),
            _ => None,
        };
        let Some(ranks) = ranks.filter(|ranks| *ranks < least) else { return Ok(()) };
        let given = [Setting::Parities, Setting::Method].into_iter();
        let at = given.filter_map(|setting| self.at(setting)).next();
        let why = PlacementError::TooFewRanks { ranks, parities, least };
        Err(at.expect("one of them asks for groups").error(why.to_string()))
    }

    /// Refuses helper cores where nothing runs next to the solver.
    fn refuse_helper_cores(&self, settings: &Settings, spec: &RunSpec) -> Result<(), ConfigError> {
        let is_small =
            || spec.tests().iter().all(|test| settings.method_for(test.ranks()) == Method::None);
        let why = match settings.method {
            _ if settings.helper_cores == 0 => return Ok(()),
            _ if spec.pin == Pin::None => "with --pin none no thread is pinned",
            Method::None => "--ft none takes no checkpoints",
            Method::Abft => "with --ft abft each rank writes its images itself, and waits for them",
            _ if is_small() => "no grid has ranks enough for checkpoints",
            _ if settings.levels.0.is_empty() && !settings.overlaps(true) => {
                "no images are written (--level), and no parities are computed while the solver \
                 continues (--overlap on)"
            }
            _ => return Ok(()),
        };
        let at = self.at(Setting::HelperCores);
        Err(at
            .expect("it was given")
            .error(format!("there is nothing for helper cores to do: {why}")))
    }

    fn group(&self) -> Result<(usize, usize), ConfigError> {
        let default = Settings::none();
        let range = Setting::Parities.info().range.expect("the row has a range");
        let parities = self.whole(Setting::Parities, default.parities, range)?;
        // Without a given size, the size follows the parities.
        let members = default.group_size.max(2 * parities);
        let range = Range::whole(2 * parities, MAX_MEMBERS);
        let members = self.whole(Setting::GroupSize, members, range)?;
        Ok((members, parities))
    }

    /// The code that was given, else the one for the number of parities.
    fn codec(&self, settings: &Settings) -> Result<CodecKind, ConfigError> {
        match (self.0.contains_key(&Setting::Codec), settings.parities, settings.codec) {
            (false, 1, _) => Ok(CodecKind::Xor),
            (false, ..) => Ok(CodecKind::ReedSolomon),
            (true, 1, codec) | (true, _, codec @ CodecKind::ReedSolomon) => Ok(codec),
            (true, _, codec) => Err(Setting::Codec
                .at(&self.0[&Setting::Codec].place)
                .out_of_range(codec, "reed-solomon, with more than one parity")),
        }
    }
}

/// The failure domain of each host that the draft's file names; empty without a file.
pub fn read_domains(draft: &CheckpointDraft) -> Result<BTreeMap<String, String>, ConfigError> {
    let Some(value) = draft.get(&Setting::Domains) else { return Ok(BTreeMap::new()) };
    let file = value.text.clone();
    let text = infile::read_text(Path::new(&file), LIST_BYTES_MAX)
        .map_err(|source| ConfigError::Read { file: file.clone(), source })?;
    let mut domains = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let bad = |what: String| ConfigError::in_file(&file, format!("line {}: {what}", index + 1));
        let line = line.split('#').next().unwrap_or_default();
        let (host, domain) = match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => continue,
            [host, _] if host.contains('[') => {
                let list = shown(host);
                return Err(bad(format!(
                    "'{list}' is a list; `scontrol show hostnames '{list}'` prints a host a line"
                )));
            }
            [host, domain] => (host.to_owned(), domain.to_owned()),
            _ => return Err(bad("a host and its domain are expected".to_owned())),
        };
        if let Some(other) = domains.insert(host.clone(), domain.clone())
            && other != domain
        {
            return Err(bad(format!("{} is in {} already", shown(&host), shown(&other))));
        }
    }
    Ok(domains)
}

/// The default name of a run: the same for the same tests, so that the same command finds its data.
fn default_run_id(spec: &RunSpec) -> String {
    // Data of other rates is found, and refused by their name.
    let spec = RunSpec { rates: None, ..spec.clone() };
    let tests = serde_json::to_vec(&spec.tests()).expect("plain data");
    format!("hpl-{:016x}", checksum(&tests))
}

#[cfg(test)]
mod tests {
    use super::super::Every;
    use std::fs;

    use super::*;
    use crate::tests::split_case;
    use crate::toml::write_checkpoint;
    use crate::value::Value;
    use crate::{Checked, Format, parse};
    use skt_checkpoint::time_limit::TimeLimit;
    use skt_host::choice::{Overlap, Region};

    const RUN: &str = "n = 100\nnb = 8\np = 2\nq = 2\n";

    fn checked(table: &str) -> Result<Checked, ConfigError> {
        parse(format!("{RUN}[checkpoint]\n{table}\n").as_bytes(), "f", Format::Toml, false)
    }

    fn settings(table: &str) -> Result<Settings, ConfigError> {
        let checked = checked(table)?;
        Settings::read(&checked.checkpoint, &checked.spec)
    }

    #[test]
    fn each_example_of_the_help_is_legal() {
        for info in SETTINGS.iter().filter(|info| info.written != Written::Flag) {
            let with = match info.setting {
                Setting::CheckEvery | Setting::OnLoss => (Setting::Method, "abft"),
                _ => (Setting::Level, "local:/d"),
            };
            // The setting's own example comes last, so it wins if `with` gives the same setting.
            let draft = [with, (info.setting, info.example)];
            let draft = draft.map(|(setting, text)| (setting, Value::flag(text))).into();
            Settings::read(&draft, &checked("").unwrap().spec).expect(info.key);
        }
    }

    #[test]
    fn reed_solomon_has_a_short_name() {
        for name in ["rs", "reed-solomon"] {
            let codec = settings(&format!("codec = \"{name}\"")).unwrap().codec;
            assert_eq!(codec, CodecKind::ReedSolomon);
        }
    }

    #[test]
    fn a_table_has_all_that_flags_have() {
        let table = "method = \"double\"\nevery = \"20p\"\nmtbf = 3600\nresume = \"require\"\n\
                     run_id = \"a.b\"\ngroup_size = 8\nparities = 2\nregion = \"side\"\n\
                     codec = \"reed-solomon\"\nmessage_bytes = 8192\noverlap = \"on\"\n\
                     helper_cores = 2\ndomains = \"racks\"\n\
                     allow_shared_domains = true\nstore = \"file:/x\"\n\
                     level = \"local:/d,every=10min,keep=3\"\ntime_limit = \"2h\"";
        let want = Settings {
            method: Method::Double,
            every: Every::Panels(20),
            mtbf_seconds: 3600.0,
            resume: Resume::Require,
            run_id: "a.b".into(),
            group_size: 8,
            parities: 2,
            region: Region::Side,
            codec: CodecKind::ReedSolomon,
            message_bytes: 8192,
            overlap: Overlap::On,
            helper_cores: 2,
            allow_shared_domains: true,
            store: "file:/x".into(),
            levels: "local:/d,every=600s,keep=3".parse().unwrap(),
            time_limit: TimeLimit::Seconds(7200.0),
            ..Settings::none()
        };
        assert_eq!(settings(table).unwrap(), want);
        // All settings except those of checksums.
        assert_eq!(checked(table).unwrap().checkpoint.len(), SETTINGS.len() - 2);
        // Settings that are written and read again are the same.
        let written = write_checkpoint(&checked(table).unwrap().checkpoint);
        let again = parse(format!("{RUN}{written}").as_bytes(), "f", Format::Toml, false).unwrap();
        assert_eq!(Settings::read(&again.checkpoint, &again.spec).unwrap(), want);
    }

    #[test]
    fn an_empty_table_is_the_default() {
        let empty = settings("").unwrap();
        assert_eq!(empty.method, Method::SelfCheckpoint);
        assert!(!empty.method_is_asked);
        let written = write_checkpoint(&CheckpointDraft::new());
        // The defaults, written out, change nothing.
        let set: String = written
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.contains(" = ") && !line.contains("= ("))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(set.lines().count(), SETTINGS.iter().filter(|s| s.has_default_value()).count());
        assert_eq!(Settings { method_is_asked: false, ..settings(&set).unwrap() }, empty);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_is_legal() {
        for case in WRONG.lines() {
            let [table, want] = split_case(case);
            let error = settings(&table.replace("; ", "\n")).unwrap_err().to_string();
            let (line, what) = want.split_once(": ").unwrap();
            assert_eq!(error, format!("f:{line}: checkpoint.{what}"), "{case}");
        }
        let top = parse(b"n = 1\ngroup_size = 4\n", "f", Format::Toml, false).unwrap_err();
        let want = "f:2: group_size: no such key; it belongs in the table [checkpoint]";
        assert_eq!(top.to_string(), want);
        let scalar = parse(b"checkpoint = 4\n", "f", Format::Toml, false).unwrap_err().to_string();
        assert!(scalar.starts_with("f:1: checkpoint: `this integer` is not a table"), "{scalar}");
    }

    /// Tables, with `; ` between their lines, and the message: its line, and what follows the name
    /// of the table.
    const WRONG: &str = r#"method = "triple" | 6: method: `triple` is not one of the choices; legal: self, abft, double, single, none
method = "single"; level = "local:/x" | 7: level: levels need --ft self, --ft double or --ft abft; this is single, so leave them out
method = "none"; helper_cores = 1 | 7: helper_cores: there is nothing for helper cores to do: --ft none takes no checkpoints
method = "abft"; level = "local:/x"; helper_cores = 1 | 8: helper_cores: there is nothing for helper cores to do: with --ft abft each rank writes its images itself, and waits for them
helper_cores = 4097 | 6: helper_cores: value 4097 is out of range; legal: 0 to 4096
level = "local:x" | 6: level: `local:x` is neither a level in an absolute path, nor an option of the level before. Legal is local:FOLDER or global:FOLDER, with an absolute path, then ,every=auto or a time (10min; 10min! whatever it costs) ,keep=1..16; several with commas between them
; group_size = 1 | 7: group_size: value 1 is out of range; legal: 2 to 255
parities = 3; group_size = 5 | 7: group_size: value 5 is out of range; legal: 6 to 255
parities = 0 | 6: parities: value 0 is out of range; legal: 1 to 127
parities = "1" | 6: parities: `1` is not a whole number; legal: 1 to 127; with abft 1 to 3
parities = 2; codec = "xor" | 7: codec: value xor is out of range; legal: reed-solomon, with more than one parity
check_every = 3 | 6: check_every: has no meaning without --ft abft, which has checksums; leave it out
method = "abft"; check_every = 0 | 7: check_every: `0` is not understood; legal: auto, never, or panels: 1 or more
every = "often" | 6: every: `often` is not understood; legal: auto, never, a time (90 or 90s, 10min, 24h, 3d), panels (20p), or drill (20p!)
mtbf = 0 | 6: mtbf: `0` is not understood; legal: a time: 90 or 90s, 10min, 24h, 3d
allow_shared_domains = "yes" | 6: allow_shared_domains: `yes` is not one of the choices; legal: true, false
run_id = "a/b" | 6: run_id: `a/b` is not understood; legal: 1 to 64 letters, digits, `.`, `_` and `-`
store = "tape" | 6: store: `tape` is not understood; legal: sysv, sysv-huge, posix, file:FOLDER
metod = "self" | 6: metod: no such key; did you mean `method`?
region = ["side"] | 6: region: `this array` is not a value; legal: corner, side, whole"#;

    #[test]
    fn helper_cores_are_taken_where_there_is_work_for_them() {
        for table in [
            "",
            "method = \"double\"",
            "overlap = \"off\"\nlevel = \"local:/x\"",
            "method = \"single\"\noverlap = \"on\"",
        ] {
            assert_eq!(settings(&format!("{table}\nhelper_cores = 1")).unwrap().helper_cores, 1);
        }
        for table in ["overlap = \"off\"", "method = \"single\""] {
            let why = settings(&format!("{table}\nhelper_cores = 1")).unwrap_err().to_string();
            assert!(why.contains("no images are written (--level), and no parities"), "{why}");
            assert!(settings(&format!("{table}\nhelper_cores = 0")).is_ok());
        }
        let alone = "n = 9\nnb = 8\np = 1\nq = 1\n[checkpoint]\nhelper_cores = 1\n";
        let alone = parse(alone.as_bytes(), "f", Format::Toml, false).unwrap();
        let why = Settings::read(&alone.checkpoint, &alone.spec).unwrap_err().to_string();
        assert!(why.contains("no grid has ranks enough for checkpoints"), "{why}");
    }

    /// Whether a checkpoint is due makes no difference: it is not known here.
    #[test]
    fn groups_larger_than_a_grid_are_refused_if_asked_for() {
        let read = |grids: &str, table: &str| {
            let text = format!("n = 100\nnb = 8\n{grids}\n[checkpoint]\n{table}\n");
            let checked = parse(text.as_bytes(), "f", Format::Toml, false).unwrap();
            let read = Settings::read(&checked.checkpoint, &checked.spec);
            read.map(|_| ()).map_err(|why| why.to_string())
        };
        let two = "p = 1\nq = 2";
        let why = "a group with 2 parities needs at least 4 ranks, not 2";
        for table in ["parities = 2", "parities = 2\nmethod = \"double\""] {
            assert_eq!(read(two, table), Err(format!("f:6: checkpoint.parities: {why}")));
        }
        let why = "a group with 1 parity needs at least 2 ranks, not 1";
        let one = read("p = 1\nq = 1", "method = \"self\"");
        assert_eq!(one, Err(format!("f:6: checkpoint.method: {why}")));
        for (grids, table) in [
            ("p = 1\nq = 4", "parities = 2\nmethod = \"self\""),
            ("p = 1\nq = 1", "parities = 1"),
            (two, "parities = 2\nmethod = \"none\""),
            // The small grid runs without checkpoints, unless they are asked for by name.
            ("p = [1, 1]\nq = [2, 4]", "parities = 2"),
        ] {
            assert_eq!(read(grids, table), Ok(()), "{grids}, {table}");
        }
        let both = read("p = [1, 1]\nq = [2, 4]", "parities = 2\nmethod = \"self\"");
        assert!(both.unwrap_err().contains("at least 4 ranks, not 2"));
    }

    #[test]
    fn a_core_that_is_kept_for_it_encodes_while_the_solver_goes_on() {
        for (table, on_several_hosts, on_one) in [
            ("", true, false),
            ("helper_cores = 1", true, true),
            ("method = \"double\"", false, false),
            ("method = \"double\"\nhelper_cores = 1", true, true),
            ("overlap = \"on\"", true, true),
            ("overlap = \"off\"\nlevel = \"local:/x\"\nhelper_cores = 1", false, false),
        ] {
            let settings = settings(table).unwrap();
            let overlaps = [true, false].map(|hosts| settings.overlaps(hosts));
            assert_eq!(overlaps, [on_several_hosts, on_one], "{table}");
        }
    }

    #[test]
    fn checksums_have_settings_of_their_own() {
        let read = |grid: &str, table: &str| {
            let text =
                format!("n = 100\nnb = 8\n{grid}\n[checkpoint]\nmethod = \"abft\"\n{table}\n");
            let checked = parse(text.as_bytes(), "f", Format::Toml, false)?;
            let settings = Settings::read(&checked.checkpoint, &checked.spec)?;
            Ok((settings.parities, checked.spec.checksums, checked.spec.max_ranks()))
        };
        let refused = |grid: &str, table: &str| -> String {
            read(grid, table)
                .map(|_| ())
                .map_err(|error: ConfigError| error.to_string())
                .unwrap_err()
        };
        assert_eq!(read("p = 2\nq = 3", "").unwrap(), (1, 1, 8));
        assert_eq!(read("p = 2\nq = 3", "parities = 3").unwrap(), (3, 3, 12));
        let wide = refused("p = 1\nq = 255", "");
        assert!(wide.contains("a process row has 256 ranks"), "{wide}");
        let many = refused("p = 1\nq = 2", "parities = 4");
        assert!(many.contains("value 4 is out of range; legal: 1 to 3"), "{many}");
        let region = refused("p = 1\nq = 2", "region = \"side\"");
        assert!(region.contains("checkpoint.region: has no meaning with --ft abft"), "{region}");
    }

    #[test]
    fn domains_are_pairs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("racks");
        let draft =
            CheckpointDraft::from([(Setting::Domains, Value::flag(file.display().to_string()))]);
        assert!(matches!(read_domains(&draft), Err(ConfigError::Read { .. })));
        fs::write(&file, "a r1 # first\n\nb r1\nc r2\n").unwrap();
        let domains = read_domains(&draft).unwrap();
        assert_eq!(domains.len(), 3);
        assert_eq!(domains["b"], "r1");
        fs::write(&file, "a r1\nb\n").unwrap();
        let error = read_domains(&draft).unwrap_err().to_string();
        assert!(error.ends_with("racks: line 2: a host and its domain are expected"), "{error}");
        fs::write(&file, "n[1-4] r1\n").unwrap();
        let error = read_domains(&draft).unwrap_err().to_string();
        assert!(error.contains("racks: line 1: 'n[1-4]' is a list"), "{error}");
        fs::write(&file, "a r1\na r1\na r2\n").unwrap();
        let error = read_domains(&draft).unwrap_err().to_string();
        assert!(error.ends_with("racks: line 3: a is in r1 already"), "{error}");
    }
}
