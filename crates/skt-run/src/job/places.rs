//! Which ranks run on which hosts, and what each host has.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Index, Range};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::JobOptions;
use crate::error::JobError;
use crate::heartbeat::{self, UnfitHost};
use crate::protect::{Chosen, RunBlas};
use skt_comm::{Comm, CommError, collect};
use skt_health::environment::HostRanks;
use skt_health::environment::library::{CalledBlas, ChosenBlas, VARIABLE};
use skt_health::environment::preflight::HostShare;
use skt_host::core_use::JobPart;
use skt_host::{affinity, core_use, memory, waits};
use skt_solver::blas::library::BUILT_IN;
use skt_store::codec::checksum;
use skt_store::store::StoreId;

/// The most hosts that a heartbeat names, as its line must not grow without bound.
const UNFIT_MAX: usize = 64;

/// The communicators of a rank's host.
pub(crate) struct HostComms {
    /// The ranks of the host.
    pub here: Comm,
    /// The first ranks of all hosts, on each of them.
    firsts: Option<Comm>,
    /// Whether this rank is the first of those here that see its store, and looks into it for them.
    pub is_keeper: bool,
}

impl HostComms {
    /// The communicators of the ranks of `world`, of which this one sees the store `store`, if the
    /// job is protected. Collective.
    pub(crate) fn new(world: &Comm, store: Option<&StoreId>) -> Result<Self, CommError> {
        // Hosts whose names have the same sum share a communicator, and its first rank sends the
        // data of both.
        let here =
            world.split(Some(color(&world.host())), world.rank() as u32)?.expect("it has a color");
        let is_first = here.rank() == 0;
        let firsts = world.split(is_first.then_some(0), world.rank() as u32)?;
        let sees = store.map_or(0, |id| checksum(id.memory.as_bytes()));
        let all = collect::all_gather(&here, &sees)?;
        let is_keeper = all.iter().position(|other| *other == sees) == Some(here.rank());
        Ok(Self { here, firsts, is_keeper })
    }

    /// Gives all ranks what rank 0 has in `bytes`, once to each host.
    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<(), CommError> {
        self.firsts.iter().try_for_each(|firsts| collect::broadcast_bytes(firsts, bytes, 0))?;
        collect::broadcast_bytes(&self.here, bytes, 0)
    }
}

/// A number that separates the ranks of this host from most other hosts.
fn color(host: &str) -> u32 {
    checksum(host.as_bytes()) as u32 >> 1
}

/// What a rank computes with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Software {
    /// The BLAS that `--blas` names for the rank.
    pub blas: ChosenBlas,
    /// The BLAS that the rank calls.
    pub called: CalledBlas,
}

/// Ranks of a host that are alike, and what they have there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    pub host: String,
    /// The sum of the name of the machine that the host shares with other hosts, if it is a
    /// container: they have the same cores.
    pub machine: u64,
    /// The sum of the name of the memory of the store that outlives the ranks; 0 without one.
    pub memory: u64,
    /// The sum of the name of the kernel through which the ranks see that memory.
    kernel: u64,
    /// Bytes of memory that are free on the host.
    available_bytes: Option<u64>,
    /// Bytes of memory that the control groups of the first of the ranks leave.
    limit_bytes: Option<u64>,
    #[serde(skip)]
    pub software: Arc<Software>,
}

/// A row of the table of places.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    place: Place,
    /// What its ranks compute with, where rank 0 has something else.
    software: Option<String>,
    ranks: Vec<u32>,
}

/// The process of a rank on this machine, and the CPUs that it may use.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankCores {
    rank: usize,
    pub process: u32,
    cpus: Vec<Range<usize>>,
}

impl RankCores {
    /// The cores of the ranks of `machine`, in order; this one has the number `rank` in the job.
    /// Collective.
    pub(crate) fn gather(machine: &Comm, rank: usize) -> Result<Vec<Self>, CommError> {
        let mask = affinity::current_mask().unwrap_or_default();
        let cpus = mask.chunk_by(|a, b| a + 1 == *b).map(|cpus| cpus[0]..cpus[0] + cpus.len());
        let own = Self { rank, process: std::process::id(), cpus: cpus.collect() };
        collect::all_gather_json(machine, &own)
    }

    /// The CPUs that the rank may use.
    pub(crate) fn mask(&self) -> Vec<usize> {
        self.cpus.iter().cloned().flatten().collect()
    }
}

