//! The rules: from the facts of a host to findings. A new one is a row of [`RULES`]. Ranks that
//! differ from the others are found among all hosts: each has an equal part of the matrix, and all
//! wait for the slowest.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{CalledKernel, HostFacts, RankFacts};
use super::finding::{Finding, FindingKind as Kind};
use crate::environment::kernel::{fitting, is_old, variable, vectors_of};
use crate::environment::selftest::MIN_OF_PEAK;
use crate::slow::alike::Alike;
use skt_host::core_use::CoreUse;
use skt_host::counters::power::Found;
use skt_host::counters::processor::Vectors;
use skt_host::counters::sensors::CpuClock;
use skt_host::placement::{SAME_KIND, list};
use skt_host::shown::shell_quoted;
use skt_host::starter::Starter;

/// What is wrong, and what corrects it: texts in which `{0}`, `{1}` and so on stand for the words
/// of a hit.
struct Rule {
    kind: Kind,
    what: &'static str,
    remedy: &'static str,
    test: fn(&HostFacts) -> Option<Hit>,
}

/// What a rule has found on a host.
struct Hit {
    /// By how much, with where that comes from.
    measured: String,
    /// The rate with the remedy, as a multiple of the present one, if it can be predicted.
    times: Option<f64>,
    words: Vec<String>,
}

fn hit(
    measured: String,
    times: impl Into<Option<f64>>,
    words: impl IntoIterator<Item = String>,
) -> Option<Hit> {
    Some(Hit { measured, times: times.into(), words: words.into_iter().collect() })
}

