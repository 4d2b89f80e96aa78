//! A cluster in which anything happens at random, and what the supervisor must never do then.

use proptest::prelude::*;

use super::{ALL, beat, corruption, full_disk, options_with, state, try_links};
use crate::decisions::*;
use crate::state::Status;
use crate::tests::answer;
use skt_config::LaunchSettings;
use skt_config::launch::NoSpare;

/// A cluster that a script of numbers drives, and checks that hold whatever happens.
struct World {
    decisions: Decisions,
    now: f64,
    stops: usize,
    is_full: bool,
    pending: Pending,
    launcher: LauncherState,
    is_terminated: bool,
    /// Whether the present start begins from the seed, so that it finds nothing that it could
    /// refuse.
    is_fresh: bool,
    /// Nodes that were reported lost, and have not answered since.
    lost: BTreeSet<String>,
    /// Whether nodes may run the ranks of lost ones as well.
    shares: bool,
    starts: usize,
    /// Starts from the seed because more was lost than could be rebuilt.
    overs: usize,
    earliest_start: f64,
    has_account: bool,
    end: Option<Result<Exit, SupervisorError>>,
}

#[derive(Debug)]
enum Pending {
    Nothing,
    Job,
    Answers(Inquiry),
    Start,
}

#[derive(Debug, PartialEq)]
enum LauncherState {
    None,
    Runs,
    Killed,
}

impl World {
    /// A supervisor begins; if `is_second`, an earlier one has started a launcher.
    fn new(options: LaunchOptions, is_second: bool) -> Self {
        let mut state = state(&["s1", "s2"]);
        if is_second {
            (state.start, state.launcher) = (1, Some(state.supervisor.clone()));
        }
        let starts = usize::from(is_second);
        let shares = options.settings.no_spare == NoSpare::Spread;
        let mut world = World {
            shares,
            decisions: Decisions::new(options, state),
            now: 1000.0,
            stops: 0,
            is_full: false,
            pending: Pending::Nothing,
            launcher: LauncherState::None,
            is_terminated: false,
            is_fresh: false,
            lost: BTreeSet::new(),
            starts,
            overs: 0,
            earliest_start: 0.0,
            has_account: false,
            end: None,
        };
        world.feed(Event::Begin);
        world
    }

    fn feed(&mut self, event: Event) {
        let is_unread = matches!(event, Event::Unread(_));
        let actions = self.decisions.on(self.now, event);
        let is_end = |action: &Action| matches!(action, Action::End(_));
        let end = actions.iter().position(is_end);
        assert!(end.is_none_or(|end| end + 1 == actions.len()), "{actions:?}");
        for action in actions {
            if self.end.is_none() {
                self.check(action, is_unread);
            }
        }
    }