/// The places of all ranks.
#[derive(Debug)]
pub(crate) struct Places {
    kinds: Vec<Place>,
    /// The number of each rank's place among `kinds`.
    of_ranks: Vec<u32>,
}

impl Index<usize> for Places {
    type Output = Place;

    fn index(&self, rank: usize) -> &Place {
        &self.kinds[self.of_ranks[rank] as usize]
    }
}

impl Places {
    /// The places of all ranks, in order. `store` is this rank's store of segments, if the job is
    /// protected; `held_bytes` is what earlier starts of the run hold on this host, and counts as
    /// free.
    ///
    /// The first rank of each host sends what its ranks are: a host receives about 200 bytes for
    /// each host and 7 for each rank, once. What ranks compute with is sent only where rank 0 has
    /// something else. Collective.
    pub(crate) fn gather(
        world: &Comm,
        comms: &HostComms,
        store: Option<&StoreId>,
        held_bytes: u64,
        options: &JobOptions,
    ) -> Result<Self, CommError> {
        let (host, memory) = (world.host(), memory::this_process());
        let sum = |name: Option<&str>| name.map_or(0, |name| checksum(name.as_bytes()));
        let own = serde_json::to_string(&Software {
            blas: options.blas.clone(),
            called: CalledBlas::here(&options.blas),
        });
        let own = own.expect("plain data");
        let mut first = own.clone().into_bytes();
        comms.broadcast(&mut first)?;
        let mine = Row {
            place: Place {
                machine: sum(Some(&core_use::machine(&host))),
                memory: sum(store.map(|id| &*id.memory)),
                kernel: sum(store.map(|id| &*id.kernel)),
                available_bytes: memory.available_bytes.map(|bytes| bytes + held_bytes),
                limit_bytes: memory.cgroup.map(|group| group.left_bytes() + held_bytes),
                host,
                software: Arc::default(),
            },
            software: Some(own).filter(|own| own.as_bytes() != first),
            ranks: vec![world.rank() as u32],
        };
        let mut rows = join(collect::gather_json(&comms.here, &mine, 0)?.unwrap_or_default());
        if let Some(firsts) = &comms.firsts {
            rows = collect::all_gather_json(firsts, &rows)?.concat();
        }
        let rows = collect::broadcast_json(&comms.here, &rows, 0)?;
        let places = Self::from_rows(rows, &first, world.size());
        waits::name_hosts(places.hosts_of(world.size()));
        Ok(places)
    }

    /// The places of `ranks` ranks. Those like rank 0 compute with `first`.
    fn from_rows(rows: Vec<Row>, first: &[u8], ranks: usize) -> Self {
        let software = |json: &[u8]| Arc::new(serde_json::from_slice(json).expect("a rank's"));
        let (first, mut kinds, mut of_ranks) = (software(first), Vec::new(), vec![0; ranks]);
        for row in rows {
            row.ranks.iter().for_each(|rank| of_ranks[*rank as usize] = kinds.len() as u32);
            let differing = row.software.map(|json| software(json.as_bytes()));
            let software = differing.unwrap_or_else(|| Arc::clone(&first));
            kinds.push(Place { software, ..row.place });
        }
        Self { kinds, of_ranks }
    }

    /// The ranks of this rank's machine, where they are not those of its host: containers on one
    /// kernel are several hosts on one machine. Collective.
    pub(crate) fn split_machine(&self, world: &Comm) -> Result<Option<Comm>, CommError> {
        let count = |of: &dyn Fn(&Place) -> (&str, u64)| {
            self.kinds.iter().map(of).collect::<BTreeSet<_>>().len()
        };
        let pairs = count(&|kind| (&kind.host, kind.machine));
        let machines = count(&|kind| ("", kind.machine));
        let colors = count(&|kind| ("", color(&kind.host).into()));
        if [machines, colors] == [pairs; 2] {
            return Ok(None);
        }
        let (on_machine, _) = alike(self, world.rank(), |place| place.machine);
        world.split(Some(on_machine[0] as u32), world.rank() as u32)
    }

    /// The place of each rank, in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Place> + Clone {
        self.of_ranks.iter().map(|kind| &self.kinds[*kind as usize])
    }

    /// The hosts of the first `ranks` ranks, or of those that there are.
    pub(crate) fn hosts_of(&self, ranks: usize) -> impl ExactSizeIterator<Item = &str> {
        self.iter().take(ranks).map(|place| &*place.host)
    }

    /// The processes of the ranks of `host`, which are among those of `machine`, and the CPUs that
    /// they may use.
    pub(crate) fn job_part(&self, machine: &[RankCores], host: &str) -> JobPart {
        let here = || machine.iter().filter(|cores| self[cores.rank].host == host);
        let processes = here().map(|cores| cores.process).collect();
        let cpus: BTreeSet<usize> = here().flat_map(RankCores::mask).collect();
        JobPart { processes, cpus: cpus.into_iter().collect() }
    }
}

