//! A program gives its options in a TOML text, and environment variables override them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use nix::sys::signal::SigSet;
use skt_checkpoint::checkpoint::alike::{Difference, Setting, compare};
use skt_checkpoint::checkpoint::decide::Resume;
use skt_checkpoint::checkpoint::level::settings::Levels;
use skt_checkpoint::checkpoint::level::{Reach, Writer};
use skt_checkpoint::checkpoint::parameters::cut_value;
use skt_checkpoint::client;
use skt_checkpoint::time_limit::TimeLimit;
use skt_comm::Comm;
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_store::codec::CodecKind;
use skt_store::store::{SegmentName, StoreKind};

use crate::code::{Code, Result, Stop};
use crate::table::seconds_of;

/// The names of all options. The environment variable of `run_id` is `SKT_RUN_ID`.
pub const NAMES: [&str; 13] = [
    "run_id",
    "application",
    "group_size",
    "parities",
    "codec",
    "resume",
    "store",
    "domains",
    "allow_shared_domains",
    "mtbf_seconds",
    "timeout_seconds",
    "levels",
    "time_limit",
];

/// Seconds that the ranks of a call wait for the last one.
pub(crate) const TIMEOUT_SECONDS: f64 = 600.0;
/// Mean seconds between failures of the whole job.
const MTBF_SECONDS: f64 = 86400.0;
/// The most members of a group: GF(2^8) has no more points.
const MAX_MEMBERS: usize = 255;
const MAX_PARITIES: usize = 127;

/// The options that a program gives, as an environment variable would have them.
type GivenOptions = BTreeMap<&'static str, String>;

pub(crate) struct Options {
    /// The options of the Rust interface. The ranks agree on what the data depends on.
    pub client: client::Options,
    /// What the data depends on; by default the program and its arguments.
    pub application: Option<String>,
    /// Seconds that the ranks of a call wait for the last one.
    pub timeout_seconds: f64,
    domains: Option<BTreeMap<String, String>>,
    /// All options, as ranks compare them: for each what it means, and what messages show.
    settings: Vec<Setting>,
}

impl Options {
    /// Reads the text that a program gives, which the environment variables that `variable` finds
    /// override. Errors have the name of the option and what is legal.
    pub(crate) fn resolve(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let given = &read_toml(text)?;
        let mut all = Reader { given, variable: &variable, settings: Vec::new() };
        let run_id = all.read("run_id", program_name, run_id, String::clone)?;
        let application = all.read(
            "application",
            || None,
            |text| Ok(Some(text.to_owned())),
            |text| text.as_ref().map_or("of the program".to_owned(), |text| format!("{text:?}")),
        )?;
        let parities = all.whole("parities", 1, 1..=MAX_PARITIES)?;
        let least = (2 * parities).max(2);
        let group_size = all.whole("group_size", 16.max(least), least..=MAX_MEMBERS)?;
        let usual = if parities == 1 { CodecKind::Xor } else { CodecKind::ReedSolomon };
        let names = CodecKind::NAMES.join(", ");
        let codec = all.read(
            "codec",
            || usual,
            |text| CodecKind::named(text).ok_or_else(|| format!("legal: {names}")),
            CodecKind::to_string,
        )?;
        if parities > 1 && codec == CodecKind::Xor {
            return Err(bad("option codec: more than one parity needs reed-solomon"));
        }
        let legal = "auto, never, require, or the number of a checkpoint";
        let resume = all.parsed("resume", Resume::Auto, legal, |_| true)?;
        // Huge pages may need a warning on standard error, where this library writes nothing.
        let is_quiet = |kind: &StoreKind| !matches!(kind, StoreKind::SysV { huge_pages: true });
        let usual = StoreKind::SysV { huge_pages: false };
        let store = all.parsed("store", usual, "sysv, posix, file:FOLDER", is_quiet)?;
        // A file of failure domains may name other hosts on each of them.
        let domains = all.read(
            "domains",
            || None,
            |file| read_domains(file).map(Some),
            |domains| domains.as_ref().map_or("none", |_| "a file").to_owned(),
        )?;
        let allow_shared_domains =
            all.parsed("allow_shared_domains", false, "true, false", |_| true)?;
        let mtbf_seconds = all.seconds("mtbf_seconds", MTBF_SECONDS)?;
        let timeout_seconds = all.seconds("timeout_seconds", TIMEOUT_SECONDS)?;
        let levels = all.read("levels", Levels::default, levels, |levels| match &levels.0[..] {
            [] => "none".to_owned(),
            _ => format!("{levels:?}"),
        })?;
        if all.text_of("run_id").is_none()
            && levels.0.iter().any(|level| level.reach == Reach::Global)
        {
            return Err(bad(
                "option run_id: a run with a global level needs its own name: another job of \
                 this program may use the same folder, on other nodes, and each would take the \
                 images there for its own",
            ));
        }
        let legal = "auto, never, a time such as 90min, @ and seconds since 1970";
        let time_limit = all.parsed("time_limit", TimeLimit::Auto, legal, |_| true)?;
        let mut settings = all.settings;
        settings.push(Setting::new("version of the library", env!("CARGO_PKG_VERSION")));

        let mut client = client::Options::new(&run_id, "").with_store(store);
        (client.mtbf_seconds, client.levels) = (mtbf_seconds, levels);
        client.end_unix = time_limit.settled().end();
        let config = &mut client.config;
        (config.members, config.parities, config.code) = (group_size, parities, codec);
        config.resume = resume;
        config.allow_shared_domains = allow_shared_domains;
        config.state_seconds = Some(seconds_of);
        // Signals are for the program's own threads.
        config.image_writer = Writer::Thread(Arc::new(|| {
            let _ = SigSet::all().thread_block();
        }));
        Ok(Self { client, application, timeout_seconds, domains, settings })
    }