    fn check(&mut self, action: Action, is_unread: bool) {
        assert!(matches!(self.pending, Pending::Nothing), "{action:?} in {:?}", self.pending);
        if let Action::Report(kind, text) = &action {
            self.overs += usize::from(*kind == "over");
            if *kind == "pause" {
                let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
                self.earliest_start = self.now + seconds;
            }
        }
        match action {
            Action::Report(..) | Action::Save if self.is_full => {
                self.feed(Event::Unsaved(full_disk()));
            }
            Action::Save => self.feed(Event::Saved),
            Action::Tidy => assert_eq!(self.launcher, LauncherState::None),
            Action::FindJob => self.pending = Pending::Job,
            Action::Ask(inquiry) => {
                let is_right = match inquiry.purpose {
                    Purpose::Check => self.launcher == LauncherState::Runs,
                    _ => self.launcher == LauncherState::None,
                };
                assert!(is_right, "{:?} {inquiry:?}", self.launcher);
                self.pending = Pending::Answers(inquiry);
            }
            Action::Launch(start) => {
                assert_eq!(self.launcher, LauncherState::None, "two launchers");
                let is_lost = |host: &&Host| self.lost.contains(&host.name);
                assert_eq!(start.hosts.iter().find(is_lost), None, "a lost node");
                assert_eq!(start.hosts.iter().map(|host| host.slots).sum::<usize>(), 3);
                assert_eq!(start.hosts.len() < 3, start.shares);
                assert!(self.shares || !start.shares);
                let pool = &self.decisions.state.pool;
                let homes = pool.placed().active;
                assert_eq!(homes, start.hosts);
                assert!(pool.guests.values().all(|place| !pool.away().contains(place)));
                assert!(self.now >= self.earliest_start, "no pause");
                assert_eq!(self.stops, 0, "the user wants it to stop");
                self.starts += 1;
                self.is_terminated = false;
                let most = 1 + self.decisions.options.settings.max_restarts + self.overs;
                assert!(self.starts <= most, "{} starts", self.starts);
                self.is_fresh = start.resume == Some("never");
                self.pending = Pending::Start;
            }
            Action::Terminate => {
                assert!(!self.is_terminated && self.launcher != LauncherState::None);
                self.is_terminated = true;
            }
            Action::Kill => {
                assert_ne!(self.launcher, LauncherState::None);
                assert!(is_unread || self.launcher != LauncherState::Killed, "killed twice");
                self.launcher = LauncherState::Killed;
            }
            Action::Account => {
                assert!(!self.has_account && self.launcher == LauncherState::None);
                self.has_account = true;
            }
            Action::End(end) => {
                let state = &self.decisions.state;
                assert!(end.is_err() || (state.status != Status::Running && self.has_account));
                assert!(end.is_err() || (state.exit.is_some() && state.launcher.is_none()));
                assert!(
                    self.launcher == LauncherState::None || self.launcher == LauncherState::Killed
                );
                self.end = Some(end);
            }
            _ => {}
        }
    }

