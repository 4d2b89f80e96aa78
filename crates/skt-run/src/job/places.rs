//! Which ranks run on which hosts, and what each host has.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::options::JobOptions;
use super::refused::Refused;
use crate::heartbeat::UnfitHost;
use crate::protect::{Chosen, RunBlas};
use skt_comm::{Comm, CommError, collect};
use skt_health::environment::HostRanks;
use skt_health::environment::library::{CalledBlas, ChosenBlas};
use skt_health::environment::preflight::HostShare;
use skt_host::core_use::JobPart;
use skt_host::{claims, memory, waits};
use skt_solver::blas::library::{BUILT_IN, PRESET};
use skt_store::store::StoreId;

/// The most hosts that a heartbeat names, as its line must not grow without bound.
const UNFIT_MAX: usize = 64;

/// A rank's host, and what it has there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RankLocation {
    /// The rank's host.
    pub host: String,
    /// The machine that the rank's host shares with other hosts, if it is a container: they have
    /// the same cores.
    pub machine: String,
    /// The rank's process.
    pub process: u32,
    /// Variables of the rank's environment that set how many threads it runs, if they count.
    pub thread_variables: Option<String>,
    /// The BLAS that `--blas` names for the rank.
    pub blas: ChosenBlas,
    /// The BLAS that the rank calls.
    pub called: CalledBlas,
    /// CPUs that the rank may use.
    pub mask: Vec<usize>,
    /// The store that outlives the rank, if the job is protected.
    pub store: Option<StoreId>,
    /// Bytes of memory that are free on the host.
    available_bytes: Option<u64>,
    /// Bytes of memory that the rank's control groups leave.
    limit_bytes: Option<u64>,
}

/// The places of all ranks, in order. `store` is this rank's store of segments, if the job is
/// protected; `held_bytes` is what earlier starts of the run hold on this host, and counts as free.
/// Collective.
pub(crate) fn gather<C: Comm>(
    world: &C,
    mask: Vec<usize>,
    store: Option<StoreId>,
    held_bytes: u64,
    options: &JobOptions,
) -> Result<Vec<RankLocation>, CommError> {
    let memory = memory::this_process();
    let host = world.host();
    let place = RankLocation {
        machine: claims::machine(&host),
        host,
        process: std::process::id(),
        thread_variables: options.thread_variables.clone(),
        blas: options.blas.clone(),
        called: CalledBlas::here(&options.blas),
        mask,
        store,
        available_bytes: memory.available_bytes.map(|bytes| bytes + held_bytes),
        limit_bytes: memory.cgroup.map(|group| group.left_bytes() + held_bytes),
    };
    let places = collect::all_gather_json(world, &place)?;
    waits::name_hosts(places.iter().map(|place| place.host.as_str()));
    Ok(places)
}

impl RankLocation {
    /// Whether the rank has the library of an earlier start, which is not a part of the program.
    fn has_kept(&self, kept: Option<&RunBlas>) -> bool {
        kept.is_some_and(|kept| {
            !kept.called.files.is_empty() && self.called.files == kept.called.files
        })
    }

    /// The memory of the rank's store, if the job is protected.
    pub(crate) fn memory(&self) -> Option<&str> {
        self.store.as_ref().map(|store| store.memory.as_str())
    }
}

/// The ranks that have the same `key` as `rank`, in order, and the index of `rank` among them. By
/// [`RankLocation::machine`], containers on one kernel are several hosts with the same cores.
pub(crate) fn alike<'p, K: PartialEq>(
    places: &'p [RankLocation],
    rank: usize,
    key: impl Fn(&'p RankLocation) -> K,
) -> (Vec<usize>, usize) {
    let own = key(&places[rank]);
    let here: Vec<usize> = (0..places.len()).filter(|&other| key(&places[other]) == own).collect();
    let index = here.iter().position(|&other| other == rank).expect("it is like itself");
    (here, index)
}

/// The processes of the ranks `here`, which share a host, and the CPUs that they may use.
pub(crate) fn job_part(places: &[RankLocation], here: &[usize]) -> JobPart {
    let processes = here.iter().map(|&rank| places[rank].process).collect();
    let cpus: BTreeSet<usize> = here.iter().flat_map(|&rank| places[rank].mask.clone()).collect();
    JobPart { processes, cpus: cpus.into_iter().collect() }
}

/// The first rank with other variables about threads than rank 0, and what follows from that; none
/// if there is no such rank.
pub(crate) fn other_thread_variables(places: &[RankLocation], threads: usize) -> Option<String> {
    let first = places.first()?.thread_variables.as_ref()?;
    let rank = places.iter().position(|place| place.thread_variables.as_ref() != Some(first))?;
    let words = |place: &RankLocation| match place.thread_variables.as_deref() {
        None | Some("") => "no variable for threads".to_owned(),
        Some(variables) => variables.to_owned(),
    };
    Some(format!(
        "rank 0 on {} has {}, and rank {rank} on {} has {}: all ranks run {threads} thread(s), as \
         rank 0 has. Open MPI passes variables to other hosts with mpirun -x NAME",
        places[0].host,
        words(&places[0]),
        places[rank].host,
        words(&places[rank])
    ))
}