/// Rules about an effect, such as a low rate, come after those about its causes ([`causes`]).
const RULES: &[Rule] = &[
    Rule {
        kind: Kind::TooFewCores,
        what: "a rank has more threads than the launcher gives it cores",
        remedy: "{0}; or fewer --threads",
        test: |host| crowded(host, Kind::TooFewCores),
    },
    Rule {
        kind: Kind::SmtSiblings,
        what: "ranks run on both hardware threads of a core, which share its vector units",
        remedy: ONE_A_CORE,
        test: |host| crowded(host, Kind::SmtSiblings),
    },
    Rule {
        kind: Kind::SharedCores,
        what: "ranks share cores",
        remedy: ONE_A_CORE,
        test: |host| crowded(host, Kind::SharedCores),
    },
    Rule {
        kind: Kind::Quota,
        what: "a control group limits the processor time",
        remedy: "echo {0} > {1} (as root, outside of the container), or docker update --cpus {2} \
                 CONTAINER; or {3} rank(s) with one thread",
        test: quota,
    },
    Rule {
        kind: Kind::MixedCores,
        what: "fast and slow cores work together, and all wait for the slow ones",
        remedy: "taskset -c {0} mpirun --bind-to none -np {1} ... (one rank a fast core)",
        test: mixed_cores,
    },
    Rule {
        kind: Kind::IdleCores,
        what: "no rank uses some of the cores",
        remedy: "{0}",
        test: idle_cores,
    },
    Rule {
        kind: Kind::Governor,
        what: "the processor is set to save power",
        remedy: "x86_energy_perf_policy performance (as root)",
        test: |host| governed(host, true, &["power"]),
    },
    Rule {
        kind: Kind::Governor,
        what: "the governor '{0}' keeps the clock low",
        remedy: "cpupower frequency-set -g performance (as root)",
        test: |host| governed(host, false, &["powersave", "conservative"]),
    },
    Rule {
        kind: Kind::ClockCap,
        what: "a setting caps the clock",
        remedy: "cpupower frequency-set -u {0}kHz (as root)",
        test: capped,
    },
    Rule {
        kind: Kind::NoBoost,
        what: "clocks above the nominal one are switched off",
        remedy: "echo {0} > {1} (as root)",
        test: no_boost,
    },
    Rule {
        kind: Kind::MemoryNode,
        what: "memory is on another NUMA node than the cores",
        remedy: "numactl --localalloc, or no numactl at all; mpirun --map-by numa --bind-to core",
        test: |host| barred_from_own_node(host).or_else(|| away_from_own_node(host)),
    },
    Rule {
        kind: Kind::SeveralNodes,
        what: "the threads of a rank are on several NUMA nodes, its memory on few of them",
        remedy: "one rank a node: mpirun --map-by ppr:{0}:node --bind-to none, with --threads {1}",
        test: on_several_nodes,
    },
    Rule {
        kind: Kind::HugePages,
        what: "private memory gets no huge pages",
        remedy: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)",
        test: |host| {
            host.counters.huge_pages.as_ref().filter(|setting| *setting == "never")?;
            hit("/sys/kernel/mm/transparent_hugepage/enabled is never".to_owned(), None, [])
        },
    },
    Rule { kind: Kind::MemoryErrors, what: "{0}", remedy: "{1}", test: memory_errors },
    Rule {
        kind: Kind::PowerCounters,
        what: "runs report no energy: only root may read the counters",
        remedy: "chgrp GROUP {0} && chmod g+r {0} (as root, after each boot, with the group of the \
                 users of the machine: the kernel forbids it to others as counters can betray what \
                 a processor computes, CVE-2020-8694)",
        test: |host| {
            let Found::Forbidden(source) = &host.counters.power else { return None };
            let files: Vec<String> =
                source.channels.iter().map(|it| format!("/{}", it.file)).collect();
            hit(format!("{}, {} file(s)", source.name, files.len()), None, [files.join(" ")])
        },
    },
    Rule {
        kind: Kind::BlasKernel,
        what: "{0} uses its kernel '{1}'{2}, made for {3}; this processor has {4}",
        remedy: "{5}",
        test: narrow_kernel,
    },
    Rule {
        kind: Kind::FasterBlas,
        what: "the BLAS {0} is faster here than {1}",
        remedy: "--blas {2}, or --blas auto",
        test: faster_blas,
    },
    Rule {
        kind: Kind::Throttled,
        what: "cores are slowed down because they are too hot",
        remedy: "cooling: filters and fans of the host, and the temperature of the room (sensors, \
                 ipmitool sdr type temperature)",
        test: |host| {
            let events = host.measured().map(|it| it.throttled).max().filter(|&it| it > 0)?;
            hit(format!("{events} event(s) of thermal_throttle during the measurement"), None, [])
        },
    },
    Rule {
        kind: Kind::LowClock,
        what: "the clock is below the nominal one",
        remedy: "cpupower frequency-set -g performance; the power profile and the power limit in \
                 the BIOS; turbostat shows which limit binds",
        test: |host| {
            let (clock, nominal) = (host.mean(|it| it.light_gigahertz)?, host.nominal_gigahertz()?);
            let measured = format!("{clock:.2} of {nominal:.2} GHz, in a loop of integers");
            hit(measured, nominal / clock, []).filter(|_| clock < 0.9 * nominal)
        },
    },
    Rule {
        kind: Kind::FallingClock,
        what: "the clock falls under the load of vector instructions",
        remedy: "the power limit and the power profile in the BIOS, and cooling (turbostat shows \
                 which limit binds)",
        test: falling_clock,
    },
    Rule { kind: Kind::OtherPrograms, what: "{0}", remedy: "{1}", test: other_users },
    Rule {
        kind: Kind::BelowPeak,
        what: "DGEMM is far below what the vector units do",
        remedy: "a newer OpenBLAS, BLIS or the maker's library (docs/user-guide.md, The BLAS); \
                 perf stat -e cycles,instructions shows whether the cores wait for memory",
        test: |host| {
            let (best, units) = host.rate_and_units()?;
            let share = 100.0 * best / units;
            let measured = format!(
                "{best:.1} of {units:.1} Gflop/s a core ({share:.0} %); a BLAS that fits reaches \
                 90 %"
            );
            hit(measured, 0.9 * units / best, []).filter(|_| best < MIN_OF_PEAK * units)
        },
    },
    Rule {
        kind: Kind::SlowSgemm,
        what: "SGEMM is hardly faster than DGEMM, so that HPL-MxP gains little over HPL",
        remedy: "a newer OpenBLAS, BLIS or the maker's library for runs of HPL-MxP \
                 (docs/user-guide.md, The BLAS); HPL does not call SGEMM",
        test: slow_sgemm,
    },
];

