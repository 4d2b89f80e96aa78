//! Host files: reads those of users and batch systems, to which spares may be added while the run
//! is on, and writes those for launchers.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::{Host, HostsError, check_name, rank_count};
use skt_config::launch::RANKS_MAX;
use skt_host::infile::{self, LIST_BYTES_MAX};
use skt_terms::shown::shown;

/// A host file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFile {
    pub hosts: Vec<Host>,
    /// What in the file has no effect here.
    pub warnings: Vec<String>,
}

impl HostFile {
    /// Reads a host file, see [`parse`]; no node in it is an error, too.
    pub fn read(path: &Path) -> Result<Self, HostsError> {
        let found = Self::read_spares(path)?;
        if found.hosts.is_empty() {
            return Err(HostsError(format!("{}: no node in it", path.display())));
        }
        Ok(found)
    }

    /// Reads a host file that may list no node yet.
    pub fn read_spares(path: &Path) -> Result<Self, HostsError> {
        let file = path.display().to_string();
        // Comments may have any bytes; names are checked.
        let text = infile::read(path, LIST_BYTES_MAX);
        let text = text.map_err(|why| HostsError(format!("{file}: {why}")))?;
        parse(&String::from_utf8_lossy(&text), &file)
    }
}

/// What a word `KEY=VALUE` of a line means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Ranks,
    /// The number of ranks where no other is given, as in Open MPI.
    MostRanks,
    /// How a node is reached and by which user, and what its ranks use there: `launch` leaves that
    /// to the configuration of the launchers.
    Ignored,
}

/// The keys, with `_` for `-`.
const KEYS: [(Meaning, &str); 3] = [
    (Meaning::Ranks, "slots cpu count"),
    (Meaning::MostRanks, "max_slots max_cpu max_count slots_max cpu_max count_max"),
    (
        Meaning::Ignored,
        "user username user_name port boards sockets cores cpu_set binding bindmap map ifname iface",
    ),
];

/// Reads a host file. A line is a name and optionally the number of ranks: `n1 slots=4` or `n1
/// cpu = 4` (Open MPI), `n1:4` (MPICH), `n1 4 all.q@n1 UNDEFINED` (Grid Engine), or the name
/// repeated for each rank (PBS, LSF). `#` and `//` start comments. More than [`RANKS_MAX`] ranks
/// are an error, too.
pub fn parse(text: &str, file: &str) -> Result<HostFile, HostsError> {
    let mut found = HostFile { hosts: Vec::new(), warnings: Vec::new() };
    let (mut places, mut all) = (HashMap::new(), 0);
    // Programs of Windows mark text as UTF-8 so.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let bad = |what: String| HostsError(format!("{file}:{number}: {what}"));
        let joined = joined(line);
        let Some(line) = read_line(&joined).map_err(bad)? else { continue };
        check_name(line.name).map_err(bad)?;
        let slots = line.ranks.or(line.most_ranks).map_or(Ok(1), rank_count).map_err(bad)?;
        all += slots;
        if all > RANKS_MAX {
            return Err(bad(format!("{all} ranks up to here, {RANKS_MAX} at most")));
        }
        if let (Some(word), true) = (line.ignored, found.warnings.is_empty()) {
            found.warnings.push(format!(
                "{file}:{number}: '{}' is ignored, and so are such words below: users, ports and \
                 the places of ranks are for the configuration of ssh (~/.ssh/config) and of the \
                 launcher",
                shown(word)
            ));
        }
        let place = *places.entry(line.name.to_owned()).or_insert(found.hosts.len());
        match found.hosts.get_mut(place) {
            Some(host) => host.slots += slots,
            None => found.hosts.push(Host { name: line.name.to_owned(), slots }),
        }
    }
    Ok(found)
}

/// The line without its comment and without blanks around `=`.
fn joined(line: &str) -> String {
    let line = line.split('#').next().unwrap_or("").split("//").next().unwrap_or("");
    line.split('=').map(str::trim).collect::<Vec<_>>().join("=")
}

