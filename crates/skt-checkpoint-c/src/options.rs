//! The options of a run: a TOML text or a struct of C, which environment variables override.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use nix::sys::signal::SigSet;
use skt_checkpoint::checkpoint::agree::Resume;
use skt_checkpoint::checkpoint::alike::{Difference, Setting, compare};
use skt_checkpoint::checkpoint::codec::CodecKind;
use skt_checkpoint::checkpoint::encode::Encoder;
use skt_checkpoint::checkpoint::level::settings::Levels;
use skt_checkpoint::checkpoint::level::{Reach, Writer};
use skt_checkpoint::checkpoint::parameters::cut_value;
use skt_checkpoint::checkpoint::store::{SegmentName, StoreKind};
use skt_checkpoint::client;
use skt_checkpoint::time_limit::TimeLimit;
use skt_comm::Comm;

use crate::code::{Code, Result, Stop};
use crate::state::seconds_of;

/// The names of all options. The environment variable of `run_id` is `SKT_RUN_ID`.
pub const NAMES: [&str; 14] = [
    "run_id",
    "application",
    "group_size",
    "parities",
    "codec",
    "encoder",
    "resume",
    "store",
    "mtbf_seconds",
    "timeout_seconds",
    "domains",
    "allow_shared_domains",
    "levels",
    "time_limit",
];
/// Seconds that the ranks of a call wait for the last one.
pub const TIMEOUT_SECONDS: f64 = 600.0;
/// Mean seconds between failures of the whole job.
const MTBF_SECONDS: f64 = 86400.0;
/// The most members of a group: GF(2^8) has no more points.
const MAX_MEMBERS: i64 = 255;
/// The most parities of a group.
const MAX_PARITIES: i64 = 127;

/// What a program asks of its checkpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    run_id: String,
    /// What the data depends on; by default the program and its arguments.
    pub application: Option<String>,
    group_size: usize,
    parities: usize,
    codec: CodecKind,
    encoder: Encoder,
    resume: Resume,
    store: StoreKind,
    mtbf_seconds: f64,
    /// Seconds that the ranks of a call wait for the last one.
    pub timeout_seconds: f64,
    /// The failure domain of each host, read from a file.
    domains: Option<BTreeMap<String, String>>,
    allow_shared_domains: bool,
    levels: Levels,
    time_limit: TimeLimit,
    origins: Origins,
}

/// Where the values of options are from.
#[derive(Debug, Clone, PartialEq)]
enum Origin {
    /// The program gives this text.
    Program(String),
    /// An environment variable has this text.
    Variable(String),
}

/// The origins of all options that do not have their default.
type Origins = BTreeMap<&'static str, Origin>;

/// The options that a program gives, as text.
pub type GivenOptions = BTreeMap<&'static str, String>;

impl Options {
    /// Reads a TOML text, which the environment variables that `variable` finds override.
    ///
    /// # Errors
    /// [`Code::Options`], with the name of the option and what is legal.
    pub fn read(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        Self::resolve(&read_toml(text)?, variable)
    }