const ONE_A_CORE: &str = "{0} rank(s) on this host, each on its own cores: mpirun --map-by core \
                          --bind-to core -np {0}; srun --cpu-bind=cores --ntasks-per-node={0}";
/// The kinds that explain one of this kind, which is then not reported.
fn causes(kind: Kind) -> &'static [Kind] {
    const ALL: &[Kind] = &[
        Kind::SharedCores,
        Kind::SmtSiblings,
        Kind::TooFewCores,
        Kind::Quota,
        Kind::OtherPrograms,
        Kind::BlasKernel,
    ];
    match kind {
        Kind::OtherPrograms => &ALL[..4],
        Kind::SlowSgemm => &ALL[..5],
        // The best call of a crowded core is no measure of the BLAS.
        Kind::BelowPeak => ALL,
        _ => &[],
    }
}

/// The findings on a host. Where nothing was measured, those that follow from counters and settings
/// alone, which takes almost no time.
pub(crate) fn for_host(host: &HostFacts) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for Rule { kind, what, remedy, test } in RULES {
        if found.iter().any(|known| causes(*kind).contains(&known.kind)) {
            continue;
        }
        let Some(Hit { measured, times, words }) = test(host) else { continue };
        let [what, remedy] = [what, remedy].map(|text| {
            let words = words.iter().enumerate();
            words.fold(String::from(*text), |text, (at, word)| {
                text.replace(&format!("{{{at}}}"), word)
            })
        });
        let hosts = vec![host.host.clone()];
        found.push(Finding::new(*kind, hosts, what, measured, remedy, times));
    }
    found
}

#[derive(Default)]
struct CoreGroup {
    ranks: usize,
    threads: usize,
    cpus: BTreeSet<usize>,
    cores: BTreeSet<usize>,
}

fn groups(host: &HostFacts) -> Vec<CoreGroup> {
    let mut groups: Vec<CoreGroup> = Vec::new();
    for RankFacts { mask, threads, .. } in &host.ranks {
        let cpus = mask.iter().copied().collect();
        let mut merged =
            CoreGroup { ranks: 1, threads: *threads, cpus, cores: host.cores_of(mask) };
        let is_apart = |group: &CoreGroup| group.cores.is_disjoint(&merged.cores);
        let (apart, overlapping) = groups.into_iter().partition::<Vec<_>, _>(is_apart);
        groups = apart;
        for group in overlapping {
            merged.ranks += group.ranks;
            merged.threads += group.threads;
            merged.cpus.extend(group.cpus);
            merged.cores.extend(group.cores);
        }
        groups.push(merged);
    }
    groups
}

/// What the threads of the host had of their cores, if it was measured.
fn had_a_core(host: &HostFacts) -> String {
    host.mean(|it| Some(it.cpu_share)).map_or(String::new(), |share| {
        format!("; the threads of the host had a core for {:.0} % of the time", 100.0 * share)
    })
}