/// What a line has.
#[derive(Default)]
struct Line<'a> {
    name: &'a str,
    ranks: Option<&'a str>,
    most_ranks: Option<&'a str>,
    /// The first word that has no effect here.
    ignored: Option<&'a str>,
}

fn read_line(line: &str) -> Result<Option<Line<'_>>, String> {
    let mut words = line.split_whitespace().peekable();
    let Some(first) = words.next() else { return Ok(None) };
    let user = first.find('@').filter(|at| *at > 0).map(|at| &first[..=at]);
    let (name, ranks) = name_and_count(&first[user.map_or(0, str::len)..]);
    let mut found = Line { name, ranks, ignored: user, ..Line::default() };
    while let Some(word) = words.next() {
        let (key, value) = word.split_once('=').unwrap_or(("", word));
        let has_key = |keys: &str| keys.split(' ').any(|known| known == key.replace('-', "_"));
        let meaning = KEYS.iter().find(|(_, keys)| has_key(keys)).map(|(meaning, _)| *meaning);
        let is_number = key.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        match meaning {
            Some(Meaning::Ranks) if found.ranks.is_some() => {
                return Err(format!("'{}' is a second number of ranks", shown(word)));
            }
            Some(Meaning::Ranks) => found.ranks = Some(value),
            Some(Meaning::MostRanks) => found.most_ranks = Some(value),
            Some(Meaning::Ignored) => drop(found.ignored.get_or_insert(word)),
            None if is_number && found.ranks.is_none() => {
                found.ranks = Some(word);
                // Grid Engine: then come the queue and the processors there.
                if words.peek().is_some_and(|queue| queue.contains('@')) {
                    break;
                }
            }
            None => {
                let word = shown(word);
                return Err(format!("'{word}' is not understood; a line is `NAME slots=COUNT`"));
            }
        }
    }
    Ok(Some(found))
}

/// The name and the number of ranks in `n1:4`, `[fe80::1]:4`, or either without a number.
fn name_and_count(word: &str) -> (&str, Option<&str>) {
    let is_address = |name: &str| name.parse::<Ipv6Addr>().is_ok();
    if let Some((name, rest)) = word.strip_prefix('[').and_then(|word| word.split_once(']'))
        && is_address(name)
        && (rest.is_empty() || rest.starts_with(':'))
    {
        return (name, rest.strip_prefix(':'));
    }
    match word.split_once(':') {
        Some((name, count)) if !is_address(word) => (name, Some(count)),
        _ => (word, None),
    }
}

pub fn openmpi_file(hosts: &[Host]) -> String {
    hosts.iter().map(|host| format!("{} slots={}\n", host.name, host.slots)).collect()
}

pub fn hydra_file(hosts: &[Host]) -> String {
    hosts.iter().map(|host| format!("{}:{}\n", host.name, host.slots)).collect()
}

/// The shortest time between two checks of the file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The file that `--spares` names, if it names one.
#[derive(Debug)]
pub(crate) struct SparesFile {
    path: Option<PathBuf>,
    polled: Instant,
    /// What the file looked like when it was last read: the time of its last change, and its bytes.
    read: Option<(SystemTime, u64)>,
}