/// The rows of a host, from those of its ranks: ranks that differ only in bytes share the row of the
/// first.
fn join(ranks: Vec<Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for rank in ranks {
        let key = |row: &Row| {
            let Place { host, machine, memory, kernel, .. } = row.place.clone();
            (host, machine, memory, kernel, row.software.clone())
        };
        match rows.iter_mut().find(|row| key(row) == key(&rank)) {
            Some(row) => row.ranks.extend(rank.ranks),
            None => rows.push(rank),
        }
    }
    rows
}

impl Software {
    /// Whether the rank has the library of an earlier start, which is not the built-in one.
    fn has_kept(&self, kept: Option<&RunBlas>) -> bool {
        kept.is_some_and(|kept| {
            !kept.called.files.is_empty() && self.called.files == kept.called.files
        })
    }
}

/// The ranks that have the same `key` as `rank`, in order, and the index of `rank` among them. By
/// [`Place::machine`], containers on one kernel are several hosts with the same cores.
pub(crate) fn alike<'p, K: PartialEq>(
    places: &'p Places,
    rank: usize,
    key: impl Fn(&'p Place) -> K,
) -> (Vec<usize>, usize) {
    let own = key(&places[rank]);
    let here: Vec<usize> =
        (0..places.iter().len()).filter(|&other| key(&places[other]) == own).collect();
    let index = here.iter().position(|&other| other == rank).expect("it is like itself");
    (here, index)
}

/// What the job has chosen: the library of rank 0, as that of all ranks has its files, and the
/// measured `rates`.
pub(crate) fn chosen(places: &Places, rates: &[u32]) -> Chosen {
    let Software { blas, called, .. } = &*places[0].software;
    let is_asked_for = blas.named.is_some() && blas.choice.is_none();
    let named = blas.library().map(str::to_owned);
    let blas = RunBlas { named, is_asked_for, called: called.clone() };
    Chosen { blas, rates: rates.to_vec() }
}

/// Refuses the job if its ranks must not compute with their libraries: `named` is the BLAS of the
/// run, as rank 0 has read it, and `kept` that of an earlier start. The supervisor learns which
/// hosts the job can do without.
pub(crate) fn check_blas(
    places: &Places,
    named: Option<&str>,
    kept: Option<&RunBlas>,
) -> Result<(), JobError> {
    let Some(why) = refused_blas(places, named, kept) else { return Ok(()) };
    let unfit = without_blas(places, kept);
    if !unfit.is_empty() {
        heartbeat::decline_hosts(&unfit);
    }
    Err(JobError::refused(why))
}

/// Why the ranks must not compute with their libraries, if that is so.
fn refused_blas(places: &Places, named: Option<&str>, kept: Option<&RunBlas>) -> Option<String> {
    let has_kept = |place: &&Place| place.software.has_kept(kept);
    let has_library = |place: &&Place| !place.software.called.is_built_in;
    let first = places.iter().find(has_kept).or(places.iter().find(has_library));
    let first = first.or(places.iter().next())?;
    let of = |(rank, place): (usize, &Place)| {
        let (blas, called) = (&place.software.blas, &place.software.called);
        let at = format!("rank {rank} on {}", place.host);
        if let Some(why) = &blas.failure {
            let (failed, other) = match blas.named.as_deref() {
                Some(BUILT_IN) => (format!("--blas {BUILT_IN}: {why}"), ""),
                Some(named) => (format!("--blas {named}: {why}"), ", or --blas built-in"),
                None => (format!("the BLAS {why}"), ", or --blas built-in"),
            };
            return Some(format!("{at}: {failed}. Name another library{other}"));
        }
        let shown = named.or(blas.named.as_deref()).unwrap_or_default();
        if blas.named.as_deref() != named {
            return Some(format!(
                "{at} does not name the BLAS of rank 0, as one of them could not read the \
                 configuration or lacks {VARIABLE}: give --blas {shown} as a flag"
            ));
        }
        let chosen = &first.software.called;
        if called.is_built_in != chosen.is_built_in {
            return Some(format!(
                "{at} finds no BLAS but the built-in one, and {} has {}: install the same on all \
                 hosts, or add --blas {BUILT_IN}",
                first.host,
                chosen.shown()
            ));
        }
        let (ours, theirs) = (&first.software.blas.files, &blas.files);
        let other = ours.first_not_in(theirs).or_else(|| theirs.first_not_in(ours))?;
        Some(format!(
            "{at}: --blas {shown} is another library there than on {}: they differ in {other}. \
             Install the same on all hosts, or name a file that they share",
            first.host
        ))
    };
    places.iter().enumerate().find_map(of)
}