    /// The options of a process on `host`, which the file of failure domains has to name.
    pub(crate) fn on_host(mut self, host: &str) -> Result<Self> {
        if let Some(domains) = &self.domains {
            let unnamed = || bad(format!("option domains: the file does not name host {host}"));
            self.client.config.domain = domains.get(host).cloned().ok_or_else(unnamed)?;
        }
        Ok(self)
    }

    /// All ranks have the same options; the inner error is the first rank with another one than
    /// rank 0, the same on all ranks. Collective.
    pub(crate) fn agree(&self, comm: &Comm) -> skt_comm::Result<Result<()>> {
        let found = compare(comm, &self.settings)?;
        Ok(found.map_or(Ok(()), |Difference { process, name, here, there }| {
            let text = format!(
                "rank {process} has {name} = {here}, rank 0 has {there}: all ranks need the same \
                 options (mpirun passes a variable on to other hosts only if it is asked to)"
            );
            Err(bad(text))
        }))
    }
}

pub(crate) fn bad(text: impl Into<String>) -> Stop {
    Stop::new(Code::Options, text)
}

fn read_toml(text: &str) -> Result<GivenOptions> {
    let table: toml::Table =
        text.parse().map_err(|why: toml::de::Error| bad(format!("the options: {why}")))?;
    let named = |(name, value): (&String, &toml::Value)| {
        let known = NAMES.iter().find(|known| *known == name);
        let unknown = || bad(format!("no option `{name}`; there are {}", NAMES.join(", ")));
        Ok((*known.ok_or_else(unknown)?, as_text(value)))
    };
    table.iter().map(named).collect()
}

fn as_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        // Levels may be in a list.
        toml::Value::Array(all) => all.iter().map(as_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn variable_of(name: &str) -> String {
    format!("SKT_{}", name.to_uppercase())
}

type Parsed<T> = std::result::Result<T, String>;

/// Reads options one by one, each of which becomes a setting that ranks compare.
struct Reader<'a> {
    given: &'a GivenOptions,
    variable: &'a dyn Fn(&str) -> Option<String>,
    settings: Vec<Setting>,
}

