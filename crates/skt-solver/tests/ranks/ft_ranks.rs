//! The solver under checkpoints loses nodes: with every method, region, code and depth, on
//! uneven shapes. X has the same bits as without losses.

use std::collections::BTreeMap;

use std::sync::Arc;
use std::time::Instant;

use crate::dice::{self, Dice};
use crate::drill::{self, Cluster, Ended, Fault, When, Work, bits, settings, spec, undisturbed};
use crate::rates_ranks::unequal;
use crate::soak;
use skt_checkpoint::checkpoint::decide::{Refusal, Resume};
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::{Fact, Pmap, TestSpec};
use skt_host::phases::{EarlierStarts, PhaseTotals, Phases};
use skt_run::protect::{ClockReading, Every, Overlap, Region, Settings};
use skt_store::codec::CodecKind;

const REGIONS: [Region; 3] = [Region::Corner, Region::Side, Region::Whole];
const CODES: [(CodecKind, usize); 4] = [
    (CodecKind::Xor, 1),
    (CodecKind::Sum, 1),
    (CodecKind::ReedSolomon, 1),
    (CodecKind::ReedSolomon, 2),
];
/// n, nb, p, q, group size: N is not a multiple of NB, and P usually differs from Q.
const SHAPES: [[usize; 5]; 6] = [
    [61, 8, 2, 2, 4],
    [75, 7, 2, 3, 4],
    [83, 8, 1, 5, 2],
    [66, 7, 5, 1, 3],
    [70, 9, 7, 1, 4],
    [90, 16, 3, 2, 6],
];
/// n, nb, p, q, group size for two parities.
const WIDE_SHAPES: [[usize; 5]; 4] =
    [[61, 8, 2, 2, 4], [83, 8, 1, 5, 4], [75, 7, 2, 3, 6], [77, 9, 3, 3, 4]];
const MOMENTS: usize = 4;
const DEPTHS: usize = 4;

/// The moments of case `number`: all in a soak (`SKT_FT_SOAK=1`), else one of them in rotation. A
/// number that rises once for all depths lets each depth meet all moments.
fn moments(number: usize) -> impl Iterator<Item = usize> {
    let some = if soak::is_soak() { 1 } else { MOMENTS };
    (number % some..MOMENTS).step_by(some)
}

/// The depths of case `number`: all in a soak (`SKT_FT_SOAK=1`), else `count` of them in rotation.
fn depths(number: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = if soak::is_soak() { DEPTHS } else { count };
    (0..count).map(move |depth| (number * count + depth) % DEPTHS)
}

/// One loss in one run.
struct Case {
    spec: TestSpec,
    settings: Settings,
    fault: Fault,
    /// The epoch in whose making the rank dies, and whether that is before or after the barrier.
    epoch: u64,
    in_checkpoint: bool,
    before_barrier: bool,
    dice: Dice,
}

fn steps(method: Method) -> &'static [&'static str] {
    match method {
        Method::SelfCheckpoint => &["checkpoint", "encode", "barrier", "commit", "flush", "stamp"],
        Method::Double => &["checkpoint", "copy", "encode", "barrier", "commit"],
        Method::Single => &["checkpoint", "begin", "copy", "encode", "barrier", "commit"],
        Method::Abft | Method::None => &[],
    }
}