/// What the job has chosen: the library of rank 0, as that of all ranks has its files, and the
/// measured `rates`.
pub(crate) fn chosen(places: &[RankLocation], rates: &[u32]) -> Chosen {
    let RankLocation { blas, called, .. } = &places[0];
    let (named, by_auto) = (blas.library().map(str::to_owned), blas.choice.is_some());
    let blas = RunBlas { named, by_auto, called: called.clone() };
    Chosen { blas, rates: rates.to_vec() }
}

/// Why the ranks must not compute with their libraries, if that is so: `named` is the BLAS of the
/// run, as rank 0 has read it, and `kept` that of an earlier start.
pub(crate) fn refused_blas(
    places: &[RankLocation],
    named: Option<&str>,
    kept: Option<&RunBlas>,
) -> Option<Refused> {
    let shown = named.unwrap_or(PRESET);
    let first = places.iter().find(|place| place.has_kept(kept)).or(places.first())?;
    let of = |(rank, place): (usize, &RankLocation)| {
        let at = format!("rank {rank} on {}", place.host);
        if let Some(why) = &place.blas.failure {
            let failed = place.blas.named.as_deref().unwrap_or(shown);
            let other = if failed == PRESET { BUILT_IN } else { PRESET };
            return Some(format!(
                "{at}: --blas {failed}: {why}. Name another library, or --blas {other}"
            ));
        }
        if place.blas.named.as_deref() != named {
            return Some(format!(
                "{at} could not read the configuration, which names the BLAS {shown}: give \
                 --blas {shown} as a flag"
            ));
        }
        let (ours, theirs) = (&first.blas.files, &place.blas.files);
        let other = ours.first_not_in(theirs).or_else(|| theirs.first_not_in(ours))?;
        Some(format!(
            "{at}: --blas {shown} is another library there than on {}: they differ in {other}. \
             Install the same on all hosts, or name a file that they share",
            first.host
        ))
    };
    let why = places.iter().enumerate().find_map(of)?;
    Some(Refused { unfit: without_blas(places, kept), ..Refused::for_good(why) })
}