/// The group of ranks with the most threads per core, if that is more than one and of this kind.
fn crowded(host: &HostFacts, kind: Kind) -> Option<Hit> {
    let crowd = |group: &CoreGroup| group.threads as f64 / group.cores.len() as f64;
    let is_crowded = |it: &CoreGroup| !it.cores.is_empty() && it.threads > it.cores.len();
    let groups = groups(host).into_iter().filter(is_crowded);
    let worst = groups.max_by(|a, b| crowd(a).total_cmp(&crowd(b)))?;
    let (threads, cores, all) = (worst.threads, worst.cores.len(), host.threads());
    let (found, word) = if worst.ranks == 1 {
        (Kind::TooFewCores, Starter::advice(threads))
    } else {
        let ranks = all.min(host.usable_cores()) * host.ranks.len() / all;
        let has_siblings = threads <= worst.cpus.len();
        let found = if has_siblings { Kind::SmtSiblings } else { Kind::SharedCores };
        (found, ranks.max(1).to_string())
    };
    let measured = format!(
        "{threads} thread(s) of {} rank(s) on {cores} core(s) (cpu {}){}",
        worst.ranks,
        list(worst.cpus),
        had_a_core(host)
    );
    let could = threads.min((host.usable_cores() * threads / all).max(cores));
    let times = (could > cores).then_some(could as f64 / cores as f64);
    hit(measured, times, [word]).filter(|_| found == kind)
}

/// A control group that gives the ranks less time than their cores have.
fn quota(host: &HostFacts) -> Option<Hit> {
    /// The least share of the cores in use that a quota may leave without a finding.
    const ENOUGH: f64 = 0.95;
    let used = host.cores_at_work();
    let quota = host.counters.quota.as_ref().filter(|it| it.cores < ENOUGH * used as f64)?;
    let file = quota.file.display();
    let measured =
        format!("{file} leaves {:.2} of {used} core(s){}", quota.cores, had_a_core(host));
    let ranks = quota.cores.floor().max(1.0);
    let words = [quota.none.clone(), file.to_string(), used.to_string(), ranks.to_string()];
    hit(measured, used as f64 / quota.cores.max(1e-3), words)
}

/// Each core has an equal part of the matrix, so that all wait for the slowest.
fn mixed_cores(host: &HostFacts) -> Option<Hit> {
    /// The least gain that is worth a finding.
    const MIN_GAIN: f64 = 1.05;
    let used = host.used_cpus();
    let cpus = host.counters.cpus.iter().zip(&host.counters.speeds);
    let used = cpus.filter(|(cpu, _)| used.contains(&cpu.id));
    let speeds: BTreeMap<usize, f64> = used.map(|(cpu, speed)| (cpu.core, *speed)).collect();
    let fastest = speeds.values().copied().fold(0.0, f64::max);
    let slowest = speeds.values().copied().fold(f64::INFINITY, f64::min);
    let is_fast = |(core, speed): (&usize, &f64)| (*speed >= SAME_KIND * fastest).then_some(*core);
    let fast: Vec<usize> = speeds.iter().filter_map(is_fast).collect();
    let threads = host.threads().min(speeds.len());
    let times = fast.len() as f64 * fastest / (threads as f64 * slowest);
    // Otherwise the ranks are on cores of one kind, or can be.
    let is_mixed = threads > fast.len() && times >= MIN_GAIN;
    let (count, others) = (fast.len(), speeds.len() - fast.len());
    let share = 100.0 * slowest / fastest;
    let measured = format!(
        "{count} fast core(s) and {others} with {share:.0} % of their speed, for {threads} thread(s)"
    );
    hit(measured, times, [list(fast), count.to_string()]).filter(|_| is_mixed)
}

