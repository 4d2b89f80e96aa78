//! Ten machines and more, each as a small tree of files: what is found on them, and that nothing is
//! found where all is well.

use super::diagnose;
use super::facts::{CalledKernel, HostFacts, RankMeasurement};
use super::finding::Finding;
use super::finding::FindingKind::{self, *};
use super::report::DoctorReport;
use crate::environment::bf16::Bf16SelfTest;
use crate::environment::library::RatedBlas;
use skt_host::core_use::{CoreUse, OtherProgram, OtherPrograms};
use skt_host::counters::Counters;
use skt_host::testing::Tree;

const CPU: &str = "sys/devices/system/cpu";
const XEON: &str = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\n\
    model name : Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz\n\
    flags : sse2 avx avx2 fma avx512f avx512dq avx512bw avx512vl avx512cd\n";
const EPYC: &str = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n\
    model name : AMD EPYC 7763 64-Core Processor\nflags : sse2 avx avx2 fma\n";
const GRACE: &str = "Features : fp asimd sve sve2\nCPU implementer : 0x41\nCPU part : 0xd4f\n";
const A64FX: &str = "Features : fp asimd sve\nCPU implementer : 0x46\nCPU part : 0x001\n";
const PI5: &str = "Features : fp asimd\nCPU implementer : 0x41\nCPU part : 0xd0b\n";

/// A machine of `cores` cores with `smt` CPUs each, numbered as by Linux on x86.
fn machine(cpuinfo: &str, cores: usize, smt: usize) -> Tree {
    let tree = Tree::new();
    let last = cores * smt - 1;
    tree.file("proc/cpuinfo", cpuinfo).file(&format!("{CPU}/online"), &format!("0-{last}\n"));
    tree.file("proc/self/status", "Mems_allowed_list:\t0\n");
    for id in 0..=last {
        let siblings: Vec<String> =
            (0..smt).map(|thread| (id % cores + thread * cores).to_string()).collect();
        let path = format!("{CPU}/cpu{id}/topology/thread_siblings_list");
        tree.file(&path, &siblings.join(","));
    }
    tree
}

/// Sets the governor, its driver, and the clocks of a CPU: least, nominal, most, in MHz.
fn clocks(tree: &Tree, cpus: usize, governor: &str, driver: &str, megahertz: [u32; 3]) {
    for id in 0..cpus {
        let set = |name: &str, text: &str| {
            tree.file(&format!("{CPU}/cpu{id}/cpufreq/{name}"), text);
        };
        let khz = megahertz.map(|clock| format!("{clock}000\n"));
        set("scaling_governor", governor);
        set("scaling_driver", driver);
        set("cpuinfo_min_freq", &khz[0]);
        set("base_frequency", &khz[1]);
        set("cpuinfo_max_freq", &khz[2]);
        set("scaling_max_freq", &khz[2]);
    }
}

fn with(tree: &Tree, masks: &[Vec<usize>], threads: usize) -> HostFacts {
    let host = HostFacts::new("n1", Counters::read(&tree.root()), masks, threads);
    HostFacts { is_launched: true, ..host }
}

/// A rank for each of the first CPUs.
fn each(cpus: usize) -> Vec<Vec<usize>> {
    (0..cpus).map(|cpu| vec![cpu]).collect()
}

fn well() -> RankMeasurement {
    RankMeasurement {
        best_gflops: 50.0,
        mean_gflops: 49.0,
        units_gflops: Some(54.0),
        cpu_share: 0.99,
        sgemm_gflops: 98.0,
        sgemm_cpu_share: 0.99,
        bf16: Vec::new(),
        light_gigahertz: Some(3.4),
        vector_gigahertz: Some(3.3),
        node_bytes: [(0, 1 << 20)].into(),
        throttled: 0,
        core_use: CoreUse::default(),
    }
}

fn measured(mut host: HostFacts, measured: &RankMeasurement) -> HostFacts {
    host.ranks.iter_mut().for_each(|rank| rank.measured = Some(measured.clone()));
    host
}

fn found(host: &HostFacts) -> Vec<Finding> {
    diagnose(std::slice::from_ref(host))
}