/// The hosts of ranks that cannot call the library of the run, each with the reason, while other
/// hosts can: none, if all lack it. `kept` is the library of an earlier start.
fn without_blas(places: &[RankLocation], kept: Option<&RunBlas>) -> Vec<UnfitHost> {
    let kept = kept.filter(|_| places.iter().any(|place| place.has_kept(kept)));
    let lack = |place: &RankLocation| match (&place.blas.failure, kept) {
        (Some(why), _) => Some(format!("cannot call the BLAS of this run: {why}")),
        (None, Some(_)) if place.has_kept(kept) => None,
        (None, kept) => {
            Some(format!("has another BLAS than {}, of this run", kept?.called.shown()))
        }
    };
    let mut unfit: Vec<UnfitHost> = Vec::new();
    for place in places {
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
pub(crate) fn other_blas(places: &[RankLocation]) -> Option<String> {
    let first = places.first()?;
    let rank = places.iter().position(|place| place.called != first.called)?;
    let place = &places[rank];
    Some(format!(
        "rank 0 on {} calls {}, and rank {rank} on {} {}: the last bits of x depend on which rank \
         computes what",
        first.host,
        first.called.shown(),
        place.host,
        place.called.shown()
    ))
}

/// Why ranks must not share their store, if hosts with different kernels share it: memory of one
/// machine into which files are mapped is not visible to another machine.
pub(crate) fn store_of_several_kernels(places: &[RankLocation], store: &str) -> Option<String> {
    // The first rank of each memory.
    let mut firsts = HashMap::new();
    let others = places.iter().enumerate().filter_map(|(rank, place)| {
        let StoreId { memory, kernel } = place.store.as_ref()?;
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
pub(crate) fn hosts_of_one_store(places: &[RankLocation]) -> Vec<String> {
    let mut hosts_of: HashMap<_, BTreeSet<&String>> = HashMap::new();
    for place in places {
        if let Some(StoreId { memory, kernel }) = &place.store {
            hosts_of.entry((memory, kernel)).or_default().insert(&place.host);
        }
    }
    let shared = hosts_of.into_values().filter(|hosts| hosts.len() > 1);
    let hosts: BTreeSet<_> = shared.flatten().collect();
    hosts.into_iter().cloned().collect()
}

/// The hosts in the order of their first ranks, each with its memory and its number of ranks.
pub(crate) fn shares(places: &[RankLocation]) -> Vec<HostShare> {
    let mut shares: Vec<HostShare> = Vec::new();
    let mut index_of = HashMap::new();
    for place in places {
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
pub(crate) fn hosts(places: &[RankLocation]) -> Vec<HostRanks> {
    shares(places)
        .into_iter()
        .map(|share| HostRanks { host: share.host, ranks: share.ranks })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, memory: &str, kernel: &str) -> RankLocation {
        let store = Some(StoreId { memory: memory.into(), kernel: kernel.into() });
        RankLocation {
            host: host.into(),
            machine: kernel.into(),
            process: 0,
            thread_variables: None,
            blas: ChosenBlas::default(),
            called: CalledBlas::default(),
            mask: Vec::new(),
            store,
            available_bytes: None,
            limit_bytes: None,
        }
    }

    #[test]
    fn containers_on_one_kernel_have_the_same_cores() {
        let places = [place("a", "m", "k"), place("b", "n", "l"), place("c", "o", "k")];
        assert_eq!(alike(&places, 2, |place| &place.machine), (vec![0, 2], 1));
        assert_eq!(alike(&places, 2, |place| &place.host), (vec![2], 0));
    }

    #[test]
    fn a_rank_with_other_variables_is_named() {
        let with = |variables: Option<&str>| RankLocation {
            thread_variables: variables.map(str::to_owned),
            ..place("n", "m", "k")
        };
        let (four, none) = (with(Some("OMP_NUM_THREADS=4")), with(Some("")));
        assert_eq!(other_thread_variables(&[four.clone(), four.clone()], 4), None);
        assert_eq!(other_thread_variables(&[with(None), with(None)], 1), None);
        let why = other_thread_variables(&[four.clone(), four.clone(), none.clone()], 4).unwrap();
        let starts = "rank 0 on n has OMP_NUM_THREADS=4, and rank 2 on n has no variable for";
        assert!(why.starts_with(starts), "{why}");
        assert!(other_thread_variables(&[none, four], 1).unwrap().contains("1 thread(s)"));
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
            RankLocation { blas, called, ..place(host, "m", "k") }
        };
        let refused = |ranks: &[(&str, Option<&str>)], kept: Option<&str>| {
            let kept = kept.map(|sum| RunBlas { called: called(sum), ..RunBlas::default() });
            let places: Vec<_> = ranks.iter().map(with).collect();
            let Refused { why, unfit, .. } = refused_blas(&places, Some("x"), kept.as_ref())?;
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
    fn a_rank_with_another_library_is_named_a_copy_is_none() {
        let with = |name: &str, sum: &str| {
            let (words, files) = (name.to_owned(), [(name, sum)].into());
            let called = CalledBlas { words, files, ..CalledBlas::default() };
            RankLocation { called, ..place("n", "m", "k") }
        };
        let first = with("libx.so", "77");
        assert_eq!(other_blas(&[first.clone(), with("liby.so", "77")]), None);
        let why = other_blas(&[first.clone(), first, with("libx.so", "78")]).expect("another one");
        let words =
            "rank 0 on n calls libx.so (libx.so, 77), and rank 2 on n libx.so (libx.so, 78)";
        assert!(why.starts_with(words), "{why}");
    }

    #[test]
    fn store_determines_which_ranks_share_segments() {
        let places = [
            place("a", "m", "k"),
            place("b", "m", "k"),
            place("a", "n", "k"),
            place("a", "m", "k"),
        ];
        let indices = [0, 1, 2, 3].map(|rank| alike(&places, rank, RankLocation::memory).1);
        assert_eq!(indices, [0, 1, 0, 2]);
        assert_eq!(hosts_of_one_store(&places), ["a", "b"]);
        assert_eq!(store_of_several_kernels(&places, "sysv"), None);
        assert_eq!(hosts_of_one_store(&places[2..]), [""; 0]);
    }

    #[test]
    fn machines_that_share_a_folder_are_named() {
        let places = [place("a", "m", "k"), place("b", "n", "l"), place("c", "n", "k")];
        let why = store_of_several_kernels(&places, "file:/net").expect("b and c share it");
        assert!(why.starts_with("hosts b and c share the store file:/net"), "{why}");
        assert_eq!(store_of_several_kernels(&places[..2], "file:/net"), None);
    }

    #[test]
    fn the_first_rank_is_named_whose_store_is_shared() {
        let of = |(host, memory, kernel)| place(host, memory, kernel);
        let ranks = [("a", "m", "k"), ("b", "n", "k"), ("c", "n", "l"), ("d", "m", "k")];
        let more = [("e", "n", "j"), ("f", "m", "l"), ("g", "m", "j")];
        let places: Vec<_> = ranks.into_iter().chain(more).map(of).collect();
        let named = |ranks| {
            let why = store_of_several_kernels(&places[ranks], "sysv").expect("two share one");
            why.split(" share").next().expect("a text").to_owned()
        };
        assert_eq!(named(0..7), "hosts a and f");
        assert_eq!(named(0..5), "hosts b and c");
        assert_eq!(named(2..5), "hosts c and e");
        assert_eq!(hosts_of_one_store(&places), ["a", "d"]);
    }
}