    /// Reads what a program gives, which the environment variables that `variable` finds override.
    ///
    /// # Errors
    /// As [`Options::read`].
    pub fn resolve(
        options: &GivenOptions,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let origin = |name: &'static str| {
            let variable = variable(&variable_of(name)).filter(|value| !value.is_empty());
            let program = || options.get(name).cloned().map(Origin::Program);
            Some((name, variable.map(Origin::Variable).or_else(program)?))
        };
        let origins: Origins = NAMES.into_iter().filter_map(origin).collect();
        let given = |name: &'static str| {
            let text = |(Origin::Program(text) | Origin::Variable(text)): &Origin| text.clone();
            Given { name, value: origins.get(name).map(text) }
        };
        let parities = given("parities").whole(1, 1, MAX_PARITIES)?;
        let least = (2 * parities as i64).max(2);
        let usual = if parities == 1 { CodecKind::Xor } else { CodecKind::ReedSolomon };
        let codec = given("codec").one_of(usual, CodecKind::named, &CodecKind::NAMES)?;
        if parities > 1 && codec == CodecKind::Xor {
            return Err(bad("option codec: more than one parity needs reed-solomon".to_owned()));
        }
        let levels = given("levels").with(Levels::default, levels)?;
        let named = given("run_id");
        if named.value.is_none() && levels.0.iter().any(|level| level.reach == Reach::Global) {
            let text = "option run_id: a run with a global level needs a name of its own: another \
                        job of this program may use the same folder, on other nodes, and each \
                        would take the images there for its own";
            return Err(bad(text.to_owned()));
        }
        Ok(Self {
            run_id: named.with(program_name, run_id)?,
            application: given("application").value,
            group_size: given("group_size").whole(16.max(least), least, MAX_MEMBERS)?,
            parities,
            codec,
            encoder: given("encoder").one_of(Encoder::Auto, Encoder::named, &Encoder::NAMES)?,
            resume: given("resume").one_of(Resume::Auto, Resume::named, &Resume::NAMES)?,
            store: given("store").with(|| StoreKind::SysV { huge_pages: false }, store)?,
            mtbf_seconds: given("mtbf_seconds").with(|| MTBF_SECONDS, seconds)?,
            timeout_seconds: given("timeout_seconds").with(|| TIMEOUT_SECONDS, seconds)?,
            domains: given("domains").with(|| None, |file| read_domains(file).map(Some))?,
            allow_shared_domains: given("allow_shared_domains").with(|| false, flag)?,
            levels,
            time_limit: given("time_limit").with(|| TimeLimit::Auto, time_limit)?,
            origins,
        })
    }

    /// The options of the Rust interface, for a process on `host`.
    ///
    /// # Errors
    /// The file of failure domains does not name the host.
    pub fn open(&self, host: &str) -> Result<client::Options> {
        // The ranks agree on what the data depends on.
        let mut options = client::Options::new(&self.run_id, "").with_store(self.store.clone());
        options.mtbf_seconds = self.mtbf_seconds;
        options.levels = self.levels.clone();
        options.end_unix = self.time_limit.settled().end();
        let config = &mut options.config;
        (config.members, config.parities, config.code) =
            (self.group_size, self.parities, self.codec);
        (config.encoder, config.resume) = (self.encoder, self.resume);
        config.allow_shared_domains = self.allow_shared_domains;
        config.state_seconds = Some(seconds_of);
        // Signals are for the program's own threads.
        config.image_writer = Writer::Thread(Arc::new(|| {
            let _ = SigSet::all().thread_block();
        }));
        if let Some(domains) = &self.domains {
            let domain = domains.get(host).cloned();
            let unnamed = || bad(format!("option domains: the file does not name host {host}"));
            config.domain = domain.ok_or_else(unnamed)?;
        }
        Ok(options)
    }
}

impl Options {
    /// Agrees that all ranks have the same options. Collective; the same on all ranks.
    ///
    /// # Errors
    /// A rank is lost; within, the first rank with another option than rank 0.
    pub fn agree<C: Comm>(&self, comm: &C) -> skt_comm::Result<Result<()>> {
        let found = compare(comm, &self.settings())?;
        Ok(found.map_or(Ok(()), |Difference { process, name, here, there }| {
            let text = format!(
                "rank {process} has {name} = {here}, rank 0 has {there}: all ranks need the same \
                 options (mpirun passes a variable on to other hosts only if it is asked to)"
            );
            Err(bad(text))
        }))
    }