impl SparesFile {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, polled: Instant::now(), read: None }
    }

    /// The nodes that the file lists, if it has changed since the last call, or why it cannot be
    /// read as it is now. A file that is gone lists what it did.
    pub(crate) fn poll(&mut self) -> Option<Result<Vec<Host>, HostsError>> {
        let path = self.path.as_ref()?;
        if self.polled.elapsed() < POLL_INTERVAL {
            return None;
        }
        self.polled = Instant::now();
        let look = |file: Metadata| Some((file.modified().ok()?, file.len()));
        let found = fs::metadata(path).ok().and_then(look)?;
        if self.read.replace(found) == Some(found) {
            return None;
        }
        Some(HostFile::read_spares(path).map(|file| file.hosts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn host(name: &str, slots: usize) -> Host {
        Host { name: name.to_owned(), slots }
    }

    fn hosts_of(text: &str) -> Vec<Host> {
        parse(text, "h").unwrap().hosts
    }

    #[test]
    fn host_files_of_all_launchers_are_understood() {
        let text = "# nodes\nn1 slots=4 max_slots=8\nn2:2 # two\n\nn3\nn4\nn4\n";
        let hosts = hosts_of(text);
        assert_eq!(hosts, [host("n1", 4), host("n2", 2), host("n3", 1), host("n4", 2)]);
        assert_eq!(hosts_of(&openmpi_file(&hosts)), hosts);
        assert_eq!(hosts_of(&hydra_file(&hosts)), hosts);
    }

    /// Open MPI 4.1.4 takes each of these, with this number of ranks.
    #[test]
    fn lines_of_open_mpi_are_understood() {
        for (line, slots) in [
            ("n1 slots = 2", 2),
            ("n1 slots= 2 max_slots =4", 2),
            ("n1\tcpu=2", 2),
            ("n1 count=2 // two", 2),
            ("n1 max-slots=3", 3),
            ("n1 cpu_max=3", 3),
            ("// nodes\nn1", 1),
            ("  n1  ", 1),
        ] {
            let found = parse(line, "h").unwrap();
            assert_eq!(found, HostFile { hosts: vec![host("n1", slots)], warnings: vec![] });
        }
    }

    #[test]
    fn a_file_may_have_other_bytes_around_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        fs::write(&path, b"\xef\xbb\xbfn1 slots=2 # \xe9t\xe9\r\n").unwrap();
        assert_eq!(HostFile::read(&path).unwrap().hosts, [host("n1", 2)]);
        fs::write(&path, b"n\xe9 slots=2\n").unwrap();
        assert!(HostFile::read(&path).unwrap_err().0.contains("is no host name"));
    }

    #[test]
    fn lines_of_grid_engine_are_understood() {
        let text = "n1 16 all.q@n1 UNDEFINED\nn2 8 all.q@n2 <NULL>\nn1 4 short.q@n1 0,0:0,1\n";
        assert_eq!(hosts_of(text), [host("n1", 20), host("n2", 8)]);
        assert_eq!(hosts_of("n1 2\n"), [host("n1", 2)]);
    }

    #[test]
    fn ignored_words_are_reported_once() {
        let text = "n0\nbob@n1 slots = 2\nn2 slots=2 username = bob\nn3 port=3\n";
        let HostFile { hosts, warnings } = parse(text, "h").unwrap();
        assert_eq!(hosts, [host("n0", 1), host("n1", 2), host("n2", 2), host("n3", 1)]);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let want = "h:2: 'bob@' is ignored, and so are such words below: users, ports";
        assert!(warning.starts_with(want), "{warning}");
    }

    #[test]
    fn ipv6_addresses_are_host_names() {
        let text = "fe80::1 slots=4\n[fe80::2]:2\n[fe80::3]\n::1\nfe80::1:2\n10.0.0.1:3\n";
        let hosts = hosts_of(text);
        let expected = [("fe80::1", 4), ("fe80::2", 2), ("fe80::3", 1), ("::1", 1)];
        let expected = expected.into_iter().chain([("fe80::1:2", 1), ("10.0.0.1", 3)]);
        assert_eq!(hosts, expected.map(|(name, slots)| host(name, slots)).collect::<Vec<_>>());
        assert_eq!(hosts_of(&openmpi_file(&hosts)), hosts);
        assert_eq!(hosts_of("[fe80::2]:2\nfe80::2 slots=1\n"), [host("fe80::2", 3)]);
    }

    #[test]
    fn bad_host_files_are_refused_with_their_line() {
        for (text, message) in [
            ("n1\nn2 slots=0", "h:2: '0' is no number of ranks (1 to 16777216)"),
            ("n1 cpus=4", "h:1: 'cpus=4' is not understood; a line is `NAME slots=COUNT`"),
            ("-oProxyCommand=x", "h:1: '-oProxyCommand=x' is no host name"),
            ("n1;reboot", "h:1: 'n1;reboot' is no host name"),
            ("^n1", "h:1: '^n1' is no host name"),
            ("+n0", "h:1: '+n0' is no host name"),
            ("@n1", "h:1: '@n1' is no host name"),
            ("bob@-oProxyCommand=x", "h:1: '-oProxyCommand=x' is no host name"),
            ("/*", "h:1: '/*' is no host name"),
            ("n1 2 4", "h:1: '4' is not understood; a line is `NAME slots=COUNT`"),
            ("n1 2 slots=2", "h:1: 'slots=2' is a second number of ranks"),
            ("n1 slots", "h:1: 'slots' is not understood; a line is `NAME slots=COUNT`"),
            ("n1 slots =", "h:1: '' is no number of ranks (1 to 16777216)"),
            ("rank 0=n1 slot=0-3", "h:1: '0=n1' is not understood; a line is `NAME slots=COUNT`"),
            ("n[1-4],m slots=2", "h:1: 'n[1-4],m' is no host name"),
            ("[n1]:2", "h:1: '[n1]' is no host name"),
            ("[::1]x", "h:1: '[' is no host name"),
            ("n1:x", "h:1: 'x' is no number of ranks (1 to 16777216)"),
            ("n1:4 slots=8", "h:1: 'slots=8' is a second number of ranks"),
            ("n1 slots=4 slots=8", "h:1: 'slots=8' is a second number of ranks"),
            ("n1:4:8", "h:1: '4:8' is no number of ranks (1 to 16777216)"),
            ("n1 slots=99999999999", "h:1: '99999999999' is no number of ranks (1 to 16777216)"),
            ("n1:16777216\nn2:16777216\n", "h:2: 33554432 ranks up to here, 16777216 at most"),
            (
                "n1 slots=18446744073709551615\nn1",
                "h:1: '18446744073709551615' is no number of ranks (1 to 16777216)",
            ),
        ] {
            assert_eq!(parse(text, "h").unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn control_characters_of_errors_are_escaped() {
        for text in ["n1 \x1b[31m", "\x1b[31m", "n1:\x1b[31m"] {
            let error = parse(text, "h").unwrap_err().to_string();
            assert!(error.contains("\\u{1b}[31m"), "{error}");
        }
        assert!(parse(&"n".repeat(256), "h").unwrap_err().to_string().len() < 100);
    }

    #[test]
    fn ranks_without_bound_are_refused() {
        let ranks = "n1 slots=16777216\nn1\n";
        let message = "h:2: 16777217 ranks up to here, 16777216 at most";
        assert_eq!(parse(ranks, "h").unwrap_err().to_string(), message);
        let most = format!("n1 slots={}", usize::MAX);
        assert!(parse(&most, "h").unwrap_err().to_string().contains("is no number of ranks"));
    }

    #[test]
    fn a_file_is_read_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spares");
        let mut file = SparesFile::new(Some(path.clone()));
        let mut poll = || {
            file.polled -= POLL_INTERVAL;
            let hosts = file.poll()?.map_err(|why| why.to_string());
            Some(hosts.map(|hosts| hosts.into_iter().map(|host| host.name).collect::<Vec<_>>()))
        };
        assert_eq!(poll(), None, "no file");
        fs::write(&path, "").unwrap();
        assert_eq!(poll(), Some(Ok(vec![])));
        assert_eq!(poll(), None, "the same");
        fs::write(&path, "n1\nn2 slots=").unwrap();
        assert!(poll().unwrap().unwrap_err().contains(":2: '' is no number of ranks"));
        fs::write(&path, "n1\nn2 slots=2\n").unwrap();
        assert_eq!(poll(), Some(Ok(vec!["n1".to_owned(), "n2".to_owned()])));
        fs::remove_file(&path).unwrap();
        assert_eq!(poll(), None);
    }
}