impl Case {
    fn new(spec: TestSpec, settings: Settings, moment: usize, seed: usize) -> Self {
        let mut dice = Dice((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let Every::Drill(interval) = settings.every else { unreachable!("drills") };
        let panels = spec.n.div_ceil(spec.nb);
        let last = panels.div_ceil(interval) as u64;
        let middle = last.div_ceil(2);
        let process = dice.roll(spec.p * spec.q);
        let names = steps(settings.method);
        let name = names[dice.roll(names.len())];
        let step = |epoch| When::Step(format!("{name}:epoch={epoch}").parse().unwrap(), 0);
        let (epoch, when) = match moment {
            0 => (1, step(1)),
            1 => (middle, step(middle)),
            2 => (last, step(last)),
            // In the panel after checkpoint `middle`.
            3 => (middle, When::Columns((middle as usize * interval + 1) * spec.nb)),
            _ => (last, When::Back),
        };
        let before_barrier = !matches!(name, "commit" | "flush" | "stamp");
        let in_checkpoint = moment < 3;
        let fault = Fault { process, when };
        Self { spec, settings, fault, epoch, in_checkpoint, before_barrier, dice }
    }
}

/// Processes whose nodes are lost when `process` dies: at most `parities` of each group.
pub fn losses(
    dice: &mut Dice,
    groups: &[Vec<usize>],
    process: usize,
    parities: usize,
) -> Vec<usize> {
    let mut lost = Vec::new();
    if dice.roll(8) == 0 {
        // The process dies, but its node does not.
        return lost;
    }
    for group in groups {
        let has_it = group.contains(&process);
        if !has_it && dice.roll(2) == 0 {
            continue;
        }
        let mut members = group.clone();
        if has_it {
            lost.push(process);
            members.retain(|&member| member != process);
        }
        let more = parities - usize::from(has_it);
        for _ in 0..more {
            lost.push(members.swap_remove(dice.roll(members.len())));
        }
    }
    lost.sort_unstable();
    lost
}

#[derive(Default)]
struct Tally {
    references: BTreeMap<String, Vec<f64>>,
    cases: usize,
    rebuilt: usize,
    afresh: usize,
    refused: usize,
}

impl Tally {
    fn reference(&mut self, spec: &TestSpec) -> Vec<f64> {
        // The depth decides which columns one call of the BLAS multiplies, and with some kernels
        // the last bits of x depend on that.
        let TestSpec { n, nb, p, q, depth, rates, .. } = spec;
        let key = format!("{n} {nb} {p} {q} {depth} {rates:?}");
        self.references.entry(key).or_insert_with(|| undisturbed(spec)).clone()
    }

    fn check(&mut self, mut case: Case, label: &str) {
        self.cases += 1;
        let (spec, settings) = (case.spec.clone(), case.settings.clone());
        let want = self.reference(&spec);
        let mut cluster = Cluster::new(spec.p * spec.q, 1);
        let Ended::Died = cluster.start(&spec, &settings, std::slice::from_ref(&case.fault)) else {
            panic!("{label}: {:?} did not strike", case.fault);
        };
        let groups = cluster.groups(&settings);
        let lost = losses(&mut case.dice, &groups, case.fault.process, settings.parities);
        cluster.lose(&lost);
        if case.dice.roll(2) == 0 {
            // The launcher puts the processes on other nodes.
            cluster.places.rotate_left(1);
        }
        let single = settings.method == Method::Single;
        match cluster.start(&spec, &settings, &[]) {
            Ended::Died => panic!("{label}: nobody was to die"),
            Ended::Refused(refusal) => {
                assert!(single, "{label}: {refusal}");
                assert!(matches!(refusal, Refusal::Unrecoverable { .. }), "{label}: {refusal}");
                self.refused += 1;
            }
            Ended::Done(ran) => {
                let epoch = ran.work().found.epoch;
                let low = case.epoch - u64::from(case.in_checkpoint);
                let high = case.epoch - u64::from(case.in_checkpoint && case.before_barrier);
                // A rank that dies between two checkpoints may be overtaken by the others.
                let high = high + u64::from(!case.in_checkpoint);
                assert!((low..=high).contains(&epoch), "{label}: epoch {epoch}, {:?}", case.fault);
                assert_eq!(ran.work().resumed, epoch > 0, "{label}");
                if epoch > 0 {
                    // Torn copies are lost as well.
                    let same = ran.work().found.lost == lost;
                    let more = lost.iter().all(|rank| ran.work().found.lost.contains(rank));
                    assert!(
                        same || (single && more),
                        "{label}: {:?}, {lost:?}",
                        ran.work().found.lost
                    );
                    self.rebuilt += usize::from(!lost.is_empty());
                } else {
                    self.afresh += 1;
                }
                assert!(ran.residual < spec.threshold, "{label}: residual {}", ran.residual);
                if settings.codec == CodecKind::Sum {
                    let scale = want.iter().fold(1f64, |most, x| most.max(x.abs()));
                    let error = ran.x.iter().zip(&want).map(|(a, b)| (a - b).abs() / scale);
                    let error = error.fold(0.0, f64::max);
                    assert!(error < 1e-9, "{label}: x is off by {error}");
                } else {
                    assert_eq!(bits(&ran.x), bits(&want), "{label}: x differs");
                }
                assert_eq!(ran.work().protection.restarts.len(), usize::from(epoch > 0), "{label}");
                assert_eq!(cluster.segments(), 0, "{label}: something is left");
            }
        }
    }
}

/// All combinations of one method.
fn matrix(method: Method) -> Tally {
    let mut tally = Tally::default();
    let mut kinds = 0;
    for region in REGIONS {
        for (codec, parities) in CODES {
            kinds += 1;
            for depth in depths(kinds, 1) {
                for moment in moments(kinds / DEPTHS) {
                    let seed = tally.cases;
                    let shapes: &[_] = if parities == 1 { &SHAPES } else { &WIDE_SHAPES };
                    let [n, nb, p, q, group] = shapes[(seed + seed / MOMENTS) % shapes.len()];
                    let overlap = [Overlap::Off, Overlap::On][usize::from(seed % 5 % 2 == 1)];
                    let settings =
                        Settings { method, region, codec, overlap, ..settings(2, group, parities) };
                    let case = Case::new(spec(n, nb, p, q, depth), settings, moment, seed);
                    let label = format!(
                        "{method} {region} {codec} m={parities} overlap {overlap:?} \
                         depth {depth} N={n} NB={nb} {p}x{q} groups of {group}, case {seed}"
                    );
                    tally.check(case, &label);
                }
            }
        }
    }
    println!(
        "{method}: {} cases, {} with ranks rebuilt, {} started afresh, {} refused",
        tally.cases, tally.rebuilt, tally.afresh, tally.refused
    );
    assert_eq!(tally.cases, 3 * 4 * depths(0, 1).count() * moments(0).count());
    assert!(tally.rebuilt + tally.refused > tally.cases / 3 && tally.afresh > 0);
    tally
}

#[test]
fn self_checkpoints() {
    assert_eq!(matrix(Method::SelfCheckpoint).refused, 0);
}

/// Process columns of unequal rates: their segments have one shape, and the same bits after kills
/// at random moments. `SKT_UNEQUAL_SEED` sets the seed of the rates and the kills.
#[test]
fn unequal_process_columns() {
    const KILLS: usize = 60;
    let methods = [Method::SelfCheckpoint, Method::Double];
    let shapes: Vec<_> = SHAPES.into_iter().filter(|shape| shape[3] > 1).collect();
    let (mut tally, mut dice) = (Tally::default(), Dice(dice::seed("SKT_UNEQUAL_SEED")));
    for &[n, nb, p, q, group] in shapes.iter().cycle().take(KILLS) {
        let (number, seed) = (tally.cases, dice.roll(1 << 30));
        let (method, region) = (methods[dice.roll(2)], REGIONS[dice.roll(REGIONS.len())]);
        let overlap = [Overlap::Off, Overlap::On][dice.roll(2)];
        let settings = Settings { method, region, overlap, ..settings(2, group, 1) };
        let base = spec(n, nb, p, q, dice.roll(DEPTHS));
        let spec = TestSpec { rates: unequal(&mut dice, q), ..base };
        let label = format!("{method} {region} overlap {overlap:?} {spec:?}, kill {number}");
        // Each shape is killed at each moment.
        let moment = number / shapes.len() % (MOMENTS + 1);
        tally.check(Case::new(spec, settings, moment, seed), &label);
    }
    println!("{} kills with unequal tables, {} with ranks rebuilt", tally.cases, tally.rebuilt);
    assert_eq!((tally.cases, tally.refused), (KILLS, 0));
    assert!(tally.rebuilt > KILLS / 3);
}

#[test]
fn double_checkpoints() {
    assert_eq!(matrix(Method::Double).refused, 0);
}

/// Single checkpoints refuse what they cannot survive, which is only a part of the cases: how large
/// a part depends on how far the other ranks get after the death.
#[test]
fn single_checkpoints() {
    let tally = matrix(Method::Single);
    assert!(tally.refused > 0 && tally.refused <= tally.cases / 2);
}

fn died(ended: Ended) {
    assert!(matches!(ended, Ended::Died), "a rank was to die");
}

fn done(ended: Ended) -> Box<drill::Ran> {
    match ended {
        Ended::Done(ran) => ran,
        Ended::Refused(refusal) => panic!("{refusal}"),
        Ended::Died => panic!("nobody was to die"),
    }
}

fn refused(ended: Ended) -> Refusal {
    match ended {
        Ended::Refused(refusal) => refusal,
        Ended::Died => panic!("nobody was to die"),
        Ended::Done(_) => panic!("that was to be refused"),
    }
}

#[test]
fn resume_never_and_require() {
    let (spec, settings) = (spec(61, 8, 2, 2, 1), settings(2, 4, 1));
    let want = undisturbed(&spec);
    let require = Settings { resume: Resume::Require, ..settings.clone() };
    let never = Settings { resume: Resume::Never, ..settings.clone() };
    let cluster = Cluster::new(4, 1);
    assert_eq!(
        refused(cluster.start(&spec, &require, &[])),
        Refusal::NothingFound { bare: 0, images: 0 }
    );
    assert_eq!(cluster.segments(), 0);
    let back = [Fault { process: 3, when: When::Back }];
    died(cluster.start(&spec, &settings, &back));
    let ran = done(cluster.start(&spec, &require, &[]));
    assert!(ran.work().resumed && ran.work().found.lost.is_empty());
    assert_eq!(bits(&ran.x), bits(&want));
    died(cluster.start(&spec, &settings, &back));
    let ran = done(cluster.start(&spec, &never, &[]));
    assert!(!ran.work().resumed && ran.work().found.unusable == 4, "{:?}", ran.work().found);
    assert_eq!(bits(&ran.x), bits(&want));
    assert_eq!(cluster.segments(), 0);
}

/// Segments of a run of the same name that were made for something else are refused.
#[test]
fn segments_of_another_shape_are_refused() {
    let (ours, basic) = (spec(61, 8, 2, 2, 1), settings(2, 4, 1));
    let cluster = Cluster::new(4, 1);
    died(cluster.start(&ours, &basic, &[Fault { process: 0, when: When::Back }]));
    let specs = [
        TestSpec { n: 62, ..ours.clone() },
        TestSpec { nb: 9, ..ours.clone() },
        TestSpec { p: 1, q: 4, ..ours.clone() },
        TestSpec { depth: 0, ..ours.clone() },
    ];
    for other in &specs {
        let refusal = refused(cluster.start(other, &basic, &[]));
        assert!(matches!(refusal, Refusal::OtherShape { .. }), "{refusal}");
    }
    let others = [
        Settings { method: Method::Double, ..basic.clone() },
        Settings { codec: CodecKind::ReedSolomon, ..basic.clone() },
        Settings { group_size: 2, ..basic.clone() },
    ];
    for other in &others {
        let refusal = refused(cluster.start(&ours, other, &[]));
        assert!(matches!(refusal, Refusal::OtherShape { .. }), "{refusal}");
    }
    assert_eq!(cluster.segments(), 4);
    // None of these starts has harmed the run.
    let ran = done(cluster.start(&ours, &basic, &[]));
    assert!(ran.work().resumed);
    assert_eq!(bits(&ran.x), bits(&undisturbed(&ours)));
}

/// With two ranks per node, the loss of a node takes a member of two groups.
#[test]
fn nodes_of_two_ranks() {
    for parities in [1, 2] {
        let spec = spec(75, 7, 2, 4, 1);
        let settings = settings(2, 4, parities);
        let want = undisturbed(&spec);
        for process in 0..8 {
            let mut cluster = Cluster::new(8, 2);
            let when = When::step("flush:epoch=3");
            died(cluster.start(&spec, &settings, &[Fault { process, when }]));
            let all: Vec<usize> = (0..parities).map(|i| (process + 2 * i) % 8).collect();
            cluster.lose(&all);
            let ran = done(cluster.start(&spec, &settings, &[]));
            assert!(ran.work().resumed);
            assert_eq!(ran.work().found.lost.len(), 2 * parities);
            assert_eq!(bits(&ran.x), bits(&want));
        }
    }
}

/// A team factors panels ahead while it multiplies, and after a restart without other work. The
/// panels are long enough for their products to be divided, and for the BLAS to use another kernel,
/// with other bits, for the parts than for the whole.
#[test]
fn restarts_with_threads() {
    for ([n, nb, p, q, depth], rfact, threads) in [
        ([1500, 64, 1, 2, 1], Fact::Right, 2),
        ([1500, 64, 1, 2, 2], Fact::Left, 3),
        ([1500, 64, 1, 2, 1], Fact::Crout, 4),
        ([2900, 64, 2, 1, 1], Fact::Right, 3),
    ] {
        let spec = TestSpec { threads, rfact, ..spec(n, nb, p, q, depth) };
        let settings = settings(3, p * q, 1);
        let want = undisturbed(&spec);
        let mut cluster = Cluster::new(p * q, 1);
        let fault = Fault { process: 1, when: When::Columns(4 * nb) };
        died(cluster.start(&spec, &settings, &[fault]));
        cluster.lose(&[1]);
        let ran = done(cluster.start(&spec, &settings, &[]));
        assert!(ran.work().resumed);
        let label = format!("N={n} {p}x{q} depth {depth}, {threads} threads, {rfact:?}");
        assert_eq!(bits(&ran.x), bits(&want), "{label}: x differs");
    }
}

/// Ranks without rows or columns, a single panel, more depth than panels, and
/// the other process mapping.
#[test]
fn shapes_where_some_ranks_have_nothing() {
    let mut cases = 0;
    let steps = [
        (Region::Corner, "stamp:epoch=1"),
        (Region::Side, "flush:epoch=1"),
        (Region::Whole, "finish"),
        (Region::Corner, "mark:chunk=0"),
        (Region::Side, "marked"),
        (Region::Whole, "clear"),
        (Region::Corner, "remove"),
    ];
    let shapes = [[9, 8, 3, 2], [1, 4, 2, 2], [8, 8, 2, 2], [17, 4, 1, 5], [16, 16, 4, 1]];
    for (shape, [n, nb, p, q]) in shapes.into_iter().enumerate() {
        for (step, (region, name)) in steps.into_iter().enumerate() {
            for depth in depths(shape + step, 1) {
                let spec = TestSpec { pmap: Pmap::ColumnMajor, ..spec(n, nb, p, q, depth) };
                let settings = Settings { region, ..settings(1, p * q, 1) };
                let want = undisturbed(&spec);
                // By default every other process, in rotation.
                let some = if soak::is_soak() || p * q == 1 { 1 } else { 2 };
                for process in ((shape + step) % some..p * q).step_by(some) {
                    let mut cluster = Cluster::new(p * q, 1);
                    let when = When::step(name);
                    died(cluster.start(&spec, &settings, &[Fault { process, when }]));
                    cluster.lose(&[process]);
                    let ran = done(cluster.start(&spec, &settings, &[]));
                    assert_eq!(bits(&ran.x), bits(&want), "N={n} NB={nb} {p}x{q} depth {depth}");
                    assert_eq!(cluster.segments(), 0);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases");
}

/// A run that is started twice; `change` is applied to the clocks that the second start reads.
/// Returns the work of that start, and the seconds from the first start to its end.
fn restarted(change: fn(ClockReading) -> ClockReading) -> (Work, f64) {
    let (spec, settings) = (spec(300, 8, 2, 2, 1), settings(10, 4, 1));
    let mut cluster = Cluster::new(4, 1);
    let began = Instant::now();
    let fault = Fault { process: 2, when: When::Columns(200) };
    assert!(matches!(cluster.start(&spec, &settings, &[fault]), Ended::Died));
    cluster.lose(&[2]);
    cluster.clock = Arc::new(move || change(ClockReading::now()));
    let Ended::Done(ran) = cluster.start(&spec, &settings, &[]) else { panic!("one loss") };
    let real_seconds = began.elapsed().as_secs_f64();
    assert_eq!(bits(&ran.x), bits(&undisturbed(&spec)));
    (ran.work.expect("it had died"), real_seconds)
}

/// Each rank computes for other times than the others, by two cuts further in each start.
#[test]
fn phases_of_all_starts_are_kept_up_to_the_checkpoint() {
    for (method, overlap) in [
        (Method::SelfCheckpoint, Overlap::Off),
        (Method::SelfCheckpoint, Overlap::On),
        (Method::Double, Overlap::Off),
    ] {
        let spec = spec(61, 8, 2, 2, 1);
        let settings = Settings { method, overlap, ..settings(2, 4, 1) };
        let cluster = Cluster::new(4, 1);
        let phases =
            |rank: usize| Phases { update: 5.0 + rank as f64, back: 1.0, ..Phases::default() };
        let mut seconds = 0.0;
        for (starts, next) in [(0, 2), (1, 4), (2, 4)] {
            let (earlier, restarts) = cluster.start_up_to(&spec, &settings, next, phases);
            let EarlierStarts { totals: PhaseTotals { max, mean }, interruptions } = earlier;
            let [_, _, _, max_update, max_back, ..] = max;
            let [_, _, _, update, back, ..] = mean;
            let times = f64::from(starts);
            assert_eq!((max_update, update), (8.0 * times, 6.5 * times), "{method} {overlap:?}");
            assert_eq!((max_back, back), (times, times), "{method} {overlap:?}");
            assert_eq!(restarts.len(), starts as usize);
            let lost: f64 = restarts.iter().map(|restart| restart.lost_seconds).sum();
            let recovery: f64 = restarts.iter().map(|restart| restart.recover_seconds).sum();
            let cost = interruptions.lost_seconds + interruptions.down_seconds;
            assert!((cost - lost).abs() < 1e-9, "{interruptions:?}: {restarts:?}");
            assert!(interruptions.recovery_seconds >= recovery - 1e-9, "{interruptions:?}");
            assert!(starts == 0 || interruptions.seconds() > seconds, "{interruptions:?}");
            seconds = interruptions.seconds();
        }
    }
}

const DAY: f64 = 86400.0;
/// More than a busy machine takes between two clocks.
const HOUR: f64 = 3600.0;

#[test]
fn a_wall_clock_that_is_set_between_starts_changes_no_time() {
    type Change = fn(ClockReading) -> ClockReading;
    let changes: [(f64, Change); 3] = [
        (-DAY, |now| ClockReading { unix_seconds: now.unix_seconds - DAY, ..now }),
        (0.0, |now| now),
        (DAY, |now| ClockReading { unix_seconds: now.unix_seconds + DAY, ..now }),
    ];
    for (off, change) in changes {
        let (work, real_seconds) = restarted(change);
        let [restart] = &work.protection.restarts[..] else { panic!("one restart") };
        let first = restart.start_seconds - restart.lost_seconds;
        assert!(first > 0.0 && restart.lost_seconds > 0.0, "{restart:?}");
        assert!(restart.start_seconds < work.first_value_seconds, "progress is the run's");
        assert!(work.first_value_seconds < work.seconds && work.seconds < real_seconds);
        assert!(!restart.is_by_wall_clock);
        assert!((restart.wall_clock_step_seconds - off).abs() < HOUR, "{off}: {restart:?}");
    }
}

#[test]
fn the_wall_clock_only_adds_if_no_node_stayed_up() {
    let (work, _) = restarted(|now| ClockReading {
        boot: 1,
        uptime_seconds: 1.0,
        unix_seconds: now.unix_seconds + DAY,
    });
    let restart = &work.protection.restarts[0];
    assert!(restart.is_by_wall_clock && restart.lost_seconds > DAY, "{restart:?}");
    let (work, real_seconds) = restarted(|now| ClockReading {
        boot: 1,
        uptime_seconds: 1.0,
        unix_seconds: now.unix_seconds - DAY,
    });
    let restart = &work.protection.restarts[0];
    assert!(restart.is_by_wall_clock && restart.wall_clock_step_seconds < HOUR - DAY);
    // At least what the first start took, plus this start itself.
    let first = restart.start_seconds - restart.lost_seconds;
    assert!(first > 0.0 && work.seconds > first && work.seconds < real_seconds, "{restart:?}");
}
