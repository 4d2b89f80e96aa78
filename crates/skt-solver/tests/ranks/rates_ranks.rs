//! Process columns of unequal rates, whose blocks a table deals: random tables, shapes and
//! algorithms, against elimination, with the same bits by any transport and with any cuts.
//!
//! `SKT_RATES_SEED` sets the seed, `SKT_RATES_CASES` the number of cases.

use crate::base_spec::base;
use crate::dice::{self, Dice};
use crate::soak;
use crate::solver_ranks::{Checker, FACTS, SWAPS, halves_or_not, solve_on_threads};
use skt_config::{Bcast, Pmap, TestSpec};

const GRIDS: [(usize, usize); 8] = [(1, 2), (1, 3), (1, 4), (1, 6), (2, 2), (2, 3), (3, 2), (1, 1)];
const RATES: [f64; 6] = [1.0, 1.0, 1.37, 2.0, 6.0, 0.125];

/// Rates of `q` process columns, which differ if there are several.
pub fn unequal(dice: &mut Dice, q: usize) -> Vec<f64> {
    let mut rates: Vec<f64> = (0..q).map(|_| RATES[dice.roll(RATES.len())]).collect();
    if rates.iter().all(|rate| *rate == rates[0]) {
        rates[dice.roll(q)] *= 3.0;
    }
    rates
}

fn random_spec(dice: &mut Dice) -> TestSpec {
    let (p, q) = GRIDS[dice.roll(GRIDS.len())];
    let (n, nb) = (dice.roll(120), 1 + dice.roll(16));
    TestSpec {
        rates: unequal(dice, q),
        depth: dice.roll(4),
        bcast: Bcast::ALL[dice.roll(Bcast::ALL.len())],
        swap: SWAPS[dice.roll(SWAPS.len())],
        swap_threshold: halves_or_not(dice.roll(2)),
        rfact: FACTS[dice.roll(FACTS.len())],
        pfact: FACTS[dice.roll(FACTS.len())],
        nbmin: 1 + dice.roll(4),
        ndiv: 2 + dice.roll(2),
        pmap: [Pmap::RowMajor, Pmap::ColumnMajor][dice.roll(2)],
        threads: 1 + dice.roll(2),
        ..base(n, nb, p, q)
    }
}

/// Successive panels of one process column, and process columns without any of the last Q.
#[derive(Default)]
struct Seen {
    successive: usize,
    without_late: usize,
}

impl Seen {
    fn count(&mut self, spec: &TestSpec) {
        let (cols, panels) = (spec.columns(), spec.n.div_ceil(spec.nb));
        let owners: Vec<usize> = (0..panels).map(|k| cols.block_owner(k)).collect();
        let is_successive = owners.windows(2).any(|pair| pair[0] == pair[1]);
        self.successive += usize::from(spec.q > 1 && is_successive);
        let late = &owners[panels.saturating_sub(spec.q)..];
        let lacks = (0..spec.q).any(|me| !late.contains(&me));
        self.without_late += usize::from(panels > spec.q && lacks);
    }
}

#[test]
fn random_tables_solve_as_elimination() {
    let mut dice = Dice(dice::seed("SKT_RATES_SEED"));
    let default = if soak::is_soak() { 300 } else { 40 };
    let cases = std::env::var("SKT_RATES_CASES").map_or(default, |text| text.parse().unwrap());
    let (mut checker, mut seen) = (Checker::new(), Seen::default());
    for _ in 0..cases {
        let spec = random_spec(&mut dice);
        let x = checker.check(&spec);
        let panels = spec.n.div_ceil(spec.nb);
        let cuts: Vec<usize> = (1..panels).filter(|_| dice.roll(3) == 0).collect();
        assert_eq!(solve_on_threads(&spec, &cuts).0, x, "cuts {cuts:?}: {spec:?}");
        seen.count(&spec);
    }
    assert!(3 * seen.successive > cases && 3 * seen.without_late > cases, "rare: {cases} cases");
}

/// All panels of one process column but the first ones: it reuses its slots at once.
#[test]
fn one_column_may_own_all_last_panels() {
    let mut checker = Checker::new();
    for (depth, bcast) in (0..4).zip(Bcast::ALL) {
        for rates in [vec![1.0, 40.0, 1.0], vec![40.0, 1.0, 1.0], vec![1.0, 1.0, 40.0]] {
            checker.check(&TestSpec { depth, bcast, rates, ..base(120, 8, 1, 3) });
        }
    }
}