fn kinds(host: &HostFacts) -> Vec<FindingKind> {
    found(host).iter().map(|finding| finding.kind).collect()
}

/// Checks that the only finding is of this kind, and has this gain and these words; a line of them
/// is its message, its measurement or its remedy.
#[track_caller]
fn expect(host: &HostFacts, kind: FindingKind, times: impl Into<Option<f64>>, words: &[&str]) {
    let all = found(host);
    let [found] = &all[..] else { panic!("{all:?}") };
    let text = format!("\n{}\n{}\n{}\n", found.what, found.measured, found.remedy);
    assert_eq!(found.kind, kind, "{found:?}");
    words.iter().for_each(|word| assert!(text.contains(word), "{word}: {found:?}"));
    times.into().into_iter().for_each(|times| assert_gain(found, times));
}

#[track_caller]
fn assert_gain(finding: &Finding, times: f64) {
    let gain = finding.gain.expect("a gain");
    assert!((gain.times - times).abs() < 0.01 * times, "{finding:?}");
}

#[test]
fn xeon_with_smt() {
    let xeon = machine(XEON, 8, 2);
    clocks(&xeon, 16, "powersave", "intel_pstate", [1000, 2600, 3900]);
    let well = measured(with(&xeon, &each(8), 1), &well());
    assert_eq!(kinds(&well), []);
    assert_eq!(well.theoretical_gflops(), Some(2.6 * 32.0));
    expect(&with(&xeon, &each(16), 1), SmtSiblings, None, &["-np 8"]);
    expect(&with(&xeon, &each(4), 1), IdleCores, 2.0, &[]);
}

/// Sixteen cores on four nodes of memory.
fn epyc_of_four_nodes() -> (Tree, Vec<Vec<usize>>) {
    let epyc = machine(EPYC, 16, 1);
    epyc.file("sys/devices/system/node/online", "0-3\n");
    for node in 0..4 {
        let path = format!("sys/devices/system/node/node{node}/cpulist");
        epyc.file(&path, &format!("{}-{}\n", 4 * node, 4 * node + 3));
    }
    epyc.file("proc/self/status", "Mems_allowed_list:\t0-3\n");
    (epyc, (0..4).map(|node| (4 * node..4 * node + 4).collect()).collect())
}

#[test]
fn epyc_with_four_nodes_a_socket() {
    let (epyc, nodes) = epyc_of_four_nodes();
    assert_eq!(kinds(&with(&epyc, &nodes, 4)), []);
    let one = with(&epyc, &[(0..16).collect()], 16);
    expect(&one, SeveralNodes, None, &["ppr:4:node", "--threads 4"]);
    let away = RankMeasurement { node_bytes: [(0, 3 << 20), (3, 1 << 20)].into(), ..well() };
    let mut host = with(&epyc, &nodes, 4);
    host.ranks[3].measured = Some(away);
    expect(&host, MemoryNode, None, &["\n75 %"]);
    epyc.file("proc/self/status", "Mems_allowed_list:\t0\n");
    let words = "\ncores of node 1, memory of node 0 alone\n";
    expect(&with(&epyc, &nodes, 4), MemoryNode, None, &[words]);
}

/// HBM and memory on CXL are nodes without cores.
#[test]
fn a_node_of_memory_alone_is_no_wrong_one() {
    let (epyc, nodes) = epyc_of_four_nodes();
    epyc.file("sys/devices/system/node/online", "0-4\n");
    epyc.file("sys/devices/system/node/node4/cpulist", "\n");
    let hbm = RankMeasurement { node_bytes: [(3, 1 << 20), (4, 3 << 20)].into(), ..well() };
    let mut host = with(&epyc, &nodes, 4);
    host.ranks[3].measured = Some(hbm);
    assert_eq!(kinds(&host), []);
    epyc.file("proc/self/status", "Mems_allowed_list:\t4\n");
    assert_eq!(kinds(&with(&epyc, &nodes, 4)), []);
}

/// The line of the report about the peak.
fn peak(host: HostFacts) -> String {
    let text = DoctorReport::new(&[host], Vec::new()).text();
    text.lines().find(|line| line.contains("peak")).expect("a clock is known").trim().to_owned()
}