    /// Takes the step that two numbers choose.
    fn step(&mut self, what: u8, how: u8) {
        if what < 4 {
            self.is_full = !self.is_full;
        }
        self.now += f64::from(how) / 8.0;
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Job if self.decisions.state.launcher.is_some() => {
                self.launcher = LauncherState::Runs;
                self.feed(Event::Found { runs: how.is_multiple_of(2) });
            }
            Pending::Job => self.feed(Event::NoJob { swept: usize::from(how % 2) }),
            Pending::Answers(inquiry) if what == 5 && self.launcher == LauncherState::None => {
                self.pending = Pending::Answers(inquiry);
                self.tick(false);
            }
            Pending::Answers(inquiry) => self.answer(&inquiry, what, how),
            Pending::Start if what == 255 => self.feed(Event::Unstarted(full_disk())),
            Pending::Start => {
                self.launcher = LauncherState::Runs;
                let launcher = self.decisions.state.supervisor.clone();
                self.feed(Event::Launched(launcher));
            }
            Pending::Nothing if self.launcher == LauncherState::None => self.tick(what == 255),
            Pending::Nothing => self.job_does(what, how),
        }
    }

    fn answer(&mut self, inquiry: &Inquiry, what: u8, how: u8) {
        if self.launcher == LauncherState::Runs && how.is_multiple_of(4) {
            return self.launcher_ends();
        }
        let mut survey = Survey::default();
        let asked = inquiry.pool.active.iter().chain(&inquiry.pool.spares);
        for (index, host) in asked.enumerate() {
            let is_spare = index >= inquiry.pool.active.len();
            let health = match (what >> index) & 1 == 1 && how.is_multiple_of(3) {
                true if is_spare && how.is_multiple_of(2) => Health::Unknown,
                true => Health::Ill("no answer".to_owned()),
                false => Health::Well,
            };
            match health {
                Health::Well => {
                    self.lost.remove(&host.name);
                    survey.answers.insert(host.name.clone(), answer());
                }
                Health::Ill(_) => drop(self.lost.insert(host.name.clone())),
                Health::Unknown => {}
            }
            survey.health.insert(host.name.clone(), health);
        }
        let place = |name: &str| ALL.iter().position(|other| *other == name).unwrap_or(0);
        let is_dead = |_: &str, to: &str| (what >> place(to)) & 1 == 1 && how.is_multiple_of(5);
        try_links(&mut survey, inquiry, is_dead);
        self.feed(Event::Answers(survey));
    }

    fn job_does(&mut self, what: u8, how: u8) {
        const PHASES: [&str; 8] =
            ["start", "generate", "factor", "commit", "stamp", "clear", "changed", "reported"];
        let (column, phase) = (usize::from(how) * 4, PHASES[usize::from(how % 8)]);
        match what {
            0..80 => self.feed(beat(phase, column, None)),
            80..90 => {
                let (host, checks) = (format!("n{}", how % 4), u64::from(how / 4 % 4));
                self.feed(corruption(&host, checks, checks));
            }
            90..110 => self.feed(beat("factor", column, None)),
            110..112 => self.feed(beat("reported", column, Some(how % 3))),
            112..116 if !self.is_fresh => self.feed(beat("refused", column, Some(2))),
            116..118 => self.feed(Event::Line(format!("  Peer host:  n{}\n", how % 4))),
            118..120 => {
                let line = format!("  Remote daemon: [[1,0],2] on node n{}\n", how % 4);
                self.feed(Event::Line(line));
            }
            120..124 => self.feed(Event::Report(b"line\n".into())),
            124..126 => {
                self.feed(Event::Unprinted("closed".to_owned()));
            }
            126 if how > 128 => self.feed(beat("start", 0, Some(2))),
            126 => self.feed(Event::Unread(full_disk())),
            127..190 => self.launcher_ends(),
            _ => self.tick(what == 255),
        }
    }

    fn tick(&mut self, is_stop: bool) {
        self.stops += usize::from(is_stop);
        self.feed(Event::Tick { stops: self.stops });
    }

    fn launcher_ends(&mut self) {
        self.launcher = LauncherState::None;
        self.feed(Event::Ended { how: "the launcher ended".to_owned(), succeeded: false });
    }

    /// Lets everything succeed until the run ends.
    fn finish(&mut self) {
        self.is_full = false;
        for _ in 0..20 {
            if self.end.is_some() {
                return;
            }
            match self.launcher {
                LauncherState::None => self.step(4, 254),
                _ => {
                    self.pending = Pending::Nothing;
                    self.feed(beat("done", 1000, Some(0)));
                    self.launcher_ends();
                }
            }
            self.now += 60.0;
        }
        panic!("no end in {:?}", self.decisions);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 10_000, ..Default::default() })]

    /// Whatever happens, there are never two launchers at a time. None starts while nodes are
    /// probed, before a killed one has ended, on a node that was reported lost and has not answered
    /// since, before its pause is over, when the user wants to stop, or beyond `--max-restarts`.
    /// And there is one end, with an account.
    #[test]
    fn invariants_hold_under_random_events(
        script in proptest::collection::vec((any::<u8>(), any::<u8>()), 0..120),
        max_restarts in 0usize..6,
        start_over in any::<bool>(),
        says_resume in any::<bool>(),
        is_second in any::<bool>(),
        replace_suspects in any::<bool>(),
        shares in any::<bool>(),
    ) {
        let set = |settings: &mut LaunchSettings| {
            (settings.max_restarts, settings.start_over) = (max_restarts, start_over);
            settings.replace_suspects = replace_suspects;
            settings.no_spare = if shares { NoSpare::Spread } else { NoSpare::Stop };
        };
        let options = LaunchOptions { says_resume, ..options_with(set) };
        let mut world = World::new(options, is_second);
        for (what, how) in script {
            if world.end.is_some() {
                break;
            }
            world.step(what, how);
        }
        world.finish();
    }
}
