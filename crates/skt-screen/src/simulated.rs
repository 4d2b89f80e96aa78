//! A thousand made-up nodes, a tenth of them hostile: no sound one may be named, and each hostile
//! one must be.

use std::collections::BTreeSet;
use std::time::Instant;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::results::{Events, NodeKind, NodeRates, Pair, Results, ScreenedNode, Solve};
use super::verdict::{HostState, TOLERANCE, judge};
use skt_host::tournament;

/// How a hostile node behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The node reports the x on which all such nodes agree, with a good residual.
    Collusion,
    /// The node's rates are no numbers.
    NoNumber,
    /// The node reports rates of every size: here a thousand times those of others, in another
    /// round a thousandth.
    Lies,
    /// The node has another x each time.
    Unsteady,
    /// The node is right alone and wrong with others.
    WrongTogether,
    Slow,
    SlowLink,
    /// The node reports that all its links are slow, and fails residuals with others.
    Slander,
    /// The node stops answering after the first round.
    Silent,
}

/// The faults, and the states that name each.
const FAULTS: [(Fault, &[HostState]); 9] = [
    (Fault::Collusion, &[HostState::Wrong]),
    (Fault::NoNumber, &[HostState::Wrong]),
    (Fault::Lies, &[HostState::Slow]),
    (Fault::Unsteady, &[HostState::Wrong]),
    (Fault::WrongTogether, &[HostState::Wrong]),
    (Fault::Slow, &[HostState::Slow]),
    (Fault::SlowLink, &[HostState::Slow]),
    (Fault::Slander, &[HostState::Slow, HostState::Wrong]),
    (Fault::Silent, &[HostState::Unreachable]),
];

impl Fault {
    fn names(self) -> &'static [HostState] {
        FAULTS.iter().find(|(fault, _)| *fault == self).expect("all are listed").1
    }

    /// Whether only what it does with others shows it.
    fn shows_with_others(self) -> bool {
        matches!(self, Self::WrongTogether | Self::SlowLink | Self::Slander)
    }
}

/// Whether a node was in a pair whose other member is sound: what only pairs of two hostile nodes
/// show may be the fault of either.
fn has_sound_pair(results: &Results, faults: &[Option<Fault>], node: usize) -> bool {
    let is_sound = |other: &usize| *other == node || faults[*other].is_none();
    results.pairs.iter().any(|pair| pair.nodes.contains(&node) && pair.nodes.iter().all(is_sound))
}

struct Simulation {
    dice: SplitMix64,
    faults: Vec<Option<Fault>>,
}

impl Simulation {
    /// The results of all nodes, with systems of order `n`.
    fn results(&mut self, n: usize) -> Results {
        let nodes = self.faults.len();
        let mut results = Results { n, ..Results::default() };
        results.nodes = (0..nodes).map(|index| self.node(index)).collect();
        for nodes in tournament::rounds(nodes, 3).into_iter().flatten() {
            let pair = self.pair(nodes, &results);
            results.pairs.push(pair);
        }
        results
    }