#[test]
fn the_peak_is_printed_with_its_cores_and_clock() {
    let xeon = machine(XEON, 4, 1);
    clocks(&xeon, 4, "performance", "intel_pstate", [1000, 2600, 3900]);
    let on_one = with(&xeon, &vec![vec![0]; 4], 1);
    let want = "peak : 83.2 Gflop/s by 1 core(s) x 32 flop a cycle x 2.60 GHz (nominal)";
    assert_eq!(peak(on_one), want);
    // Drivers of AMD report the highest clock only.
    let epyc = machine(EPYC, 1, 1);
    epyc.file(&format!("{CPU}/cpu0/cpufreq/cpuinfo_max_freq"), "3500000\n");
    epyc.file(&format!("{CPU}/cpu0/cpufreq/scaling_governor"), "performance\n");
    let host = with(&epyc, &each(1), 1);
    assert_eq!(host.nominal_gigahertz(), None);
    assert_eq!(
        peak(host),
        "peak : 56.0 Gflop/s by 1 core(s) x 16 flop a cycle x 3.50 GHz (highest)"
    );
}

fn openblas(kernel: &str, named_by: Option<&str>) -> Option<CalledKernel> {
    let (library, kernel) = ("OpenBLAS".to_owned(), Some(kernel.to_owned()));
    let named_by = named_by.map(str::to_owned);
    Some(CalledKernel { library, version: None, kernel, named_by })
}

#[test]
fn another_library_that_is_faster_is_named() {
    let grace = machine(GRACE, 8, 1);
    clocks(&grace, 8, "performance", "cppc_cpufreq", [80, 3100, 3400]);
    let mut host = with(&grace, &each(8), 1);
    let rated = |(name, rate): (&str, Option<f64>)| RatedBlas {
        name: name.into(),
        gflops_per_core: rate,
        refused: rate.is_none().then(|| "it crashes".into()),
    };
    let first = ("openblas", Some(40.0));
    host.libraries = [first, ("blis", Some(41.9)), ("x", None)].map(rated).into();
    assert_eq!(kinds(&host), []);
    host.libraries = [first, ("armpl_lp64", Some(60.0)), ("blis", Some(50.0))].map(rated).into();
    expect(&host, FasterBlas, 1.5, &["\n--blas armpl_lp64, or --blas auto\n"]);
    host.libraries = [("openblas", None), ("blis", Some(50.0))].map(rated).into();
    assert_eq!(kinds(&host), []);
}

/// Also before a run, when only DGEMM was timed: a cause is reported instead of its effect.
#[test]
fn a_kernel_that_does_not_fit_or_a_slow_dgemm() {
    const NAME: &str = "OPENBLAS_CORETYPE";
    for (cpuinfo, rate, kernel, named_by, want) in [
        (XEON, 45.0, "SkylakeX", None, None),
        (XEON, 25.5, "SkylakeX", None, Some((BelowPeak, "\n25.5 of 56.3 Gflop/s a core (45 %)"))),
        (XEON, 25.5, "Prescott", None, Some((BlasKernel, "\nexport OPENBLAS_CORETYPE=SkylakeX ("))),
        (XEON, 25.5, "generic", None, Some((BlasKernel, "made for any processor; this processor"))),
        (XEON, 25.5, "Nehalem", Some(NAME), Some((BlasKernel, "\nunset OPENBLAS_CORETYPE ("))),
        // Fast enough, as the processor does such vectors in two halves.
        (XEON, 45.0, "Zen", None, None),
        (GRACE, 25.5, "ARMV8", None, Some((BlasKernel, "\nexport OPENBLAS_CORETYPE=ARMV8SVE ("))),
        (GRACE, 25.5, "ARMV8", Some(NAME), Some((BlasKernel, "'ARMV8' because OPENBLAS_CORETYPE"))),
        (GRACE, 45.0, "NEOVERSEV1", None, None),
    ] {
        let mut host = with(&machine(cpuinfo, 2, 1), &each(2), 1);
        host.start_gflops = Some((rate, 56.3));
        host.blas = openblas(kernel, named_by);
        match want {
            None => assert_eq!(kinds(&host), []),
            Some((kind, words)) => expect(&host, kind, 0.9 * 56.3 / rate, &[words]),
        }
    }
}