impl Reader<'_> {
    /// The text of an option, if there is one, and whether it is that of an environment variable.
    fn text_of(&self, name: &str) -> Option<(String, bool)> {
        let variable = (self.variable)(&variable_of(name)).filter(|text| !text.is_empty());
        let program = || self.given.get(name).map(|text| (text.clone(), false));
        variable.map(|text| (text, true)).or_else(program)
    }

    /// An option that is `usual` unless it is given; ranks compare what `format` returns.
    fn read<T>(
        &mut self,
        name: &str,
        usual: impl FnOnce() -> T,
        parse: impl FnOnce(&str) -> Parsed<T>,
        format: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        let given = self.text_of(name);
        let value = match &given {
            None => usual(),
            Some((text, _)) => {
                parse(text).map_err(|why| bad(format!("option {name}: `{text}`: {why}")))?
            }
        };
        let setting = Setting::new(name, format(&value));
        let shown = match given {
            None => format!("{} (the default)", setting.shown),
            Some((text, false)) => format!("{:?}", cut_value(&text)),
            Some((text, true)) => format!("{:?} ({})", cut_value(&text), variable_of(name)),
        };
        self.settings.push(Setting { shown, ..setting });
        Ok(value)
    }

    /// An option whose text is `legal`, in words, if it can be parsed and `is_legal`.
    fn parsed<T: FromStr + ToString>(
        &mut self,
        name: &str,
        usual: T,
        legal: &str,
        is_legal: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let parse = |text: &str| {
            let value = text.parse().ok().filter(is_legal);
            value.ok_or_else(|| format!("legal: {legal}"))
        };
        self.read(name, || usual, parse, T::to_string)
    }

    fn whole(&mut self, name: &str, usual: usize, all: RangeInclusive<usize>) -> Result<usize> {
        let legal = format!("whole numbers from {} to {}", all.start(), all.end());
        self.parsed(name, usual, &legal, |number| all.contains(number))
    }

    fn seconds(&mut self, name: &str, usual: f64) -> Result<f64> {
        let is_legal = |seconds: &f64| *seconds > 0.0 && *seconds < 1e12;
        self.parsed(name, usual, "a positive number of seconds", is_legal)
    }
}

fn run_id(text: &str) -> Parsed<String> {
    match SegmentName::new(text, "t0.a0", 0) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("legal: 1 to 64 letters, digits, `.`, `_` and `-`".to_owned()),
    }
}

fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_legal = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = name.chars().filter(is_legal).take(64).collect();
    if run_id(&name).is_ok() { name } else { "skt".to_owned() }
}

fn levels(text: &str) -> Parsed<Levels> {
    let legal = "legal: local:FOLDER or global:FOLDER, each followed by every=TIME or TIME!, \
                 keep=N, with commas between all";
    text.parse().map_err(|why| format!("{why}. {legal}"))
}

