//! The nodes of a run: reading lists of them, and replacing lost ones.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize};

use skt_terms::shown::shown;

/// More ranks than any machine has had: a count beyond it is a slip of the pen.
pub const RANKS_MAX: usize = 1 << 24;
/// Most nodes of a list: Slurm itself allows no more.
const MOST_NODES: usize = 65536;
/// Longest name of a node (RFC 1035).
const MOST_NAME_BYTES: usize = 255;

/// A node and how many ranks go there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, as the launcher and the agent know it.
    #[serde(deserialize_with = "checked_name")]
    pub name: String,
    /// Ranks.
    pub slots: usize,
}

impl Host {
    /// Whether it can take the place of a node of `slots` ranks: one that says
    /// 1 is given as many as are needed.
    pub fn fits(&self, slots: usize) -> bool {
        self.slots >= slots || self.slots == 1
    }
}

/// A node that is not used any more, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfUse {
    /// The node.
    pub host: Host,
    /// What was wrong with it.
    pub why: String,
}

/// What is wrong with a list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// A line that cannot be understood.
    #[error("{file}:{line}: {what}")]
    Line {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// No node in it.
    #[error("{file}: no node in it")]
    Empty {
        /// The file.
        file: String,
    },
    /// Not a Slurm node list.
    #[error("'{list}' is no Slurm node list: {what}")]
    NodeList {
        /// The list.
        list: String,
        /// What is wrong.
        what: String,
    },
}

/// Reads a host file. A line is a name and optionally the number of ranks:
/// `n1 slots=4` (Open MPI), `n1:4` (MPICH), or the name again for each rank
/// (PBS). `#` starts a comment. Open MPI's `max_slots=` is skipped.
///
/// # Errors
/// See [`HostsError`]; more than [`RANKS_MAX`] ranks are one.
pub fn parse(text: &str, file: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut places = HashMap::new();
    let mut ranks = 0;
    for (index, line) in text.lines().enumerate() {
        let bad = |what: String| HostsError::Line { file: file.to_owned(), line: index + 1, what };
        let line = line.split('#').next().unwrap_or("").trim();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let (name, mut slots) = match first.split_once(':') {
            Some((name, count)) => (name, Some(count)),
            None => (first, None),
        };
        for word in words {
            match word.split_once('=') {
                Some(("slots", count)) => slots = Some(count),
                Some(("max_slots" | "max-slots", _)) => {}
                _ => {
                    return Err(bad(format!(
                        "'{}' is not understood; a line is `NAME slots=COUNT`",
                        shown(word)
                    )));
                }
            }
        }
        check_name(name).map_err(bad)?;
        let slots = match slots {
            None => 1,
            Some(count) => match count.parse() {
                Ok(count @ 1..=RANKS_MAX) => count,
                _ => {
                    let count = shown(count);
                    return Err(bad(format!("'{count}' is no number of ranks (1 to {RANKS_MAX})")));
                }
            },
        };
        ranks += slots;
        if ranks > RANKS_MAX {
            return Err(bad(format!("{ranks} ranks up to here, {RANKS_MAX} at most")));
        }
        match places.get(name) {
            Some(&place) => {
                let host: &mut Host = &mut hosts[place];
                host.slots += slots;
            }
            None => {
                places.insert(name, hosts.len());
                hosts.push(Host { name: name.to_owned(), slots });
            }
        }
    }
    if hosts.is_empty() {
        return Err(HostsError::Empty { file: file.to_owned() });
    }
    Ok(hosts)
}

/// The nodes of a host file that several of its lines name, with the ranks that
/// they add up to, as Open MPI counts them. A file that names nodes alone, one
/// line a rank (PBS), means just that and has none.
pub fn repeated(text: &str, hosts: &[Host]) -> Vec<Host> {
    let lines = || text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    let name_of = |line: &str| line.split([':', ' ', '\t']).next().unwrap_or("").to_owned();
    let is_plain = lines().all(|line| name_of(line) == line);
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines() {
        *times.entry(name_of(line)).or_default() += 1;
    }
    let is_meant = is_plain && hosts.iter().all(|host| times[&host.name] > 1);
    let is_repeated = |host: &&Host| !is_meant && times.get(&host.name).is_some_and(|n| *n > 1);
    hosts.iter().filter(is_repeated).cloned().collect()
}

/// Names go into command lines: nothing that a shell or ssh could take for
/// something else.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_short = (1..=MOST_NAME_BYTES).contains(&name.len());
    if is_short && !name.starts_with('-') && name.chars().all(fits) {
        return Ok(());
    }
    Err(format!("'{}' is no host name", shown(name)))
}

/// A name that a file of ours has: whoever wrote it, it goes into command lines.
fn checked_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    check_name(&name).map_err(serde::de::Error::custom)?;
    Ok(name)
}