    /// All options, as ranks compare them: for each what it means, and what messages show.
    fn settings(&self) -> Vec<Setting> {
        // Without `..`: a new option does not compile until it is listed here.
        let Self {
            run_id,
            application,
            group_size,
            parities,
            codec,
            encoder,
            resume,
            store,
            mtbf_seconds,
            timeout_seconds,
            domains,
            allow_shared_domains,
            levels,
            time_limit,
            origins,
        } = self;
        // A file of failure domains may name other hosts on each of them.
        let domains = domains.as_ref().map_or("none", |_| "a file");
        let application =
            application.as_ref().map_or("of the program".to_owned(), |text| format!("{text:?}"));
        let values = [
            ("run_id", run_id.clone()),
            ("application", application),
            ("group_size", group_size.to_string()),
            ("parities", parities.to_string()),
            ("codec", codec.to_string()),
            ("encoder", encoder.to_string()),
            ("resume", resume.to_string()),
            ("store", store.to_string()),
            ("mtbf_seconds", mtbf_seconds.to_string()),
            ("timeout_seconds", timeout_seconds.to_string()),
            ("domains", domains.to_owned()),
            ("allow_shared_domains", allow_shared_domains.to_string()),
            ("levels", format!("{levels:?}")),
            ("time_limit", time_limit.to_string()),
        ];
        let setting = |(name, value): (&str, String)| {
            let setting = Setting::new(name, value);
            let shown = match origins.get(name) {
                Some(Origin::Program(text)) => format!("{:?}", cut_value(text)),
                Some(Origin::Variable(text)) => {
                    format!("{:?} ({})", cut_value(text), variable_of(name))
                }
                // The usual levels are none, which have no name.
                None if name == "levels" => "none (the default)".to_owned(),
                None => format!("{} (the default)", setting.shown),
            };
            Setting { shown, ..setting }
        };
        let mut all: Vec<Setting> = values.into_iter().map(setting).collect();
        all.push(Setting::new("version of the library", env!("CARGO_PKG_VERSION")));
        all
    }
}

/// The options in a TOML text.
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

fn bad(text: String) -> Stop {
    Stop::new(Code::Options, text)
}

fn variable_of(name: &str) -> String {
    format!("SKT_{}", name.to_uppercase())
}

/// A value as an environment variable would have it.
fn as_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        // Levels may be in a list.
        toml::Value::Array(all) => all.iter().map(as_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// An option, and the text of its value if it is given.
struct Given {
    name: &'static str,
    value: Option<String>,
}

impl Given {
    fn with<T>(
        self,
        usual: impl FnOnce() -> T,
        parse: impl FnOnce(&str) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let Some(value) = self.value else { return Ok(usual()) };
        parse(&value).map_err(|why| bad(format!("option {}: `{value}`: {why}", self.name)))
    }

    fn whole(self, usual: i64, least: i64, most: i64) -> Result<usize> {
        let parse = |text: &str| {
            let number = text.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("legal: whole numbers from {least} to {most}"))
        };
        self.with(|| usual, parse).map(|number| number as usize)
    }

    fn one_of<T>(self, usual: T, named: impl Fn(&str) -> Option<T>, names: &[&str]) -> Result<T> {
        self.with(
            || usual,
            |text| named(text).ok_or_else(|| format!("legal: {}", names.join(", "))),
        )
    }
}

fn run_id(text: &str) -> std::result::Result<String, String> {
    match SegmentName::new(text, "t0.a0", 0) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("legal: 1 to 64 letters, digits, `.`, `_` and `-`".to_owned()),
    }
}

/// The name of the program, as far as it is legal for a run.
fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_legal = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = name.chars().filter(is_legal).take(64).collect();
    if run_id(&name).is_ok() { name } else { "skt".to_owned() }
}

fn store(text: &str) -> std::result::Result<StoreKind, String> {
    // Huge pages may need a warning on standard error, where this library writes nothing.
    let kind =
        text.parse().ok().filter(|kind| !matches!(kind, StoreKind::SysV { huge_pages: true }));
    kind.ok_or_else(|| "legal: sysv, posix, file:FOLDER".to_owned())
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e12);
    seconds.ok_or_else(|| "legal: a positive number of seconds".to_owned())
}

fn levels(text: &str) -> std::result::Result<Levels, String> {
    let legal = "legal: local:FOLDER or global:FOLDER, each followed by every=TIME or TIME!, \
                 mtbf=TIME, keep=N, when-busy=wait or skip, max-rate=200MB/s, with commas between all";
    text.parse().map_err(|why| format!("{why}. {legal}"))
}

fn time_limit(text: &str) -> std::result::Result<TimeLimit, String> {
    let legal = "legal: auto, never, a time such as 90min, @ and seconds since 1970";
    text.parse().map_err(|_| legal.to_owned())
}