#[test]
fn a64fx_with_generic_code_and_no_huge_pages() {
    let a64fx = machine(A64FX, 4, 1);
    a64fx.file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    let mut host = with(&a64fx, &each(4), 1);
    expect(&host, HugePages, None, &["\necho madvise >"]);
    host.blas = openblas("generic", None);
    assert_eq!(kinds(&host), [HugePages, BlasKernel], "without a rate");
    assert_eq!(host.counters.processor.flops_a_cycle(), Some(32.0));
}

#[test]
fn a_governor_that_saves() {
    let pi = machine(PI5, 4, 1);
    clocks(&pi, 4, "ondemand", "cpufreq-dt", [1500, 2400, 2400]);
    assert_eq!(kinds(&with(&pi, &each(4), 1)), []);
    clocks(&pi, 4, "powersave", "cpufreq-dt", [1500, 2400, 2400]);
    let remedy = "\ncpupower frequency-set -g performance";
    expect(&with(&pi, &each(4), 1), Governor, 1.6, &[remedy]);
}

#[test]
fn laptop_with_fast_and_slow_cores() {
    let laptop = machine(XEON, 14, 1);
    laptop.file("sys/devices/cpu_atom/cpus", "6-13\n");
    for id in 0..14 {
        let khz = if id < 6 { "5000000" } else { "4000000" };
        laptop.file(&format!("{CPU}/cpu{id}/cpufreq/cpuinfo_max_freq"), khz);
    }
    let remedy = "\ntaskset -c 0-5 mpirun --bind-to none -np 6";
    let all = with(&laptop, &[(0..14).collect()], 14);
    expect(&all, MixedCores, 6.0 / (14.0 * 0.4), &[remedy]);
    let fast = kinds(&with(&laptop, &each(6), 1));
    assert!(!fast.contains(&MixedCores), "{fast:?}");
}

/// Ranks send findings as JSON, which has no infinity.
#[test]
fn a_core_without_weight_gives_a_finding_that_can_be_sent() {
    let odd = machine(PI5, 2, 1);
    odd.file(&format!("{CPU}/cpu0/cpu_capacity"), "1024\n");
    odd.file(&format!("{CPU}/cpu1/cpu_capacity"), "0\n");
    let mixed = found(&with(&odd, &each(2), 1)).remove(0);
    assert_eq!((mixed.kind, mixed.gain), (MixedCores, None));
    let sent = serde_json::to_vec(&mixed).unwrap();
    assert_eq!(serde_json::from_slice::<Finding>(&sent).unwrap(), mixed);
}

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const V1: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";