/// Cores that the job may use and has no thread for. A single process without a launcher runs on
/// all of them in `doctor`, and has idle ones only if they were counted.
fn idle_cores(host: &HostFacts) -> Option<Hit> {
    /// The share of the cores that a job has to use where idle ones were not counted.
    const USED_SHARE: f64 = 0.9;
    let (threads, ranks) = (host.threads(), host.ranks.len());
    let usable = host.usable_cores();
    let is_busy = !host.is_launched || threads as f64 >= USED_SHARE * usable as f64;
    let cores = host.idle_cores.map_or(if is_busy { 0 } else { usable }, |idle| threads + idle);
    let measured = format!("{threads} thread(s) of {ranks} rank(s), {cores} cores");
    let each = (cores / ranks.max(1)).max(1);
    let remedy = if host.is_launched {
        format!(
            "mpirun -np {cores} (per host: --map-by ppr:{cores}:node), or --threads {each} a rank \
             with --bind-to none"
        )
    } else {
        format!("mpirun -np {cores}, or --threads {cores} (as xhpl also OMP_NUM_THREADS={cores})")
    };
    hit(measured, cores as f64 / threads as f64, [remedy]).filter(|_| cores > threads)
}

const EQUAL: f64 = 0.95;

fn gigahertz(khz: u64) -> String {
    format!("{:.2} GHz", khz as f64 / 1e6)
}

fn used_clocks(host: &HostFacts) -> impl Iterator<Item = &CpuClock> {
    let used = host.used_cpus();
    host.counters.frequencies.cpus.iter().filter(move |clock| used.contains(&clock.cpu))
}

/// CPUs whose processor, or whose governor, is set to one of these words.
fn governed(host: &HostFacts, by_processor: bool, words: &[&str]) -> Option<Hit> {
    let setting = |clock: &CpuClock| {
        if by_processor { clock.preference.clone() } else { Some(clock.governor.clone()) }
    };
    let keeps_low = |clock: &&CpuClock| {
        let is_meant = clock.is_self_governed() == by_processor;
        is_meant && setting(clock).is_some_and(|setting| words.contains(&setting.as_str()))
    };
    let found: Vec<&CpuClock> = used_clocks(host).filter(keeps_low).collect();
    let CpuClock { governor, driver, least_khz, most_khz, .. } = found.first()?;
    let (count, least, most) = (found.len(), gigahertz(*least_khz), gigahertz(*most_khz));
    // With a driver that does not choose the clock itself, `powersave` means the lowest one.
    let times = *most_khz as f64 / (*least_khz).max(1) as f64;
    let is_lowest = governor == "powersave" && !by_processor && times > 1.0;
    let measured = format!("{count} CPU(s), driver {driver}, {least} to {most}");
    hit(measured, is_lowest.then_some(times), [governor.clone()])
}

fn capped(host: &HostFacts) -> Option<Hit> {
    // Without a boost the nominal clock is the highest.
    if host.counters.frequencies.boosts == Some(false) {
        return None;
    }
    let is_capped = |it: &&CpuClock| (it.allowed_khz as f64) < EQUAL * it.most_khz as f64;
    let CpuClock { allowed_khz, most_khz, .. } = used_clocks(host).find(is_capped)?;
    let measured = format!("at most {} of {}", gigahertz(*allowed_khz), gigahertz(*most_khz));
    hit(measured, *most_khz as f64 / (*allowed_khz).max(1) as f64, [most_khz.to_string()])
}

fn no_boost(host: &HostFacts) -> Option<Hit> {
    let clock = used_clocks(host).next();
    let clock = clock.filter(|_| host.counters.frequencies.boosts == Some(false))?;
    let (file, value) = match clock.driver.as_str() {
        "intel_pstate" | "intel_cpufreq" => ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
        _ => ("/sys/devices/system/cpu/cpufreq/boost", "1"),
    };
    let most = clock.most_khz;
    let base = clock.base_khz.filter(|base| (*base as f64) < EQUAL * most as f64);
    let measured = base.map_or(format!("see {file}"), |base| {
        format!("{} of {}", gigahertz(base), gigahertz(most))
    });
    hit(measured, base.map(|base| most as f64 / base as f64), [value, file].map(str::to_owned))
}

