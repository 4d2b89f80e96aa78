//! A simulated cluster whose nodes lose their links one after the other while they still answer:
//! whatever dies when, the run survives it as long as the spares, or nodes that share, and the
//! checkpoint allow, and else it ends by the names of the nodes. Where only the launcher names
//! them, no start is without more data than can be rebuilt.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::{beat, hosts, options, survey, try_links};
use crate::decisions::*;
use crate::hosts::expand_slurm;
use skt_config::launch::NoSpare;

struct Drill {
    decisions: Decisions,
    now: f64,
    random: SplitMix64,
    /// Whether the nodes' links cannot be tested.
    is_blind: bool,
    /// How many of ten starts in vain name nodes that are cut off.
    naming: usize,
    deaths: usize,
    dead: BTreeSet<String>,
    /// The node that has the data of each rank, of the last step that was computed.
    data: Vec<String>,
    parities: usize,
    end: Option<u8>,
    log: Vec<String>,
}

impl Drill {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut below = |bound: usize| (random.next_u64() % bound as u64) as usize;
        let names = |before: &str, count: usize| -> Vec<String> {
            (1..=count).map(|index| format!("{before}{index}")).collect()
        };
        let (nodes, spares) = (names("n", 3 + below(10)), names("s", below(5)));
        let parities = 1 + below(3.min(nodes.len() - 1));
        let (is_blind, naming, deaths) = (below(2) == 0, [10, 10, 7, 0][below(4)], 1 + below(4));
        let list = |names: &[String]| hosts(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let me = Process::from_pid(std::process::id() as i32).unwrap();
        let pool = Pool::new(list(&nodes), list(&spares));
        let mut options = LaunchOptions { ranks: nodes.len(), parities, ..options() };
        options.pool = pool.clone();
        options.settings.max_restarts = 1000;
        options.settings.no_spare = [NoSpare::Stop, NoSpare::Spread][below(2)];
        let state = SupervisorState::new("run", &[], nodes.len(), pool, me);
        Self {
            decisions: Decisions::new(options, state),
            now: 1000.0,
            random,
            is_blind,
            naming,
            deaths,
            dead: BTreeSet::new(),
            data: Vec::new(),
            parities,
            end: None,
            log: Vec::new(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    fn may_lose(&mut self) {
        if self.deaths == 0 || self.data.is_empty() || self.below(3) > 0 {
            return;
        }
        let pool = &self.decisions.state.pool;
        let all: Vec<String> =
            pool.active.iter().chain(&pool.spares).map(|host| host.name.clone()).collect();
        let victim = all[self.below(all.len())].clone();
        self.log.push(format!("--- the link of {victim} dies"));
        self.dead.insert(victim);
        self.deaths -= 1;
    }

    fn feed(&mut self, event: Event) {
        let actions = self.decisions.on(self.now, event);
        for action in actions {
            match action {
                Action::Report(kind, text) => self.log.push(format!("{kind}: {text}")),
                Action::Save => self.feed(Event::Saved),
                Action::FindJob => self.feed(Event::NoJob { swept: 0 }),
                Action::Ask(inquiry) => self.answer(&inquiry),
                Action::Launch(start) => self.start(&start),
                Action::End(end) => self.end = Some(end.unwrap().code()),
                _ => {}
            }
        }
    }

    fn answer(&mut self, inquiry: &Inquiry) {
        if !matches!(inquiry.purpose, Purpose::Clean | Purpose::Forget) {
            self.may_lose();
        }
        let pool = &inquiry.pool;
        let mut survey = survey(pool, 4096);
        if inquiry.purpose == Purpose::Start {
            // Spares that are not needed are not waited for.
            for spare in &pool.spares {
                let before = survey.health.insert(spare.name.clone(), Health::Unknown);
                let health = |name: &str| {
                    if inquiry.lost.contains(name) {
                        Health::Ill("lost".into())
                    } else {
                        survey.health[name].clone()
                    }
                };
                if self.random.next_u64().is_multiple_of(2) || !pool.can_replace(health) {
                    survey.health.insert(spare.name.clone(), before.unwrap());
                } else {
                    survey.answers.remove(&spare.name);
                }
            }
        }
        if inquiry.tries_links {
            self.may_lose();
        }
        let is_dead = |name: &str| self.is_blind || self.dead.contains(name);
        try_links(&mut survey, inquiry, |a, b| is_dead(a) || is_dead(b));
        self.feed(Event::Answers(survey));
    }

    /// The node that runs each rank; all nodes of the list have one slot.
    fn nodes_of_ranks(&self) -> Vec<String> {
        let Pool { active, guests, .. } = &self.decisions.state.pool;
        let node = |rank| &active[guests.get(&rank).copied().unwrap_or(rank)];
        (0..active.len()).map(|rank| node(rank).name.clone()).collect()
    }

    /// The job fails if the link of a node in use is dead. Returns whether it has failed.
    fn fails(&mut self, start: &Start) -> bool {
        self.may_lose();
        let in_use = start.hosts.iter().map(|host| &host.name);
        let cut_off: Vec<String> =
            in_use.filter(|name| self.dead.contains(*name)).cloned().collect();
        if cut_off.is_empty() {
            return false;
        }
        if self.below(10) < self.naming {
            let certain = self.below(cut_off.len());
            for (index, name) in cut_off.iter().enumerate() {
                if index == certain || self.below(2) == 0 {
                    let line = format!("  Remote daemon: [[1,0],2] on node {name}\n");
                    self.feed(Event::Line(line));
                }
            }
            if self.below(2) == 0 {
                self.feed(Event::Tick { stops: 0 });
            }
        }
        // The launcher ends without a signal, or is killed as the job is silent.
        while self.below(2) == 0 {
            self.now += 100.0;
            self.feed(Event::Tick { stops: 0 });
        }
        if self.decisions.watch.last().is_none() && self.decisions.running.killed.is_none() {
            self.feed(Event::Line("unable to reliably start one or more daemons\n".into()));
        }
        self.feed(Event::Ended { how: "the launcher has ended".into(), succeeded: false });
        true
    }

    fn start(&mut self, start: &Start) {
        let in_use: BTreeSet<String> = start.hosts.iter().map(|host| host.name.clone()).collect();
        self.log.push(format!("start: {in_use:?}"));
        let launcher = self.decisions.state.supervisor.clone();
        self.feed(Event::Launched(launcher));
        if self.fails(start) {
            return;
        }
        self.now += 1.0;
        self.feed(beat("start", 0, None));
        if self.fails(start) {
            return;
        }
        // A node has data of more ranks than it runs once one of them has moved.
        let held = |name: &String| self.data.iter().filter(|node| *node == name).count();
        let found = |host: &Host| held(&host.name).min(host.slots);
        let found: usize = start.hosts.iter().map(found).sum();
        if self.data.len() > found + self.parities {
            assert!(!self.is_only_named(), "{:#?}", self.log);
            self.feed(beat("refused", 0, Some(2)));
            return self.feed(Event::Ended { how: "refused".into(), succeeded: false });
        }
        self.now += 1.0;
        self.feed(beat("recover-rebuild", 0, None));
        if self.fails(start) {
            return;
        }
        let columns = self.decisions.state.start * 100;
        for (phase, column) in [("factor", columns), ("commit", columns), ("factor", columns + 50)]
        {
            self.now += 1.0;
            self.feed(beat(phase, column, None));
            self.data = self.nodes_of_ranks();
            if self.fails(start) {
                return;
            }
        }
        self.feed(beat("done", 1000, Some(0)));
        self.feed(Event::Ended { how: "done".into(), succeeded: true });
    }

    /// Whether nothing but the launcher shows which links are dead, and it does so each time.
    fn is_only_named(&self) -> bool {
        self.is_blind && self.naming == 10
    }

    fn play(mut self, seed: u64) {
        self.feed(Event::Begin);
        for _ in 0..10_000 {
            if self.end.is_some() {
                break;
            }
            self.now += 100.0;
            self.feed(Event::Tick { stops: 0 });
        }
        let state = &self.decisions.state;
        let log = self.log.join("\n");
        let what = format!(
            "seed {seed}: blind {}, naming {}, parities {}\n{log}\n",
            self.is_blind, self.naming, self.parities
        );
        let out = |name: &String| state.pool.out.iter().any(|out| out.host.name == *name);
        let well = state.pool.everyone().filter(|host| !self.dead.contains(&host.name)).count();
        let lost = self.data.iter().filter(|node| self.dead.contains(*node)).count();
        let shares = self.decisions.options.settings.no_spare == NoSpare::Spread && well > 0;
        // Fewer than two nodes cannot test their links.
        let is_named = self.naming == 10 || (!self.is_blind && well > 1);
        if self.end == Some(0) {
            let placed = state.pool.placed().active;
            assert!(placed.iter().all(|host| !self.dead.contains(&host.name)), "{what}");
        } else if is_named {
            let is_survivable = (well >= state.ranks || shares) && lost <= self.parities;
            assert!(!is_survivable, "{what}");
            let reason = state.reason.as_ref().expect("given up");
            assert!(!reason.contains("all nodes well"), "{what}");
            // Consecutive names are a range.
            let words = reason.split_whitespace().map(|word| word.trim_end_matches([',', ':']));
            let mut named = words.filter_map(|word| expand_slurm(word).ok()).flatten();
            assert!(named.any(|name| self.dead.contains(&name)), "{what}");
            let may_refuse = lost > self.parities && !self.is_only_named();
            assert!(self.end == Some(75) || may_refuse, "{what}");
        }
        if is_named && self.end == Some(0) {
            let names = state.pool.everyone().map(|host| host.name.clone());
            let well_out: Vec<String> =
                names.filter(|name| out(name) && !self.dead.contains(name)).collect();
            assert_eq!(well_out, [""; 0], "{what}");
        }
    }
}

#[test]
fn dead_links_are_survived_as_far_as_spares_and_parities_go() {
    for seed in 0..2_000 {
        Drill::new(seed).play(seed);
    }
}