/// The nodes of a Slurm list, e.g. `n[1-3,07],login`.
///
/// # Errors
/// See [`HostsError::NodeList`].
pub fn expand_slurm(list: &str) -> Result<Vec<String>, HostsError> {
    let bad = |what: &str| HostsError::NodeList { list: shown(list), what: what.to_owned() };
    let mut names = Vec::new();
    let mut depth = 0;
    let parts = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.is_empty()) {
        let mut all = vec![String::new()];
        let mut rest = part;
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, behind) = after.split_once(']').ok_or_else(|| bad("a [ without ]"))?;
            let numbers = expand_ranges(inside).ok_or_else(|| bad("a bad range"))?;
            if all.len() * numbers.len() > MOST_NODES {
                return Err(bad("more than 65536 nodes"));
            }
            // All names are about as long; what is no name is not multiplied.
            let first = format!("{}{before}{}", all[0], numbers[0]);
            check_name(&first).map_err(|what| bad(&what))?;
            let extend = |name: &String| {
                numbers.iter().map(|n| format!("{name}{before}{n}")).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(extend).collect();
            rest = behind;
        }
        if names.len() + all.len() > MOST_NODES {
            return Err(bad("more than 65536 nodes"));
        }
        for name in all {
            let name = name + rest;
            check_name(&name).map_err(|what| bad(&what))?;
            names.push(name);
        }
    }
    Ok(names)
}

/// `1-3,07` as 1, 2, 3, 07; leading zeros are kept.
fn expand_ranges(inside: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for range in inside.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        let is_long =
            from.len() > 20 || last.saturating_sub(first) >= (MOST_NODES - all.len()) as u64;
        if first > last || is_long {
            return None;
        }
        all.extend((first..=last).map(|n| format!("{n:0width$}", width = from.len())));
    }
    Some(all)
}

/// `$SLURM_TASKS_PER_NODE`, e.g. `2(x3),1` as 2, 2, 2, 1.
pub fn expand_tasks(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        let count = count.parse::<usize>().ok().filter(|count| *count <= RANKS_MAX)?;
        if times > MOST_NODES - all.len() {
            return None;
        }
        all.extend(std::iter::repeat_n(count, times));
    }
    Some(all)
}

/// The nodes of a run: those in use, in the order of their ranks, those that
/// wait, and those that are out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// In use.
    pub active: Vec<Host>,
    /// Waiting.
    pub spares: Vec<Host>,
    /// Failed a probe.
    pub out: Vec<OutOfUse>,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Ready.
    Well,
    /// Not to be used, and why.
    Ill(String),
    /// Nobody waited for its answer: a spare that was not needed.
    Unknown,
}

/// A node that took another's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// Which is out.
    pub lost: String,
    /// Why.
    pub why: String,
    /// Which came in.
    pub by: String,
}

/// Too few spares.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no spare node is left for {}", lost.join(", "))]
pub struct SparesSpent {
    /// The nodes that nobody can replace, with the reasons.
    pub lost: Vec<String>,
}

impl Pool {
    /// A pool with all nodes well. A spare that is in use, or listed twice, is
    /// none more.
    pub fn new(active: Vec<Host>, spares: Vec<Host>) -> Self {
        let mut known: BTreeSet<String> = active.iter().map(|host| host.name.clone()).collect();
        let spares = spares.into_iter().filter(|spare| known.insert(spare.name.clone())).collect();
        Self { active, spares, out: Vec::new() }
    }

    /// Ranks that fit on the nodes in use.
    pub fn ranks(&self) -> usize {
        // A state that was tampered with may have any.
        self.active.iter().fold(0, |sum: usize, host| sum.saturating_add(host.slots))
    }

    /// Lets nodes that were out wait again.
    pub fn readmit(&mut self) -> Vec<String> {
        let back: Vec<Host> = self.out.drain(..).map(|out| out.host).collect();
        let names = back.iter().map(|host| host.name.clone()).collect();
        self.spares.extend(back);
        names
    }

    /// Takes out the nodes that are ill. Spares that are well take the places
    /// of those that were in use, *in place*: the ranks of the others stay
    /// where they are. A spare needs as many slots as it replaces; one that
    /// says 1 is given them.
    ///
    /// # Errors
    /// When there are too few spares. The lost nodes then keep their places,
    /// so that the list is whole when they are back.
    pub fn replace(
        &mut self,
        health: impl Fn(&str) -> Health,
    ) -> Result<Vec<Replacement>, SparesSpent> {
        let mut waiting = Vec::new();
        for host in self.spares.drain(..) {
            match health(&host.name) {
                Health::Ill(why) => self.out.push(OutOfUse { host, why }),
                Health::Well | Health::Unknown => waiting.push(host),
            }
        }
        self.spares = waiting;
        let mut done = Vec::new();
        let mut unreplaced = Vec::new();
        for place in &mut self.active {
            let Health::Ill(why) = health(&place.name) else { continue };
            let fits =
                |spare: &Host| spare.fits(place.slots) && health(&spare.name) == Health::Well;
            let Some(index) = self.spares.iter().position(fits) else {
                unreplaced.push(format!("{} ({why})", place.name));
                continue;
            };
            let spare = self.spares.remove(index);
            let slots = place.slots;
            let by = spare.name.clone();
            let lost = std::mem::replace(place, Host { name: spare.name, slots });
            done.push(Replacement { lost: lost.name.clone(), why: why.clone(), by });
            self.out.push(OutOfUse { host: lost, why });
        }
        if unreplaced.is_empty() { Ok(done) } else { Err(SparesSpent { lost: unreplaced }) }
    }