fn falling_clock(host: &HostFacts) -> Option<Hit> {
    /// The least share of its clock that a core keeps under the load of vector instructions: of the
    /// nominal clock, or of that in a loop of integers where this is lower. Clocks above the
    /// nominal one are not promised under such a load, and processors with AVX-512 are made without
    /// them.
    const KEPT: f64 = 0.8;
    let light = host.mean(|it| it.light_gigahertz)?;
    let vector = host.mean(|it| it.vector_gigahertz)?;
    let promised = host.nominal_gigahertz().map_or(light, |nominal| nominal.min(light));
    let measured = format!("from {light:.2} to {vector:.2} GHz after a second of DGEMM");
    hit(measured, promised / vector, []).filter(|_| vector < KEPT * promised)
}

/// The nodes next to the CPUs that a rank may use.
fn nodes_of(host: &HostFacts, rank: &RankFacts) -> BTreeSet<usize> {
    let nodes = host.counters.nodes.iter();
    let is_next = |cpus: &[usize]| cpus.iter().any(|cpu| rank.mask.contains(cpu));
    nodes.filter(|node| is_next(&node.cpus)).map(|node| node.id).collect()
}

/// Whether a node is next to other CPUs than those with the nodes `own`. A node of memory alone
/// (HBM, CXL) has no cores that would be nearer to it than those of a rank, so a rank's memory is
/// not wrong there.
fn is_foreign(host: &HostFacts, own: &BTreeSet<usize>, node: usize) -> bool {
    let has_cpus = host.counters.nodes.iter().any(|it| it.id == node && !it.cpus.is_empty());
    has_cpus && !own.is_empty() && !own.contains(&node)
}

/// A rank that must not take memory of the nodes of its cores.
fn barred_from_own_node(host: &HostFacts) -> Option<Hit> {
    let is_barred = |rank: &&RankFacts| {
        let (own, allowed) = (nodes_of(host, rank), &rank.allowed_nodes);
        !allowed.is_empty() && allowed.iter().all(|&node| is_foreign(host, &own, node))
    };
    let rank = host.ranks.iter().find(is_barred)?;
    let [own, allowed] = [list(nodes_of(host, rank)), list(rank.allowed_nodes.iter().copied())];
    hit(format!("cores of node {own}, memory of node {allowed} alone"), None, [])
}

/// A rank whose memory is on other nodes although it may take memory of the nodes of its cores.
fn away_from_own_node(host: &HostFacts) -> Option<Hit> {
    /// The largest share of a rank's memory on other nodes than those of its cores.
    const AWAY: f64 = 0.2;
    let share = |rank: &RankFacts| {
        let (own, bytes) = (nodes_of(host, rank), &rank.measured.as_ref()?.node_bytes);
        let away = bytes.iter().filter(|(node, _)| is_foreign(host, &own, **node));
        let (away, all): (u64, u64) = (away.map(|it| it.1).sum(), bytes.values().sum());
        Some(away as f64 / all.max(1) as f64)
    };
    let worst = host.ranks.iter().filter_map(share).fold(0.0, f64::max);
    let measured = format!("{:.0} % of the memory of a rank, by numa_maps", 100.0 * worst);
    hit(measured, None, []).filter(|_| worst > AWAY)
}

/// Ranks with more threads than a node has cores.
fn on_several_nodes(host: &HostFacts) -> Option<Hit> {
    let with_cpus = host.counters.nodes.iter().filter(|node| !node.cpus.is_empty());
    let cores: Vec<usize> = with_cpus.map(|node| host.cores_of(&node.cpus).len()).collect();
    let (nodes, a_node) = (cores.len(), cores.iter().copied().max()?);
    let threads = host.ranks.iter().map(|rank| rank.threads).max()?;
    let measured = format!("{threads} threads a rank, {nodes} nodes of {a_node} cores");
    hit(measured, None, [nodes, a_node].map(|count| count.to_string()))
        .filter(|_| host.is_launched && nodes > 1 && threads > a_node)
}