    fn share(&mut self) -> f64 {
        (self.dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Noise of about normal distribution, with deviation 1.
    fn noise(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }

    fn solve(&mut self, gflops: f64, x: &str) -> Solve {
        let scaled_residual = Some(0.001 + 0.003 * self.share());
        Solve { gflops: Some(gflops), scaled_residual, x: Some(x.to_owned()), ..Solve::default() }
    }

    fn node(&mut self, index: usize) -> ScreenedNode {
        let (processor, gflops) =
            if index.is_multiple_of(5) { ("old", 400.0) } else { ("new", 1000.0) };
        // The quality of the chip, then that of the moment.
        let own = gflops * (1.0 + 0.015 * self.noise());
        let fault = self.faults[index];
        let mut solves: Vec<Solve> = (0..3)
            .map(|round| {
                let rate = own * (1.0 + 0.003 * self.noise());
                let sound = self.solve(rate, processor);
                match fault {
                    Some(Fault::Collusion) => Solve { x: Some("theirs".into()), ..sound },
                    Some(Fault::NoNumber) => Solve { gflops: None, ..sound },
                    Some(Fault::Lies) => {
                        let times = if round == 0 { 1e3 } else { 1e-3 };
                        Solve { gflops: Some(rate * times), ..sound }
                    }
                    Some(Fault::Unsteady) => {
                        Solve { x: Some(self.dice.next_u64().to_string()), ..sound }
                    }
                    Some(Fault::Slow) => Solve { gflops: Some(0.7 * rate), ..sound },
                    _ => sound,
                }
            })
            .collect();
        let lost = (fault == Some(Fault::Silent)).then(|| {
            solves.truncate(1);
            "no answer".to_owned()
        });
        let ranks = 1;
        let (processor, blas) = (processor.to_owned(), "OpenBLAS".to_owned());
        ScreenedNode {
            host: format!("n{index}"),
            kind: Some(NodeKind { processor, blas, ranks, threads: 64 }),
            rates: NodeRates {
                dgemm_gflops: Some(1.2 * own),
                units_gflops: Some(1.3 * own),
                memory_gigabytes_a_second: Some(300.0 * (1.0 + 0.02 * self.noise())),
                free_bytes: None,
            },
            solves,
            events: lost.is_none().then(Events::default),
            lost,
        }
    }

    fn pair(&mut self, nodes: [usize; 2], results: &Results) -> Pair {
        let rate = 20.0 * (1.0 + 0.05 * self.noise());
        let is = |fault| nodes.iter().any(|&node| self.faults[node] == Some(fault));
        let (is_slow, is_slander) = (is(Fault::SlowLink), is(Fault::Slander));
        let gigabytes_a_second = match (is(Fault::Silent), is_slow || is_slander) {
            (true, _) => None,
            (_, true) => Some(rate / 30.0),
            _ => Some(rate),
        };
        let pair = Pair { nodes, gigabytes_a_second, microseconds: Some(2.0), ..Pair::default() };
        let faults = self.faults.clone();
        let has = |fault| nodes.iter().any(|&node| faults[node] == Some(fault));
        if has(Fault::Silent) {
            return Pair { lost: Some("no answer".into()), ..pair };
        }
        let kinds = nodes.map(|node| results.nodes[node].kind.as_ref().unwrap().processor.as_str());
        let is_wrong = has(Fault::WrongTogether) || has(Fault::Unsteady);
        let mut x = kinds.join(" ");
        if has(Fault::Collusion) {
            x = "theirs".to_owned();
        } else if is_wrong {
            x = self.dice.next_u64().to_string();
        }
        let mut solve = self.solve(900.0, &x);
        if has(Fault::Slander) {
            solve.wrong = Some("the scaled residual is NaN".into());
        }
        Pair { solve: Some(solve), ..pair }
    }
}

/// Results of `nodes` nodes, a tenth of them hostile.
fn results(seed: u64, nodes: usize) -> (Results, Vec<Option<Fault>>) {
    let mut simulation =
        Simulation { dice: SplitMix64::seed_from_u64(seed), faults: vec![None; nodes] };
    let mut hostile = BTreeSet::new();
    while hostile.len() < nodes / 10 {
        hostile.insert((simulation.dice.next_u64() % nodes as u64) as usize);
    }
    for node in hostile {
        let (fault, _) = FAULTS[(simulation.dice.next_u64() % FAULTS.len() as u64) as usize];
        simulation.faults[node] = Some(fault);
    }
    (simulation.results(20_000), simulation.faults)
}

fn seed() -> u64 {
    let seed = std::env::var("SKT_HPL_SEED").map_or(1, |text| text.parse().expect("a number"));
    println!("SKT_HPL_SEED={seed}");
    seed
}

#[test]
fn a_hostile_tenth_of_a_thousand_nodes_is_named_and_no_other() {
    const WORLDS: u64 = 30;
    let (first, start) = (seed(), Instant::now());
    let mut seen = BTreeSet::new();
    for seed in first..first + WORLDS {
        let (results, faults) = results(seed, 1000);
        let verdicts = judge(&results, TOLERANCE);
        for (index, (verdict, fault)) in verdicts.hosts.iter().zip(&faults).enumerate() {
            let names: &[HostState] = fault.map_or(&[HostState::Ok], Fault::names);
            if fault.is_some_and(Fault::shows_with_others)
                && !has_sound_pair(&results, &faults, index)
            {
                continue;
            }
            assert!(
                names.contains(&verdict.state),
                "seed {seed}, n{index}, {fault:?}: {verdict:?}"
            );
            seen.insert(verdict.state);
        }
        assert_eq!(verdicts.links, [], "seed {seed}");
    }
    assert_eq!(seen.len(), HostState::ALL.len() - 1, "all but those that nothing decides");
    println!("{WORLDS} x 1000 nodes in {:?}", start.elapsed());
}

#[test]
fn a_slow_link_between_sound_nodes_is_named_among_a_thousand() {
    let seed = seed();
    let (mut results, faults) = results(seed, 1000);
    let is_sound = |pair: &Pair| pair.nodes.iter().all(|&node| faults[node].is_none());
    let slow = results.pairs.iter().position(is_sound).expect("most are");
    results.pairs[slow].gigabytes_a_second = Some(1.0);
    let verdicts = judge(&results, TOLERANCE);
    assert_eq!(verdicts.links.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [slow]);
    for node in results.pairs[slow].nodes {
        assert_eq!(verdicts.hosts[node].state, HostState::Ok, "{:?}", verdicts.hosts[node]);
    }
}

#[test]
fn sound_nodes_are_silent_whatever_the_noise() {
    let first = seed();
    for seed in first..first + 200 {
        let nodes = 2 + (seed % 40) as usize;
        let mut simulation =
            Simulation { dice: SplitMix64::seed_from_u64(seed), faults: vec![None; nodes] };
        let verdicts = judge(&simulation.results(1000), TOLERANCE);
        assert!(verdicts.are_all_ok(), "seed {seed}: {verdicts:?}");
    }
}
