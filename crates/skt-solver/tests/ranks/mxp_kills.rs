//! HPL-MxP under checkpoints loses processes and nodes: at every step of the checkpoints, at every
//! panel, and within and between steps of the refinement. X has the same bits as without losses.
//!
//! `SKT_FT_SOAK=1` kills at each step of the protocol instead of a sample.

use crate::dice::Dice;
use crate::drill::{Cluster, Ended, Fault, When, bits, refinement_lines, settings, undisturbed};
use crate::ft_ranks::losses;
use crate::mxp_system::mxp_base;
use crate::rates_ranks::unequal;
use crate::soak;
use skt_checkpoint::checkpoint::decide::Refusal;
use skt_checkpoint::checkpoint::methods::Method;
use skt_config::{GemmPrecision, MxpMatrix, TestSpec};
use skt_run::protect::{Overlap, Region, Settings};

/// n, nb, p, q, group size, parities, depth. N is no multiple of NB, and P usually differs from Q.
const SHAPES: [[usize; 7]; 5] = [
    [61, 16, 2, 2, 4, 1, 1],
    [45, 8, 1, 3, 3, 1, 0],
    [52, 9, 3, 2, 6, 2, 2],
    [70, 16, 4, 1, 2, 1, 1],
    [47, 12, 2, 2, 4, 2, 3],
];

/// By default a sample of the steps of the protocol: one of this many, another one in each case.
const STRIDE: usize = 37;

/// What happened to the runs of a test.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    rebuilt: usize,
    refused: usize,
    /// Runs that continued within the refinement.
    refined: usize,
    /// Kills within cycles of GMRES.
    in_gmres: usize,
}

/// A protected test, and what it computes undisturbed.
struct Case {
    spec: TestSpec,
    settings: Settings,
    want: Vec<f64>,
    /// See [`refinement_lines`].
    step_lines: Vec<usize>,
    label: String,
}

impl Case {
    fn panels(&self) -> usize {
        self.spec.n.div_ceil(self.spec.nb)
    }

    /// Kills a process at this moment, loses nodes, and resumes. Returns whether it died.
    fn kill(&self, when: When, dice: &mut Dice, tally: &mut Tally) -> bool {
        let Self { spec, settings, label, .. } = self;
        let ranks = spec.p * spec.q;
        let mut cluster = Cluster::new(ranks, 1);
        let (process, label) = (dice.roll(ranks), format!("{label}, killed at {when:?}"));
        match cluster.start(spec, settings, &[Fault { process, when: when.clone() }]) {
            Ended::Died => {}
            Ended::Refused(refusal) => panic!("{label}: {refusal}"),
            Ended::Done(ran) => {
                assert_eq!(bits(&ran.x), bits(&self.want), "{label}: x differs without a loss");
                return false;
            }
        }
        tally.kills += 1;
        let lost = losses(dice, &cluster.groups(settings), process, settings.parities);
        cluster.lose(&lost);
        match cluster.start(spec, settings, &[]) {
            Ended::Died => panic!("{label}: nobody was to die"),
            Ended::Refused(refusal) => {
                let single = settings.method == Method::Single;
                assert!(single, "{label}, {lost:?} lost: {refusal}");
                assert!(matches!(refusal, Refusal::Unrecoverable { .. }), "{label}: {refusal}");
                tally.refused += 1;
            }
            Ended::Done(ran) => {
                assert_eq!(bits(&ran.x), bits(&self.want), "{label}, {lost:?} lost: x differs");
                assert!(ran.residual < spec.threshold, "{label}: residual {}", ran.residual);
                // A process that dies while it reports has finished its test.
                let epoch = ran.work.as_ref().map(|work| work.found.epoch as usize);
                tally.rebuilt += usize::from(!lost.is_empty() && epoch.is_some_and(|e| e > 0));
                tally.refined += usize::from(epoch.is_some_and(|epoch| epoch > self.panels()));
                if let When::Refining(line) = when {
                    // Each step is preceded by a checkpoint, as each panel is.
                    let epoch = epoch.expect("the test had not ended");
                    let (ended, _) = self.step_of_line(line);
                    assert_eq!(epoch, self.panels() + ended, "{label}");
                }
            }
        }
        assert!(tally.refused > 0 || cluster.segments() == 0, "{label}: something is left");
        true
    }

    /// The number of steps of the refinement before that of this line of its progress, counted from
    /// 1, and the number of lines of that step.
    fn step_of_line(&self, line: usize) -> (usize, usize) {
        let mut before = 0;
        for (step, &lines) in self.step_lines.iter().enumerate() {
            if line <= before + lines {
                return (step, lines);
            }
            before += lines;
        }
        panic!("{}: line {line} of {:?}", self.label, self.step_lines);
    }