fn memory_errors(host: &HostFacts) -> Option<Hit> {
    let errors = &host.counters.memory_errors;
    let of_controller = |(name, corrected, uncorrected): &(String, u64, u64)| {
        format!("{name}: {corrected} corrected and {uncorrected} uncorrected")
    };
    let mut words: Vec<String> = errors.controllers.iter().map(of_controller).collect();
    let checks = errors.machine_checks.filter(|count| *count > 0);
    words.extend(checks.map(|count| format!("{count} machine check exception(s)")));
    let all_corrected =
        checks.is_none() && errors.controllers.iter().all(|(_, _, uncorrected)| *uncorrected == 0);
    let [what, remedy] = if all_corrected {
        [
            "memory errors were corrected since the host was started: no harm, unless they continue",
            "look again later: if the number grows, have the module replaced that ras-mc-ctl \
             --errors, or dmesg, names",
        ]
    } else {
        [
            "the memory has had errors since the host was started: it may be slow or wrong",
            "have the module replaced that ras-mc-ctl --errors, or dmesg, names",
        ]
    };
    hit(words.join(", "), None, [what, remedy].map(str::to_owned)).filter(|_| !words.is_empty())
}

/// A kernel of the BLAS for narrower vectors than the processor has, with which DGEMM is slow: some
/// processors multiply as fast in two halves.
fn narrow_kernel(host: &HostFacts) -> Option<Hit> {
    /// The share of the vector units that a kernel which fits reaches at least.
    const FITS: f64 = 0.75;
    let CalledKernel { library, kernel, named_by, .. } = host.blas.as_ref()?;
    let (kernel, has) = (kernel.as_ref()?, host.counters.processor.vectors?);
    let made_for = vectors_of(kernel);
    let is_narrow = made_for.map_or(is_old(kernel), |vectors| vectors < has);
    let rates = host.rate_and_units();
    let is_slow = rates.map_or(is_old(kernel), |(rate, units)| rate < FITS * units);
    let named = named_by.as_ref().map_or(String::new(), |name| format!(" because {name} names it"));
    let remedy = match (named_by, variable(library), fitting(library, has)) {
        (Some(name), ..) => format!("unset {name} (also in shell profiles and job scripts)"),
        (None, Some(name), Some(value)) => {
            format!("export {name}={value} (Open MPI: mpirun -x {name})")
        }
        _ => format!("a newer {library}, which may know this processor"),
    };
    let measured = rates.map_or("its rate is not known".to_owned(), |(rate, units)| {
        format!("DGEMM {rate:.1} of {units:.1} Gflop/s a core")
    });
    let made_for = made_for.map_or("any processor", Vectors::name).to_owned();
    let words = [library.clone(), kernel.clone(), named, made_for, has.name().to_owned(), remedy];
    hit(measured, rates.map(|(rate, units)| 0.9 * units / rate), words)
        .filter(|_| is_narrow && is_slow)
}

/// A library that is faster than the first, which is called by default.
fn faster_blas(host: &HostFacts) -> Option<Hit> {
    /// The least gain that is worth a finding.
    const MIN_GAIN: f64 = 1.05;
    let default = host.libraries.first()?;
    let now = default.gflops_per_core?;
    let rated = host.libraries.iter().filter_map(|it| Some((&it.name, it.gflops_per_core?)));
    let (name, fastest) = rated.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let measured = format!("DGEMM {now:.1} Gflop/s a core, with {name} {fastest:.1}");
    let words = [name.clone(), default.name.clone(), shell_quoted(name)];
    hit(measured, fastest / now, words).filter(|_| fastest >= MIN_GAIN * now)
}

/// The least share of the time that threads have a core on a host that does nothing else.
const MIN_SHARE: f64 = 0.9;