    /// All nodes, those that are out last.
    pub fn everyone(&self) -> impl Iterator<Item = &Host> {
        self.active.iter().chain(&self.spares).chain(self.out.iter().map(|out| &out.host))
    }
}

/// The host file for Open MPI.
pub fn openmpi_file(hosts: &[Host]) -> String {
    let mut text = String::new();
    for host in hosts {
        let _ = writeln!(text, "{} slots={}", host.name, host.slots);
    }
    text
}

/// The host file for MPICH.
pub fn hydra_file(hosts: &[Host]) -> String {
    let mut text = String::new();
    for host in hosts {
        let _ = writeln!(text, "{}:{}", host.name, host.slots);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: usize) -> Host {
        Host { name: name.to_owned(), slots }
    }

    fn names(hosts: &[Host]) -> Vec<&str> {
        hosts.iter().map(|host| host.name.as_str()).collect()
    }

    #[test]
    fn host_files_of_all_launchers_are_understood() {
        let text = "# nodes\nn1 slots=4 max_slots=8\nn2:2 # two\n\nn3\nn4\nn4\n";
        let hosts = parse(text, "h").unwrap();
        assert_eq!(hosts, [host("n1", 4), host("n2", 2), host("n3", 1), host("n4", 2)]);
        assert_eq!(parse(&openmpi_file(&hosts), "h").unwrap(), hosts);
        assert_eq!(parse(&hydra_file(&hosts), "h").unwrap(), hosts);
    }

    #[test]
    fn a_spare_counts_once() {
        let spares = ["s1", "n1", "s1"].map(|name| host(name, 1)).to_vec();
        assert_eq!(names(&Pool::new(vec![host("n1", 1)], spares).spares), ["s1"]);
    }

    #[test]
    fn nodes_that_several_lines_name_are_told() {
        let told = |text: &str| repeated(text, &parse(text, "h").unwrap());
        assert_eq!(told("n1\nn2\nn1 # again\n"), [host("n1", 2)]);
        assert_eq!(told("n1 slots=2\nn1 slots=2\nn2:2\n"), [host("n1", 4)]);
        assert_eq!(told("n1\nn2\n\nn3 slots=4\n"), []);
        assert_eq!(told("# PBS\nn1\nn1\nn2\nn2\n"), [], "a line a rank");
    }

    #[test]
    fn bad_host_files_are_refused_with_their_line() {
        for (text, said) in [
            ("", "h: no node in it"),
            ("n1\nn2 slots=0", "h:2: '0' is no number of ranks (1 to 16777216)"),
            ("n1 cpus=4", "h:1: 'cpus=4' is not understood; a line is `NAME slots=COUNT`"),
            ("-oProxyCommand=x", "h:1: '-oProxyCommand=x' is no host name"),
            ("n1;reboot", "h:1: 'n1;reboot' is no host name"),
            ("n1:x", "h:1: 'x' is no number of ranks (1 to 16777216)"),
            ("n1 slots=99999999999", "h:1: '99999999999' is no number of ranks (1 to 16777216)"),
            ("n1:16777216\nn2:16777216\n", "h:2: 33554432 ranks up to here, 16777216 at most"),
            (
                "n1 slots=18446744073709551615\nn1",
                "h:1: '18446744073709551615' is no number of ranks (1 to 16777216)",
            ),
        ] {
            assert_eq!(parse(text, "h").unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn numbers_and_lists_without_bound_are_refused() {
        let ranks = "n1 slots=16777216\nn1\n";
        let said = "h:2: 16777217 ranks up to here, 16777216 at most";
        assert_eq!(parse(ranks, "h").unwrap_err().to_string(), said);
        let most = format!("n1 slots={}", usize::MAX);
        assert!(parse(&most, "h").unwrap_err().to_string().contains("is no number of ranks"));
        assert_eq!(expand_slurm("n[1-65536]").unwrap().len(), 65536);
        let zeros = "0".repeat(70_000);
        let long = "x".repeat(70_000);
        for list in [
            "n[1-65537]",
            "n[1-65536],m",
            "n[1-65536][1-65536]",
            "n[1-40000,1-40000]",
            &format!("n[{zeros}1-2]"),
            &format!("{long}[1-65536]"),
            &format!("n[1-65536]{long}"),
            &format!("n[1-65536]{}", "[1]".repeat(20_000)),
        ] {
            let error = expand_slurm(list).unwrap_err().to_string();
            assert!(error.len() < 300, "{error}");
        }
        assert_eq!(expand_tasks("1(x65537)"), None);
        assert_eq!(expand_tasks("1(x65536),1"), None);
        assert_eq!(expand_tasks("18446744073709551615"), None);
        assert_eq!(expand_tasks("128(x65536)").unwrap().len(), 65536);
    }

    #[test]
    fn what_is_wrong_is_shown_and_not_obeyed_by_a_terminal() {
        for text in ["n1 \x1b[31m", "\x1b[31m", "n1:\x1b[31m"] {
            let error = parse(text, "h").unwrap_err().to_string();
            assert!(error.contains("\\u{1b}[31m"), "{error}");
        }
        assert!(parse(&"n".repeat(256), "h").unwrap_err().to_string().len() < 100);
    }

    #[test]
    fn slurm_lists_are_expanded() {
        let all = |list: &str| expand_slurm(list).unwrap().join(" ");
        assert_eq!(all("n[1-3,07],login"), "n1 n2 n3 n07 login");
        assert_eq!(all("c[008-010]"), "c008 c009 c010");
        assert_eq!(all("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        for bad in ["n[1-3", "n[3-1]", "n[a]", "n[1-999999999]", "n;"] {
            assert!(expand_slurm(bad).is_err(), "{bad}");
        }
        assert_eq!(expand_tasks("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(expand_tasks("x"), None);
    }

    #[test]
    fn spares_take_the_very_places_of_the_lost() {
        let mut pool = Pool::new(
            vec![host("n1", 2), host("n2", 2), host("n3", 2)],
            vec![host("n3", 2), host("s1", 1), host("s2", 2), host("s3", 2)],
        );
        assert_eq!(names(&pool.spares), ["s1", "s2", "s3"], "a node in use is no spare");
        let dead = |list: &'static [&str]| {
            move |name: &str| match list.contains(&name) {
                true => Health::Ill("silent".to_owned()),
                false => Health::Well,
            }
        };
        let done = pool.replace(dead(&["n2", "s2"])).unwrap();
        assert_eq!(names(&pool.active), ["n1", "s1", "n3"]);
        assert_eq!(pool.active[1].slots, 2);
        assert_eq!((done[0].lost.as_str(), done[0].by.as_str()), ("n2", "s1"));
        // Well again, but out.
        assert_eq!(pool.replace(dead(&[])).unwrap(), []);
        assert_eq!(names(&pool.active), ["n1", "s1", "n3"]);
        pool.replace(dead(&["n1"])).unwrap();
        let spent = pool.replace(dead(&["n3"])).unwrap_err();
        assert_eq!(spent.to_string(), "no spare node is left for n3 (silent)");
        assert_eq!(names(&pool.active), ["s3", "s1", "n3"]);
        assert_eq!(pool.ranks(), 6);
        assert_eq!(pool.readmit(), ["s2", "n2", "n1"]);
        pool.replace(dead(&["n3"])).unwrap();
        assert_eq!(names(&pool.active), ["s3", "s1", "s2"]);
    }

    #[test]
    fn a_spare_that_is_too_small_stays_a_spare() {
        let mut pool = Pool::new(vec![host("n1", 4)], vec![host("s1", 2)]);
        let off = |name: &str| match name {
            "n1" => Health::Ill("off".to_owned()),
            _ => Health::Well,
        };
        let spent = pool.replace(off).unwrap_err();
        assert_eq!(spent.lost, ["n1 (off)"]);
        assert_eq!(names(&pool.spares), ["s1"]);
    }

    #[test]
    fn a_spare_that_nobody_waited_for_stays_but_is_not_used() {
        let mut pool = Pool::new(vec![host("n1", 1)], vec![host("s1", 1), host("s2", 1)]);
        let health = |name: &str| match name {
            "n1" => Health::Ill("off".to_owned()),
            "s1" => Health::Unknown,
            _ => Health::Well,
        };
        assert_eq!(pool.replace(health).unwrap()[0].by, "s2");
        assert_eq!((names(&pool.active), names(&pool.spares)), (vec!["s2"], vec!["s1"]));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn any_text_is_a_list_or_an_error(text in "\\PC{0,40}|[n0-9\\[\\],-]{0,20}") {
            let _ = parse(&text, "h").map_err(|error| error.to_string());
            let _ = expand_slurm(&text).map_err(|error| error.to_string());
            let _ = expand_tasks(&text);
        }
    }
}