fn flag(text: &str) -> std::result::Result<bool, String> {
    text.parse().map_err(|_| "legal: true, false".to_owned())
}

/// Reads one host and its failure domain per line; what follows a `#` is a comment.
fn read_domains(file: &str) -> std::result::Result<BTreeMap<String, String>, String> {
    let text = fs::read_to_string(Path::new(file)).map_err(|why| why.to_string())?;
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
    use super::*;

    fn read(text: &str) -> Result<Options> {
        Options::read(text, |_| None)
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
        let options = Options::read(text, environment).expect("legal");
        assert_eq!(options.run_id, "b");
        assert_eq!((options.group_size, options.parities), (8, 2));
        assert_eq!(options.codec, CodecKind::ReedSolomon);
        assert_eq!(options.mtbf_seconds, 3600.0);
        assert_eq!(options.resume, Resume::Require, "an empty variable is none");
    }

    #[test]
    fn without_options_a_run_has_the_name_of_its_program() {
        let options = read("").expect("legal");
        assert!(options.run_id.starts_with("skt_checkpoint_c"), "{}", options.run_id);
        assert_eq!((options.group_size, options.parities), (16, 1));
        assert_eq!(options.codec, CodecKind::Xor);
    }

    /// Nothing else would keep the images of two jobs apart.
    #[test]
    fn a_global_level_needs_a_name_of_the_run() {
        let stop = read("levels = 'local:/y,global:/x'").expect_err("no name");
        assert_eq!(stop.code, Code::Options);
        assert!(stop.text.contains("option run_id: a run with a global level"), "{}", stop.text);
        assert!(read("levels = 'global:/x'\nrun_id = 'a'").is_ok());
        let named = |name: &str| (name == "SKT_RUN_ID").then(|| "a".to_owned());
        assert!(Options::read("levels = 'global:/x'", named).is_ok());
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
            ("encoder = \"x\"", "option encoder: `x`: legal: auto, direct, ring, reduce, tree"),
            ("resume = \"maybe\"", "option resume: `maybe`: legal: auto, "),
            ("store = \"tape\"", "option store: `tape`: legal: sysv, posix, file:FOLDER"),
            ("store = \"sysv-huge\"", "option store: `sysv-huge`: legal: sysv,"),
            ("mtbf_seconds = -1", "option mtbf_seconds: `-1`: legal: a positive number"),
            ("timeout_seconds = \"soon\"", "option timeout_seconds: `soon`: legal: a positive"),
            ("domains = \"/nowhere\"", "option domains: `/nowhere`: No such file"),
            ("allow_shared_domains = 1", "option allow_shared_domains: `1`: legal: true, false"),
            ("levels = \"near:/x\"", "option levels: `near:/x`: `near` is neither local nor"),
            ("levels = [\"local:x\"]", "`x` is no absolute path: ranks may start in folders of"),
            ("time_limit = \"soon\"", "option time_limit: `soon`: legal: auto, never, a time"),
            ("run_id", "the options: "),
        ];
        for (text, want) in cases {
            let stop = read(text).expect_err(text);
            assert_eq!((stop.code, stop.is_over), (Code::Options, false));
            assert!(stop.text.contains(want), "{text}: {}", stop.text);
        }
    }

    #[test]
    fn all_options_are_compared_and_shown_with_their_origin() {
        let environment = |name: &str| (name == "SKT_ENCODER").then(|| "ring".to_owned());
        let options = Options::read("mtbf_seconds = 3600.0", environment).expect("legal");
        let settings = options.settings();
        let names: Vec<&str> = settings.iter().map(|setting| &*setting.name).collect();
        assert_eq!(names[..NAMES.len()], NAMES);
        let of = |name: &str| settings.iter().find(|setting| setting.name == name).expect("one");
        assert_eq!(of("encoder").shown, "\"ring\" (SKT_ENCODER)");
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
        let options = read(&format!("domains = {:?}", file.display().to_string())).expect("legal");
        assert_eq!(options.open("b").expect("named").config.domain, "r2");
        let stop = options.open("c").err().expect("not named");
        assert!(stop.text.contains("does not name host c"), "{}", stop.text);
    }
}