/// The hosts of ranks that cannot call the library of the run, each with the reason, while other
/// hosts can: none, if all lack it. `kept` is the library of an earlier start.
fn without_blas(places: &Places, kept: Option<&RunBlas>) -> Vec<UnfitHost> {
    let kept = kept.filter(|_| places.kinds.iter().any(|place| place.software.has_kept(kept)));
    let has_library = places.kinds.iter().any(|place| !place.software.called.is_built_in);
    let lack = |place: &Place| match (&place.software.blas.failure, kept) {
        (None, None) if has_library && place.software.called.is_built_in => {
            Some("finds no BLAS but the built-in one".to_owned())
        }
        (Some(why), _) => Some(format!("cannot call the BLAS of this run: {why}")),
        (None, Some(_)) if place.software.has_kept(kept) => None,
        (None, kept) => {
            Some(format!("has another BLAS than {}, of this run", kept?.called.shown()))
        }
    };
    let mut unfit: Vec<UnfitHost> = Vec::new();
    for place in places.iter() {
        let is_new = || unfit.iter().all(|known| known.host != place.host);
        if let Some(why) = lack(place).filter(|_| is_new()) {
            unfit.push(UnfitHost { host: place.host.clone(), why });
        }
    }
    unfit.truncate(if unfit.len() == hosts(places).len() { 0 } else { UNFIT_MAX });
    unfit
}

/// The first rank with another BLAS, or another kernel of it, than rank 0; none if there is no such
/// rank.
pub(crate) fn other_blas(places: &Places) -> Option<String> {
    let (first, called) = (&places[0], |place: &Place| place.software.called.clone());
    let rank = places.iter().position(|place| place.software.called != first.software.called)?;
    let place = &places[rank];
    Some(format!(
        "rank 0 on {} calls {}, and rank {rank} on {} {}: the last bits of x depend on which rank \
         computes what",
        first.host,
        called(first).shown(),
        place.host,
        called(place).shown()
    ))
}

/// Why ranks must not share their store, if hosts with different kernels share it: memory of one
/// machine into which files are mapped is not visible to another machine.
pub(crate) fn store_of_several_kernels(places: &Places, store: &str) -> Option<String> {
    // The first rank of each memory.
    let mut firsts = HashMap::new();
    let others = places.iter().enumerate().filter_map(|(rank, place)| {
        let Place { memory, kernel, .. } = place;
        let (first, of_first) = *firsts.entry(memory).or_insert((rank, kernel));
        (kernel != of_first).then_some((first, &place.host))
    });
    let (first, other) = others.min_by_key(|(first, _)| *first)?;
    let host = &places[first].host;
    Some(format!(
        "hosts {host} and {other} share the store {store}: another machine may not see what one \
         writes to a mapped file, and a lost machine loses what it has not written back. Use \
         memory of the hosts (--store sysv or posix), or a folder of each host's own"
    ))
}

/// Hosts that see the same segments as another host: a failure of one of them may destroy the
/// segments of all.
pub(crate) fn hosts_of_one_store(places: &Places) -> Vec<String> {
    let mut hosts_of: HashMap<_, BTreeSet<&String>> = HashMap::new();
    for Place { host, memory, kernel, .. } in places.kinds.iter().filter(|kind| kind.memory != 0) {
        hosts_of.entry((memory, kernel)).or_default().insert(host);
    }
    let shared = hosts_of.into_values().filter(|hosts| hosts.len() > 1);
    let hosts: BTreeSet<_> = shared.flatten().collect();
    hosts.into_iter().cloned().collect()
}

/// The hosts of the first `ranks` ranks, in the order of their first ranks, each with its memory
/// and its number of ranks.
pub(crate) fn shares(places: &Places, ranks: usize) -> Vec<HostShare> {
    let mut shares: Vec<HostShare> = Vec::new();
    let mut index_of = HashMap::new();
    for place in places.iter().take(ranks) {
        let index = *index_of.entry(&place.host).or_insert_with(|| {
            shares.push(HostShare {
                host: place.host.clone(),
                ranks: 0,
                available_bytes: place.available_bytes,
                limit_bytes: place.limit_bytes,
            });
            shares.len() - 1
        });
        shares[index].ranks += 1;
    }
    shares
}