    /// Kills at each panel, at the end of the factorization, and in the refinement after each
    /// solution with the factors and after each step.
    fn kill_between_steps(&self, dice: &mut Dice, tally: &mut Tally) {
        for panel in 1..=self.panels() {
            let columns = (panel * self.spec.nb).min(self.spec.n);
            assert!(self.kill(When::Columns(columns), dice, tally), "panel {panel}");
        }
        assert!(self.kill(When::Back, dice, tally), "{}", self.label);
        let lines: usize = self.step_lines.iter().sum();
        for line in 1..=lines {
            assert!(self.kill(When::Refining(line), dice, tally), "{}: line {line}", self.label);
            let (_, lines) = self.step_of_line(line);
            tally.in_gmres += usize::from(lines > 2);
        }
        assert!(self.step_lines.len() > 1, "{}: {:?}", self.label, self.step_lines);
    }

    /// Kills at steps of the protocol until the test ends before the next one: at one of `stride`
    /// from `first` on.
    fn kill_in_checkpoints(&self, first: usize, stride: usize, dice: &mut Dice, tally: &mut Tally) {
        let steps = (first..).step_by(stride);
        let kills = steps.take_while(|&n| self.kill(When::AnyStep(n), dice, tally)).count();
        assert!(kills > 0, "{}", self.label);
    }
}

fn kill_all(method: Method) -> Tally {
    let (mut tally, mut dice, mut cases) = (Tally::default(), Dice(method as u64), 0);
    let mut rates = Dice(method as u64);
    let matrices = [MxpMatrix::FasiHigham, MxpMatrix::Scaled, MxpMatrix::Dominant];
    for region in [Region::Corner, Region::Side, Region::Whole] {
        for overlap in [Overlap::Off, Overlap::On] {
            let [n, nb, p, q, group, parities, depth] = SHAPES[(cases + dice.roll(2)) % 5];
            let gemm = [GemmPrecision::EmulatedBf16, GemmPrecision::Fp32][cases % 2];
            let rates = if cases % 3 == 1 { unequal(&mut rates, q) } else { Vec::new() };
            let base = mxp_base(n, nb, p, q, matrices[cases % 3]);
            let spec = TestSpec { depth, gemm, rates, ..base };
            let settings = Settings { method, region, overlap, ..settings(1, group, parities) };
            let label = format!(
                "{method} {region} overlap {overlap:?} {:?} {gemm} depth {depth} N={n} NB={nb} \
                 {p}x{q} rates {:?} groups of {group} m={parities}",
                matrices[cases % 3],
                spec.rates
            );
            let (want, step_lines) = (undisturbed(&spec), refinement_lines(&spec));
            let case = Case { want, step_lines, spec, settings, label };
            case.kill_between_steps(&mut dice, &mut tally);
            let stride = if soak::is_soak() { 1 } else { STRIDE };
            case.kill_in_checkpoints(cases * 5 % stride, stride, &mut dice, &mut tally);
            cases += 1;
        }
    }
    println!("{method}: {tally:?}");
    assert!(tally.rebuilt > tally.kills / 8 && tally.refined > tally.kills / 16, "{tally:?}");
    tally
}

#[test]
fn mxp_survives_kills_with_self_checkpoints() {
    assert_eq!(kill_all(Method::SelfCheckpoint).refused, 0);
}

#[test]
fn mxp_survives_kills_with_double_checkpoints() {
    let tally = kill_all(Method::Double);
    assert_eq!(tally.refused, 0);
    // Factors of bf16 need GMRES for one of these systems.
    assert!(tally.in_gmres > 0, "{tally:?}");
}

/// The rows of this matrix are longer than what a checkpoint saves at once, so that x, which is
/// kept below its first columns, is not saved by chance.
#[test]
fn mxp_keeps_x_of_many_columns_in_every_region() {
    let spec = mxp_base(2300, 256, 2, 1, MxpMatrix::Scaled);
    let want = undisturbed(&spec);
    for region in [Region::Corner, Region::Side, Region::Whole] {
        for process in 0..2 {
            let mut cluster = Cluster::new(2, 1);
            let settings = Settings { region, ..settings(4, 2, 1) };
            let faults = [Fault { process, when: When::Refining(4) }];
            let Ended::Died = cluster.start(&spec, &settings, &faults) else { panic!("{region}") };
            cluster.lose(&[process]);
            let Ended::Done(ran) = cluster.start(&spec, &settings, &[]) else { panic!("{region}") };
            assert_eq!(bits(&ran.x), bits(&want), "{region}: x differs");
        }
    }
}

/// Single checkpoints refuse what they cannot survive, which is only a part of the cases.
#[test]
fn mxp_survives_kills_with_single_checkpoints() {
    let tally = kill_all(Method::Single);
    assert!(tally.refused < tally.kills / 2, "{tally:?}");
}