/// Others that use the cores: machines of the hypervisor, or programs.
fn other_users(host: &HostFacts) -> Option<Hit> {
    /// The largest share of the time that a hypervisor may take.
    const MAX_STOLEN: f64 = 0.05;
    let share = host.mean(|it| Some(it.cpu_share))?;
    let uses = || host.measured().map(|measured| &measured.core_use);
    let stolen = uses().map(|used| used.stolen_share).fold(0.0, f64::max);
    // Some kernels count stolen time as a thread's own, others do not.
    let waited = host.mean(|it| Some(it.core_use.lost_share())).unwrap_or(0.0);
    let local = waited.max(1.0 - share - stolen);
    let all = CoreUse {
        had_share: Some(1.0 - local),
        stolen_share: stolen,
        others: uses().find_map(|used| used.others.clone()),
        ..CoreUse::default()
    };
    let users = Some(all.users()).filter(|users| !users.is_empty());
    let users = users.map_or(String::new(), |users| format!("; {users}"));
    let had = 100.0 * (1.0 - local);
    let left = ((1.0 - local) * (1.0 - stolen)).max(1e-3);
    let is_found = share < MIN_SHARE || stolen > MAX_STOLEN;
    let measured = format!("the threads had a core for {had:.0} % of the time{users}");
    let [what, remedy] = if stolen > MAX_STOLEN.max(local) {
        [
            "the hypervisor gives the cores to other machines",
            "a dedicated machine: dedicated or isolated cores of the cloud",
        ]
    } else {
        [
            "other programs use the cores",
            "end them (top -H lists more), or ask for the whole host (sbatch --exclusive)",
        ]
    };
    hit(measured, 1.0 / left, [what, remedy].map(str::to_owned)).filter(|_| is_found)
}

fn slow_sgemm(host: &HostFacts) -> Option<Hit> {
    /// The least multiple of DGEMM's rate: vectors hold twice as many numbers of single precision.
    const MIN_TIMES: f64 = 1.5;
    let sgemm = host.mean(|it| Some(it.sgemm_gflops))?;
    let dgemm = host.mean(|it| Some(it.best_gflops))?;
    let share = host.mean(|it| Some(it.sgemm_cpu_share))?;
    let times = sgemm / dgemm;
    let measured = format!(
        "SGEMM {sgemm:.1} Gflop/s a core, {times:.1} times DGEMM's {dgemm:.1}; a BLAS with kernels \
         for it reaches 2 times"
    );
    hit(measured, 2.0 / times, []).filter(|_| share >= MIN_SHARE && times < MIN_TIMES)
}

/// How much slower than most ranks a rank is at least to be called slow, as a share.
const TOLERANCE: f64 = 0.2;

/// Finds hosts with ranks whose DGEMM is slower than that of most ranks.
pub(crate) fn slow_ranks(hosts: &[HostFacts]) -> Option<Finding> {
    let rates = |host: &HostFacts| host.measured().map(|it| it.mean_gflops).collect::<Vec<_>>();
    let all: Vec<f64> = hosts.iter().flat_map(rates).collect();
    // Two ranks have no majority.
    let alike = Alike::from_rates(&all).filter(|alike| alike.count > 2)?;
    let is_slow = |rate: &f64| alike.is_slow(*rate, TOLERANCE);
    let slow = hosts.iter().filter(|host| rates(host).iter().any(is_slow));
    let slow: Vec<String> = slow.map(|host| host.host.clone()).collect();
    let (count, of) = (all.iter().filter(|rate| is_slow(rate)).count(), all.len());
    let (slowest, most) = (all.iter().copied().fold(f64::INFINITY, f64::min), alike.reference);
    let measured = format!(
        "{count} of {of} ranks; the slowest does {slowest:.1}, most {most:.1} Gflop/s a core"
    );
    let what = "some ranks are slower than the others, which wait for them";
    let remedy = "leave these hosts out, or fix what else is found on them";
    let times = Some(most / slowest.max(1e-3));
    (count > 0).then(|| Finding::new(Kind::SlowRank, slow, what, measured, remedy, times))
}