#[test]
fn container_with_half_of_a_core() {
    let box_ = machine(EPYC, 4, 1);
    box_.file("proc/self/cgroup", "0::/\n").file("proc/self/mountinfo", V2);
    box_.file("sys/fs/cgroup/cpu.max", "50000 100000\n");
    let held = RankMeasurement { cpu_share: 0.125, mean_gflops: 6.0, ..well() };
    let held = measured(with(&box_, &each(4), 1), &held);
    expect(&held, Quota, 8.0, &["leaves 0.50 of 4 core(s)", "echo max > "]);
    box_.file("sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_eq!(kinds(&with(&box_, &each(4), 1)), []);
}

#[test]
fn version_1_group_without_turbo() {
    let xeon = machine(XEON, 2, 1);
    clocks(&xeon, 2, "performance", "intel_pstate", [1000, 2600, 3900]);
    xeon.file(&format!("{CPU}/intel_pstate/no_turbo"), "1\n");
    let remedy = "\necho 0 > /sys/devices/system/cpu/intel_pstate/no_turbo";
    expect(&with(&xeon, &each(2), 1), NoBoost, 1.5, &[remedy]);
    xeon.file("proc/self/cgroup", "1:cpu:/job\n").file("proc/self/mountinfo", V1);
    xeon.file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
    xeon.file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    let both = found(&with(&xeon, &each(2), 1));
    assert_eq!((both[0].kind, both[1].kind), (Quota, NoBoost));
    assert!(both[0].remedy.contains("echo -1 > "), "{both:?}");
}

#[test]
fn a_capped_clock_and_a_processor_that_saves_power() {
    let xeon = machine(XEON, 2, 1);
    clocks(&xeon, 2, "powersave", "intel_pstate", [1000, 2600, 3900]);
    xeon.file(&format!("{CPU}/cpu1/cpufreq/scaling_max_freq"), "1300000\n");
    expect(&with(&xeon, &each(2), 1), ClockCap, 3.0, &[]);
    assert_eq!(kinds(&with(&xeon, &[vec![0]], 1)), [IdleCores], "cpu 1 is not in use");
    xeon.file(&format!("{CPU}/cpu1/cpufreq/scaling_max_freq"), "3900000\n");
    xeon.file(&format!("{CPU}/cpu0/cpufreq/energy_performance_preference"), "power\n");
    expect(&with(&xeon, &each(2), 1), Governor, None, &["save power"]);
}

#[test]
fn a_hot_server_whose_memory_fails() {
    let xeon = machine(XEON, 4, 1);
    clocks(&xeon, 4, "performance", "intel_pstate", [1000, 2600, 3900]);
    xeon.file(&format!("{CPU}/cpu0/thermal_throttle/core_throttle_count"), "99\n");
    assert_eq!(kinds(&measured(with(&xeon, &each(4), 1), &well())), [], "that is long ago");
    let fused = RankMeasurement { vector_gigahertz: Some(2.2), ..well() };
    let all = kinds(&measured(with(&xeon, &each(4), 1), &fused));
    assert_eq!(all, [], "the processor is made so");
    let hot = RankMeasurement { throttled: 5, vector_gigahertz: Some(1.3), ..well() };
    let both = found(&measured(with(&xeon, &each(4), 1), &hot));
    assert_eq!((both[0].kind, both[1].kind), (FallingClock, Throttled));
    assert_gain(&both[0], 2.0);
    let cold =
        RankMeasurement { light_gigahertz: Some(1.3), vector_gigahertz: Some(1.3), ..well() };
    expect(&measured(with(&xeon, &each(4), 1), &cold), LowClock, 2.0, &[]);
    xeon.file("sys/devices/system/edac/mc/mc0/ce_count", "12\n");
    xeon.file("sys/devices/system/edac/mc/mc0/ue_count", "0\n");
    let words = ["\nmc0: 12 corrected and 0 uncorrected\n", "no harm, unless they continue"];
    expect(&with(&xeon, &each(4), 1), MemoryErrors, None, &words);
    xeon.file("sys/devices/system/edac/mc/mc0/ue_count", "1\n");
    expect(&with(&xeon, &each(4), 1), MemoryErrors, None, &["slow or wrong"]);
}

/// A virtual machine reports no clock, no node and no throttling.
#[test]
fn a_virtual_machine_with_four_ranks_on_one_of_two_cores() {
    let vm = machine(EPYC, 2, 1);
    assert_eq!(kinds(&measured(with(&vm, &each(2), 1), &well())), []);
    let quarter =
        RankMeasurement { cpu_share: 0.25, best_gflops: 20.0, mean_gflops: 12.0, ..well() };
    let crowded = measured(with(&vm, &vec![vec![0]; 4], 1), &quarter);
    expect(&crowded, SharedCores, 2.0, &["-np 2"]);
    expect(&with(&vm, &[vec![0]], 2), TooFewCores, None, &["--bind-to none"]);
    let of_hypervisor = |stolen_share| CoreUse { stolen_share, ..CoreUse::default() };
    let stolen = RankMeasurement { core_use: of_hypervisor(0.5), cpu_share: 1.0, ..well() };
    expect(&measured(with(&vm, &each(2), 1), &stolen), OtherPrograms, None, &["\nthe hypervisor"]);
    let others = RankMeasurement { cpu_share: 0.5, ..well() };
    expect(&measured(with(&vm, &each(2), 1), &others), OtherPrograms, 2.0, &["\nother programs"]);
    // Programs took 47 %, and the hypervisor more than it does anywhere: the larger part first.
    let named = vec![OtherProgram { pid: 7, what: "process 7 (a)".into(), cores: 0.94 }];
    let both = CoreUse {
        had_share: Some(0.53),
        waited_seconds: 0.5,
        others: Some(OtherPrograms { cores: 0.94, named }),
        ..of_hypervisor(0.06)
    };
    let both = RankMeasurement { cpu_share: 0.5, core_use: both, ..well() };
    let want = "\nother programs use the cores\nthe threads had a core for 53 % of the time; process \
                7 (a) used 94 % of a core, the hypervisor took 6 % of the host's time\n";
    expect(&measured(with(&vm, &each(2), 1), &both), OtherPrograms, None, &[want]);
    let slow = RankMeasurement { best_gflops: 9.0, ..well() };
    expect(&measured(with(&vm, &each(2), 1), &slow), BelowPeak, 5.4, &[]);
}

/// A host of two ranks, of which the second one measures this of SGEMM.
fn with_sgemm(sgemm_gflops: f64, sgemm_cpu_share: f64) -> HostFacts {
    let mut host = measured(with(&machine(EPYC, 2, 1), &each(2), 1), &well());
    host.ranks[1].measured = Some(RankMeasurement { sgemm_gflops, sgemm_cpu_share, ..well() });
    host
}

#[test]
fn an_sgemm_that_is_slow_is_found() {
    assert_eq!(kinds(&with_sgemm(90.0, 0.99)), []);
    // The mean of 98 and 30 is 1.28 times DGEMM's rate.
    let words = "\nSGEMM 64.0 Gflop/s a core, 1.3 times DGEMM's 50.0";
    expect(&with_sgemm(30.0, 0.99), SlowSgemm, 100.0 / 64.0, &[words]);
    assert_eq!(kinds(&with_sgemm(30.0, 0.5)), [], "the threads lacked a core");
    let text = DoctorReport::new(&[with_sgemm(90.0, 0.99)], Vec::new()).text();
    let want = "  SGEMM: 188.0 Gflop/s in the fastest call, 1.9 times DGEMM's fastest (about 2 is \
                usual)\n";
    assert!(text.contains(want), "{text}");
}

#[test]
fn products_of_bf16_are_reported_with_their_flaw() {
    let sgemm_gflops_per_core = 98.0;
    let test = |gflops_per_core: f64, function: &str| Bf16SelfTest {
        function: function.to_owned(),
        file: Some("/opt/lib.so".to_owned()),
        gflops_per_core,
        sgemm_gflops_per_core,
        error: Some(0.1),
    };
    let bf16 = vec![test(196.0, "cblas_sbgemm"), test(40.0, "aocl_gemm")];
    let host =
        measured(with(&machine(EPYC, 2, 1), &each(2), 1), &RankMeasurement { bf16, ..well() });
    let text = DoctorReport::new(&[host], Vec::new()).text();
    let fast =
        "  bf16 : cblas_sbgemm of /opt/lib.so: 196.0 Gflop/s a core, 2.00 times SGEMM's 98.0\n";
    let slow =
        "  bf16 : aocl_gemm of /opt/lib.so: of no use, 40.0 Gflop/s a core, 0.41 times SGEMM";
    assert!(text.contains(fast) && text.contains(slow), "{text}");
}

/// A host whose cores others use has other findings than a slow SGEMM.
#[test]
fn a_slow_sgemm_on_crowded_cores_is_no_finding() {
    let mut host = with_sgemm(30.0, 0.99);
    for rank in &mut host.ranks {
        rank.measured.as_mut().unwrap().cpu_share = 0.5;
    }
    assert_eq!(kinds(&host), [OtherPrograms]);
}

#[test]
fn hosts_with_the_same_finding_share_a_line_with_the_slowest() {
    let vm = machine(EPYC, 1, 1);
    vm.file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    let host = |name: &str, rate: f64| {
        let rates = RankMeasurement { mean_gflops: rate, ..well() };
        HostFacts { host: name.into(), ..measured(with(&vm, &each(1), 1), &rates) }
    };
    let all = diagnose(&[host("n1", 49.0), host("n2", 20.0), host("n3", 50.0)]);
    assert_eq!((all[0].kind, all[1].kind, all.len()), (SlowRank, HugePages, 2));
    assert_eq!((all[0].hosts.len(), all[1].hosts.len()), (1, 3));
    assert_gain(&all[0], 2.45);
}