/// Reads one host and its failure domain per line; what follows a `#` is a comment.
fn read_domains(file: &str) -> Parsed<BTreeMap<String, String>> {
    let text = infile::read_text(Path::new(file), LIST_BYTES_MAX).map_err(|why| why.to_string())?;
    let mut domains = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] => {}
            [host, domain] => _ = domains.insert(host.to_owned(), domain.to_owned()),
            _ => return Err(format!("line {}: a host and its domain are expected", number + 1)),
        }
    }
    Ok(domains)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_in(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Options> {
        Options::resolve(text, variable)
    }

    fn read(text: &str) -> Result<Options> {
        read_in(text, |_| None)
    }

    #[test]
    fn environment_overrides_the_text() {
        let text = "run_id = \"a\"\nparities = 2\nmtbf_seconds = 3600\nresume = \"require\"";
        let environment = |name: &str| match name {
            "SKT_RUN_ID" => Some("b".to_owned()),
            "SKT_GROUP_SIZE" => Some("8".to_owned()),
            "SKT_RESUME" => Some(String::new()),
            _ => None,
        };
        let client::Options { config, mtbf_seconds, .. } =
            read_in(text, environment).expect("legal").client;
        assert_eq!(config.run_id, "b");
        assert_eq!((config.members, config.parities), (8, 2));
        assert_eq!(config.code, CodecKind::ReedSolomon);
        assert_eq!(mtbf_seconds, 3600.0);
        assert_eq!(config.resume, Resume::Require, "an empty variable is none");
    }

    #[test]
    fn without_options_a_run_has_the_name_of_its_program() {
        let config = read("").expect("legal").client.config;
        assert!(config.run_id.starts_with("skt_checkpoint_c"), "{}", config.run_id);
        assert_eq!((config.members, config.parities), (16, 1));
        assert_eq!(config.code, CodecKind::Xor);
    }

    /// Nothing else would keep the images of two jobs apart.
    #[test]
    fn a_global_level_needs_a_name_of_the_run() {
        let stop = read("levels = 'local:/y,global:/x'").err().expect("no name");
        assert_eq!(stop.code, Code::Options);
        assert!(stop.text.contains("option run_id: a run with a global level"), "{}", stop.text);
        assert!(read("levels = 'global:/x'\nrun_id = 'a'").is_ok());
        let named = |name: &str| (name == "SKT_RUN_ID").then(|| "a".to_owned());
        assert!(read_in("levels = 'global:/x'", named).is_ok());
        assert!(read("levels = 'local:/x'").is_ok());
    }

    #[test]
    fn names_are_known_and_errors_list_the_legal_values() {
        let cases = [
            ("colour = 1", "no option `colour`; there are run_id, "),
            ("run_id = \"a/b\"", "option run_id: `a/b`: legal: 1 to 64 letters"),
            ("group_size = 1", "option group_size: `1`: legal: whole numbers from 2 to 255"),
            ("parities = 3\ngroup_size = 5", "option group_size: `5`: legal: whole numbers from 6"),
            ("parities = 0", "option parities: `0`: legal: whole numbers from 1 to 127"),
            ("parities = 2\ncodec = \"xor\"", "option codec: more than one parity needs"),
            ("codec = \"md5\"", "option codec: `md5`: legal: xor, sum, reed-solomon"),
            ("resume = \"maybe\"", "option resume: `maybe`: legal: auto, "),
            ("store = \"tape\"", "option store: `tape`: legal: sysv, posix, file:FOLDER"),
            ("store = \"sysv-huge\"", "option store: `sysv-huge`: legal: sysv,"),
            ("mtbf_seconds = -1", "option mtbf_seconds: `-1`: legal: a positive number"),
            ("timeout_seconds = \"soon\"", "option timeout_seconds: `soon`: legal: a positive"),
            ("domains = \"/nowhere\"", "option domains: `/nowhere`: No such file"),
            ("allow_shared_domains = 1", "option allow_shared_domains: `1`: legal: true, false"),
            ("levels = \"near:/x\"", "option levels: `near:/x`: `near:/x` is neither a level in"),
            ("levels = [\"local:x\"]", "`local:x` is neither a level in an absolute path"),
            ("time_limit = \"soon\"", "option time_limit: `soon`: legal: auto, never, a time"),
            ("run_id", "the options: "),
        ];
        for (text, want) in cases {
            let stop = read(text).err().expect(text);
            assert_eq!((stop.code, stop.is_over), (Code::Options, false));
            assert!(stop.text.contains(want), "{text}: {}", stop.text);
        }
    }

    #[test]
    fn all_options_are_compared_and_shown_with_their_origin() {
        let environment = |name: &str| (name == "SKT_CODEC").then(|| "sum".to_owned());
        let options = read_in("mtbf_seconds = 3600.0", environment).expect("legal");
        let settings = options.settings;
        let mut names: Vec<&str> = settings.iter().map(|setting| &*setting.name).collect();
        names.sort_by_key(|name| NAMES.iter().position(|known| known == name).unwrap_or(99));
        assert_eq!(names[..NAMES.len()], NAMES);
        let of = |name: &str| settings.iter().find(|setting| setting.name == name).expect("one");
        assert_eq!(of("codec").shown, "\"sum\" (SKT_CODEC)");
        assert_eq!(of("resume").shown, "auto (the default)");
        assert_eq!(of("levels").shown, "none (the default)");
        let (value, shown) = (&*of("mtbf_seconds").value, &*of("mtbf_seconds").shown);
        assert_eq!((value, shown), ("3600", "\"3600.0\""), "what it means is compared");
    }

    #[test]
    fn a_host_without_a_domain_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("racks");
        fs::write(&file, "a r1 # first\n\nb r2\n").expect("room");
        let text = format!("domains = {:?}", file.display().to_string());
        let on = |host| read(&text).expect("legal").on_host(host);
        assert_eq!(on("b").expect("named").client.config.domain, "r2");
        let stop = on("c").err().expect("not named");
        assert!(stop.text.contains("does not name host c"), "{}", stop.text);
    }
}