/// The hosts in the order of their first ranks, for the report.
pub(crate) fn hosts(places: &Places) -> Vec<HostRanks> {
    shares(places, places.iter().len())
        .into_iter()
        .map(|share| HostRanks { host: share.host, ranks: share.ranks })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, memory: &str, kernel: &str) -> Place {
        let [memory, kernel] = [memory, kernel].map(|name| checksum(name.as_bytes()));
        Place {
            host: host.into(),
            machine: kernel,
            memory,
            kernel,
            available_bytes: None,
            limit_bytes: None,
            software: Arc::default(),
        }
    }

    fn with(software: Software) -> Place {
        Place { software: Arc::new(software), ..place("n", "m", "k") }
    }

    fn all(places: &[Place]) -> Places {
        Places { kinds: places.to_vec(), of_ranks: (0..places.len() as u32).collect() }
    }

    /// Two hosts of two ranks each, of which the second host's differ from the others in what they
    /// compute with, and the last one in its memory, too.
    #[test]
    fn the_table_has_a_row_for_ranks_that_are_alike() {
        let first = serde_json::to_string(&Software::default()).unwrap();
        let blas = ChosenBlas { named: Some("x".into()), ..ChosenBlas::default() };
        let other = Software { blas, ..Software::default() };
        let other = serde_json::to_string(&other).unwrap();
        let rank = |host: &str, rank, memory, bytes, software| {
            let place = Place { memory, available_bytes: Some(bytes), ..place(host, "m", "k") };
            Row { place, software, ranks: vec![rank] }
        };
        let b = |number, memory| rank("b", number, memory, 50, Some(other.clone()));
        let a = |number, bytes| rank("a", number, 1, bytes, None);
        let rows = [join(vec![a(0, 60), a(2, 61)]), join(vec![b(1, 2), b(3, 3)])];
        assert_eq!(rows.each_ref().map(Vec::len), [1, 2]);
        let places = Places::from_rows(rows.concat(), first.as_bytes(), 4);
        assert_eq!(places.of_ranks, [0, 1, 0, 2]);
        assert_eq!(places.iter().map(|place| place.memory).collect::<Vec<_>>(), [1, 2, 1, 3]);
        assert_eq!(places[2].available_bytes, Some(60), "that of the first one");
        let named = |place: &Place| place.software.blas.named.clone();
        assert_eq!(places.kinds.iter().filter_map(named).collect::<Vec<_>>(), ["x"; 2]);
    }

    #[test]
    fn containers_on_one_kernel_have_the_same_cores() {
        let places = all(&[place("a", "m", "k"), place("b", "n", "l"), place("c", "o", "k")]);
        assert_eq!(alike(&places, 2, |place| place.machine), (vec![0, 2], 1));
        assert_eq!(alike(&places, 2, |place| place.host.clone()), (vec![2], 0));
    }

    #[test]
    fn hosts_that_lack_the_library_are_unfit_while_others_have_it() {
        let called =
            |sum: &str| CalledBlas { files: [("libx.so", sum)].into(), ..CalledBlas::default() };
        let with = |(host, sum): &(&str, Option<&str>)| {
            let failure = sum.is_none().then(|| "it is not found".to_owned());
            let called = sum.map(called).unwrap_or_default();
            let (named, files) = (Some("x".into()), called.files.clone());
            let blas = ChosenBlas { named, files, failure, ..ChosenBlas::default() };
            let software = Software { blas, called };
            Place { software: Arc::new(software), ..place(host, "m", "k") }
        };
        let refused = |ranks: &[(&str, Option<&str>)], kept: Option<&str>| {
            let kept = kept.map(|sum| RunBlas { called: called(sum), ..RunBlas::default() });
            let places: Vec<_> = ranks.iter().map(with).collect();
            let places = all(&places);
            let why = refused_blas(&places, Some("x"), kept.as_ref())?;
            let unfit = without_blas(&places, kept.as_ref());
            let names: Vec<_> = unfit.iter().map(|unfit| unfit.host.clone()).collect();
            Some((names.join(" "), why))
        };
        let (one, two, none) = (Some("1"), Some("2"), None);
        let names = |ranks: &[_], kept| refused(ranks, kept).map(|(names, _)| names);
        assert_eq!(refused(&[("a", one), ("b", one)], none), None);
        let lacking = [("a", one), ("b", none), ("b", none), ("c", one), ("d", none)];
        assert_eq!(names(&lacking, none).as_deref(), Some("b d"));
        assert_eq!(names(&[("a", none), ("b", none)], one).as_deref(), Some(""));
        // Which of two versions is the other one, an earlier start shows.
        let differing = [("a", two), ("b", one)];
        assert_eq!(names(&differing, none).as_deref(), Some(""));
        assert_eq!(names(&differing, Some("3")).as_deref(), Some(""));
        let (names, why) = refused(&differing, one).expect("refused");
        assert_eq!(names, "a");
        assert!(
            why.starts_with("rank 0 on a: --blas x is another library there than on b"),
            "{why}"
        );
    }

    #[test]
    fn a_host_that_finds_no_library_is_unfit_by_default() {
        let with = |host: &str, is_built_in: bool| {
            let called = CalledBlas { is_built_in, ..CalledBlas::default() };
            let software = Software { called, ..Software::default() };
            Place { software: Arc::new(software), ..place(host, "m", "k") }
        };
        let places = [with("a", true), with("b", false), with("c", false)];
        let refused = |places: &[Place]| refused_blas(&all(places), None, None);
        let why = refused(&places).expect("refused");
        let unfit = without_blas(&all(&places), None);
        assert!(why.starts_with("rank 0 on a finds no BLAS but the built-in one"), "{why}");
        assert_eq!(unfit.iter().map(|unfit| &*unfit.host).collect::<Vec<_>>(), ["a"]);
        assert_eq!(refused(&places[..1]), None);
        assert_eq!(refused(&places[1..]), None);
    }

    #[test]
    fn a_rank_with_another_library_is_named_a_copy_is_none() {
        let other_blas = |places: &[Place]| other_blas(&all(places));
        let of = |name: &str, sum: &str| {
            let (words, files) = (name.to_owned(), [(name, sum)].into());
            let called = CalledBlas { words, files, ..CalledBlas::default() };
            with(Software { called, ..Software::default() })
        };
        let first = of("libx.so", "77");
        assert_eq!(other_blas(&[first.clone(), of("liby.so", "77")]), None);
        let why = other_blas(&[first.clone(), first, of("libx.so", "78")]).expect("another one");
        let words =
            "rank 0 on n calls libx.so (libx.so, 77), and rank 2 on n libx.so (libx.so, 78)";
        assert!(why.starts_with(words), "{why}");
    }

    #[test]
    fn store_determines_which_ranks_share_segments() {
        let ranks = [
            place("a", "m", "k"),
            place("b", "m", "k"),
            place("a", "n", "k"),
            place("a", "m", "k"),
        ];
        let places = all(&ranks);
        let indices = [0, 1, 2, 3].map(|rank| alike(&places, rank, |place| place.memory).1);
        assert_eq!(indices, [0, 1, 0, 2]);
        assert_eq!(hosts_of_one_store(&places), ["a", "b"]);
        assert_eq!(store_of_several_kernels(&places, "sysv"), None);
        assert_eq!(hosts_of_one_store(&all(&ranks[2..])), [""; 0]);
    }

    #[test]
    fn machines_that_share_a_folder_are_named() {
        let ranks = [place("a", "m", "k"), place("b", "n", "l"), place("c", "n", "k")];
        let why = store_of_several_kernels(&all(&ranks), "file:/net").expect("b and c share it");
        assert!(why.starts_with("hosts b and c share the store file:/net"), "{why}");
        assert_eq!(store_of_several_kernels(&all(&ranks[..2]), "file:/net"), None);
    }

    #[test]
    fn the_first_rank_is_named_whose_store_is_shared() {
        let of = |(host, memory, kernel)| place(host, memory, kernel);
        let ranks = [("a", "m", "k"), ("b", "n", "k"), ("c", "n", "l"), ("d", "m", "k")];
        let more = [("e", "n", "j"), ("f", "m", "l"), ("g", "m", "j")];
        let places: Vec<_> = ranks.into_iter().chain(more).map(of).collect();
        let named = |ranks| {
            let why =
                store_of_several_kernels(&all(&places[ranks]), "sysv").expect("two share one");
            why.split(" share").next().expect("a text").to_owned()
        };
        assert_eq!(named(0..7), "hosts a and f");
        assert_eq!(named(0..5), "hosts b and c");
        assert_eq!(named(2..5), "hosts c and e");
        assert_eq!(hosts_of_one_store(&all(&places)), ["a", "d"]);
    }
}
