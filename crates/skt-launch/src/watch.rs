//! Judges whether the job is still alive, by a limit for the time between two heartbeats. The limit
//! follows from the measured pace and from what the job itself expects of its next step.

use std::collections::HashMap;

use skt_checkpoint::heartbeat::{CHECKPOINT, COMPUTE, FACTOR, Heartbeat, WAIT};

/// A pause, or a phase without columns, is a hang if it takes longer than this many times the
/// longest so far and what the job expects.
const PACE_FACTOR: f64 = 10.0;
/// A pause of this many times the longest so far, and of at least [`PROBE_SECONDS_MIN`], is a
/// reason to probe the nodes.
const PROBE_FACTOR: f64 = 2.0;
const PROBE_SECONDS_MIN: f64 = 2.0;

#[derive(Debug, Clone, Copy, Default)]
pub struct MinTimeouts {
    pub columns_seconds: f64,
    /// The bound for phases that have no columns and have not been measured yet, and for the start.
    pub phase_seconds: f64,
}

impl MinTimeouts {
    /// The bounds that follow from the one for columns, which the user gives. Phases without
    /// columns, such as starting thousands of ranks or filling the memory, have no pace and get ten
    /// times as much until they have been measured.
    pub fn from_columns(columns_seconds: f64) -> Self {
        Self { columns_seconds, phase_seconds: 10.0 * columns_seconds }
    }
}

/// Watches the heartbeats of one run, over all its starts. Times are seconds on any clock that does
/// not go back.
#[derive(Debug, Default)]
pub struct HeartbeatWatch {
    min_timeouts: MinTimeouts,
    /// The last heartbeat of this start that was not of a wait.
    last: Option<Heartbeat>,
    /// When a heartbeat last brought something new.
    alive_at_seconds: f64,
    /// When a column was last seen to be done, or the phase began.
    column_at_seconds: f64,
    /// What a waiting rank expects of the next step that it waits for, if the last heartbeat is of
    /// a wait.
    wait_expected_seconds: Option<f64>,
    /// The longest pause between two heartbeats of a wait.
    longest_wait_pause_seconds: f64,
    waited_in_step_seconds: f64,
    waited_in_phase_seconds: f64,
    /// The longest step that the job has expected, and the longest that was reported to the user.
    expected_step_seconds: f64,
    reported_seconds: f64,
    longest_step_seconds: f64,
    longest_step_columns: usize,
    /// How long each phase took in tests of each N; a time predicts nothing about a larger N.
    phases: HashMap<(String, usize), f64>,
    phase_since_seconds: f64,
    start: StartPace,
    /// The job's own clock, while old heartbeats are read that an earlier supervisor has watched.
    replay: Option<Replay>,
    /// What is known of a program of the user; `None` for the benchmark.
    program: Option<ProgramPace>,
}

/// When the job sent heartbeats that an earlier supervisor has watched. They are all read at once,
/// so only the job's own times in them show how far they are apart.
#[derive(Debug)]
struct Replay {
    /// When the job sent the last heartbeat, as far as it is known.
    at_seconds: f64,
    /// The rank that sent it, and the time since this rank's process began.
    rank: usize,
    elapsed_seconds: f64,
}

impl Replay {
    /// When `beat` was sent. Ranks that wait send heartbeats, too; their clocks are not compared.
    fn time(&mut self, beat: &Heartbeat) -> f64 {
        if beat.rank == self.rank {
            self.at_seconds += (beat.elapsed_seconds - self.elapsed_seconds).max(0.0);
        }
        if beat.rank == self.rank || beat.phase != WAIT {
            (self.rank, self.elapsed_seconds) = (beat.rank, beat.elapsed_seconds);
        }
        self.at_seconds
    }
}

/// The pace of a program of the user, as far as its signs show it. It may do what it likes between
/// two signs, so that only what this run has measured counts.
#[derive(Debug, Default)]
struct ProgramPace {
    /// When a checkpoint of this start was last seen to be complete.
    checkpoint_at_seconds: Option<f64>,
    /// The longest time from one checkpoint to the next, in all starts.
    longest_seconds: f64,
    longest_pause_seconds: f64,
}

/// Whether a program of the user reports that it computes or takes a checkpoint, and so advances.
fn computes(beat: &Heartbeat) -> bool {
    [COMPUTE, CHECKPOINT].contains(&beat.phase.as_str())
}

impl ProgramPace {
    fn note(&mut self, last: Option<(&Heartbeat, f64)>, beat: &Heartbeat, now_seconds: f64) {
        let Some((last, alive_at_seconds)) = last else {
            self.checkpoint_at_seconds = None;
            return;
        };
        if computes(last) && computes(beat) {
            let pause = now_seconds - alive_at_seconds;
            self.longest_pause_seconds = self.longest_pause_seconds.max(pause);
        }
        // A start may take its first checkpoint at once, which does not predict the next.
        if computes(last) && beat.column > last.column {
            let since = self.checkpoint_at_seconds.replace(now_seconds).unwrap_or(now_seconds);
            self.longest_seconds = self.longest_seconds.max(now_seconds - since);
        }
    }

    /// How long a program whose last sign is `last` may be silent; for ever if no time between
    /// checkpoints was measured, or in phases that are not measured.
    fn limit_seconds(&self, floor_seconds: f64, last: &Heartbeat) -> f64 {
        if self.longest_seconds == 0.0 || !computes(last) {
            return f64::INFINITY;
        }
        let longest = self.longest_seconds.max(self.longest_pause_seconds);
        floor_seconds.max(PACE_FACTOR * longest)
    }
}

/// What is known of the time from the launcher's start to the first heartbeat.
#[derive(Debug, Default)]
struct StartPace {
    since_seconds: f64,
    /// The longest time of the starts that have lived.
    longest_seconds: f64,
    /// What a launcher needs at least, by the time that the agent took to reach the nodes.
    reach_seconds: f64,
    /// Number of silent starts since one lived; each has twice the time of the one before.
    silent: i32,
}

impl StartPace {
    /// The time that a start takes, as far as it is known.
    fn seconds(&self) -> Option<f64> {
        Some(self.longest_seconds.max(self.reach_seconds)).filter(|seconds| *seconds > 0.0)
    }

    /// How long a start may be silent. Until one has lived, only what the launcher needs at least
    /// is known; ranks, their MPI and the self-test may take much longer, so the limit is
    /// `at_most`, or more. After starts without a heartbeat, each has twice the limit of the one
    /// before.
    fn limit_seconds(&self, at_least: f64, at_most: f64) -> f64 {
        let known = PACE_FACTOR * self.seconds().unwrap_or(0.0);
        if self.longest_seconds == 0.0 {
            return at_most.max(known);
        }
        let limit = at_least.max(known);
        (limit * 2f64.powi((self.silent - 1).clamp(0, 30))).min(limit.max(at_most))
    }
}

impl HeartbeatWatch {
    pub fn new(min_timeouts: MinTimeouts) -> Self {
        Self { min_timeouts, ..Self::default() }
    }

    pub(crate) fn for_program(min_timeouts: MinTimeouts) -> Self {
        Self { program: Some(ProgramPace::default()), ..Self::new(min_timeouts) }
    }

    /// Notes how long the agent took to reach the slowest node, its handshake included. A launcher
    /// reaches `nodes` nodes in the same way, level by level in a tree.
    pub(crate) fn reached(&mut self, slowest_seconds: f64, nodes: usize) {
        let levels = 1.0 + (nodes.max(1) as f64).log2().ceil();
        self.start.reach_seconds = self.start.reach_seconds.max(levels * slowest_seconds);
    }

    /// Notes a start of the job. What was learned of its pace stays.
    pub(crate) fn start(&mut self, now_seconds: f64) {
        (self.last, self.wait_expected_seconds) = (None, None);
        (self.waited_in_step_seconds, self.waited_in_phase_seconds) = (0.0, 0.0);
        self.alive_at_seconds = now_seconds;
        self.column_at_seconds = now_seconds;
        self.phase_since_seconds = now_seconds;
        self.start.since_seconds = now_seconds;
        self.start.silent += 1;
        self.replay = None;
    }

    /// Notes that an earlier supervisor has started the job at `launched_seconds`. The clock of the
    /// job's ranks began at `begun_seconds`, as far as it is known. The job's heartbeats so far
    /// come next, until [`HeartbeatWatch::replayed`]. How long the start took is taken as unknown.
    pub(crate) fn replay(&mut self, launched_seconds: f64, begun_seconds: f64) {
        self.start(launched_seconds);
        let (rank, elapsed_seconds) = (0, 0.0);
        self.replay = Some(Replay { at_seconds: begun_seconds, rank, elapsed_seconds });
    }

    /// Notes that all heartbeats of an earlier time have been read, if there were any: silence
    /// begins to count now.
    pub(crate) fn replayed(&mut self, now_seconds: f64) {
        if self.replay.take().is_some() {
            self.alive_at_seconds = now_seconds;
            self.column_at_seconds = self.column_at_seconds.min(now_seconds);
            self.phase_since_seconds = self.phase_since_seconds.min(now_seconds);
            if let Some(pace) = &mut self.program {
                pace.checkpoint_at_seconds =
                    pace.checkpoint_at_seconds.map(|at| at.min(now_seconds));
            }
        }
    }

    /// Notes that the job was not watched in the last `seconds`. The job may have been stopped as
    /// well, so this is no silence. Short times count, or a supervisor that is often held up for a
    /// moment would never find that a job hangs.
    pub(crate) fn unwatched(&mut self, seconds: f64, now_seconds: f64) {
        if seconds > self.min_timeouts.columns_seconds / 3.0 {
            self.stood_still(seconds, now_seconds);
        }
    }

    /// Notes that all ranks of the job are stopped now: the silence begins when they continue.
    pub(crate) fn suspended(&mut self, now_seconds: f64) {
        self.stood_still(now_seconds - self.alive_at_seconds, now_seconds);
    }

    /// Does not count these seconds: neither as a silence, nor in the pace that is measured, which
    /// later silences are compared with.
    fn stood_still(&mut self, seconds: f64, now_seconds: f64) {
        self.alive_at_seconds = (self.alive_at_seconds + seconds).min(now_seconds);
        self.waited_in_step_seconds += seconds;
        self.waited_in_phase_seconds += seconds;
        if let Some(ProgramPace { checkpoint_at_seconds: Some(at), .. }) = &mut self.program {
            *at = (*at + seconds).min(now_seconds);
        }
    }

    /// Notes a heartbeat. One that only repeats what is known does not count: a program in an
    /// endless loop hangs.
    pub fn beat(&mut self, beat: &Heartbeat, now_seconds: f64) {
        let now_seconds = self.replay.as_mut().map_or(now_seconds, |replay| replay.time(beat));
        if self.wait_expected_seconds.take().is_some() {
            let pause = now_seconds - self.alive_at_seconds;
            self.waited_in_step_seconds += pause;
            self.waited_in_phase_seconds += pause;
            if beat.phase == WAIT {
                self.longest_wait_pause_seconds = self.longest_wait_pause_seconds.max(pause);
            }
        }
        if beat.phase == WAIT {
            self.wait_expected_seconds = Some(beat.expected_seconds);
            self.alive_at_seconds = now_seconds;
            return;
        }
        self.expected_step_seconds = self.expected_step_seconds.max(beat.expected_seconds);
        let is_new = self.last.as_ref().is_none_or(|last| {
            let what = |beat: &Heartbeat| (beat.column, beat.steps, beat.pieces, beat.n);
            last.phase != beat.phase || what(last) != what(beat)
        });
        match &mut self.program {
            Some(pace) => {
                let last = self.last.as_ref().map(|last| (last, self.alive_at_seconds));
                pace.note(last, beat, now_seconds);
            }
            None => self.measure(beat, now_seconds),
        }
        if self.last.is_none() {
            self.start.silent = 0;
            if self.replay.is_none() {
                let took = now_seconds - self.start.since_seconds;
                self.start.longest_seconds = self.start.longest_seconds.max(took);
            }
        }
        if is_new {
            self.alive_at_seconds = now_seconds;
        }
        self.last = Some(beat.clone());
    }

    /// Measures the phase, or the step, that ends with `beat`, without its waits: those have a
    /// limit of their own.
    fn measure(&mut self, beat: &Heartbeat, now_seconds: f64) {
        let (ends_step, ends_phase) = match &self.last {
            None => (true, true),
            Some(last) if last.phase != beat.phase => {
                let took = now_seconds - self.phase_since_seconds - self.waited_in_phase_seconds;
                let longest = self.phases.entry((last.phase.clone(), last.n)).or_default();
                *longest = longest.max(took);
                (true, true)
            }
            Some(last) if last.n == beat.n && beat.column > last.column => {
                let step = now_seconds - self.column_at_seconds - self.waited_in_step_seconds;
                self.longest_step_seconds = self.longest_step_seconds.max(step);
                let columns = beat.column - last.column;
                self.longest_step_columns = self.longest_step_columns.max(columns);
                (true, false)
            }
            Some(_) => (false, false),
        };
        if ends_step {
            (self.column_at_seconds, self.waited_in_step_seconds) = (now_seconds, 0.0);
        }
        if ends_phase {
            (self.phase_since_seconds, self.waited_in_phase_seconds) = (now_seconds, 0.0);
        }
    }

    /// How long the job may be silent now, in seconds.
    pub fn limit_seconds(&self) -> f64 {
        let floor = self.min_timeouts.columns_seconds;
        if let Some(expected) = self.wait_expected_seconds {
            let pause = self.longest_wait_pause_seconds.max(expected);
            let limit = self.min_timeouts.phase_seconds.max(PACE_FACTOR * pause);
            // A program need not report that a wait is over, and may do what it likes after it.
            let after = self.program.as_ref().zip(self.last.as_ref());
            return after.map_or(limit, |(pace, last)| limit.max(pace.limit_seconds(floor, last)));
        }
        let Some(last) = &self.last else {
            return self.start.limit_seconds(floor, self.min_timeouts.phase_seconds);
        };
        if let Some(pace) = &self.program {
            return pace.limit_seconds(floor, last);
        }
        let expected = last.expected_seconds;
        if last.phase == FACTOR {
            return floor.max(PACE_FACTOR * self.longest_step_seconds.max(expected));
        }
        match self.before_seconds() {
            Some(before) => floor.max(PACE_FACTOR * before.max(expected)),
            None => self.min_timeouts.phase_seconds.max(PACE_FACTOR * expected),
        }
    }

    /// A message if the job expects a step that takes longer than the lower bound of its limit;
    /// once, and again if a later step takes twice as long.
    pub(crate) fn longer_than_asked(&mut self) -> Option<String> {
        let (step, floor) = (self.expected_step_seconds, self.min_timeouts.columns_seconds);
        if step <= floor.max(2.0 * self.reported_seconds) {
            return None;
        }
        self.reported_seconds = step;
        Some(format!(
            "a step of this run takes up to {step:.0} s by its DGEMM self-test, longer than \
             --hang-after: silence is a hang after {:.0} s, not after {floor:.0} s",
            PACE_FACTOR * step
        ))
    }

    /// How long the present phase took at most so far, at this N.
    fn before_seconds(&self) -> Option<f64> {
        let last = self.last.as_ref()?;
        self.phases.get(&(last.phase.clone(), last.n)).copied()
    }

    /// Seconds since the last heartbeat, if they exceed the limit.
    pub(crate) fn hung_for(&self, now_seconds: f64) -> Option<f64> {
        let silent = self.silent_seconds(now_seconds);
        (silent > self.limit_seconds()).then_some(silent)
    }

    pub(crate) fn silent_seconds(&self, now_seconds: f64) -> f64 {
        now_seconds - self.alive_at_seconds
    }

    /// After how many seconds of silence the nodes are probed: soon where the pace is known,
    /// because not every launcher notices a node that vanishes.
    pub fn probe_after_seconds(&self) -> f64 {
        let latest = self.min_timeouts.columns_seconds / 3.0;
        let of_program = self.program.as_ref().map(|pace| pace.longest_pause_seconds);
        let pace_seconds = match self.last.as_ref().map(|beat| beat.phase.as_str()) {
            None => self.start.seconds(),
            Some(_) if of_program.is_some() => of_program.filter(|pause| *pause > 0.0),
            Some(FACTOR) if self.longest_step_seconds > 0.0 => Some(self.longest_step_seconds),
            // No step was measured (one heartbeat between two checkpoints), or this is another
            // phase.
            Some(_) => self.before_seconds(),
        };
        let probe = |pace: f64| (PROBE_FACTOR * pace).max(PROBE_SECONDS_MIN).min(latest);
        pace_seconds.map_or(latest, probe)
    }

    pub(crate) fn last(&self) -> Option<&Heartbeat> {
        self.last.as_ref()
    }

    /// The largest number of columns between two heartbeats: the column at which a job died is
    /// known to within this number.
    pub(crate) fn resolution_columns(&self) -> usize {
        self.longest_step_columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(phase: &str, column: usize) -> Heartbeat {
        let first = Heartbeat::new(String::new(), 0, phase);
        Heartbeat { column, n: 1000, elapsed_seconds: 0.0, ..first }
    }

    fn watch() -> HeartbeatWatch {
        HeartbeatWatch::new(MinTimeouts { columns_seconds: 5.0, phase_seconds: 60.0 })
    }

    #[test]
    fn the_start_has_its_own_limit() {
        let mut watch = watch();
        watch.start(100.0);
        assert_eq!(watch.hung_for(159.0), None);
        assert_eq!(watch.hung_for(161.0), Some(61.0));
    }

    /// An hour in which the job stood still is no step of an hour: it could hang for ten then.
    #[test]
    fn suspended_time_is_no_part_of_the_pace() {
        for is_suspended in [true, false] {
            let mut watch = watch();
            watch.start(0.0);
            watch.beat(&beat("factor", 0), 1.0);
            watch.beat(&beat("factor", 1), 2.0);
            let limit = watch.limit_seconds();
            if is_suspended {
                watch.suspended(1000.0);
                watch.suspended(3602.0);
            } else {
                watch.unwatched(3600.0, 3602.0);
            }
            assert_eq!(watch.silent_seconds(3602.0), 0.0);
            watch.beat(&beat("factor", 2), 3603.0);
            watch.beat(&beat("factor", 3), 3604.0);
            assert_eq!(watch.limit_seconds(), limit.max(10.0), "{is_suspended}");
        }
    }

    #[test]
    fn the_limit_follows_the_pace() {
        let mut watch = watch();
        watch.start(0.0);
        watch.beat(&beat("factor", 0), 1.0);
        assert_eq!(watch.limit_seconds(), 5.0);
        watch.beat(&beat("factor", 100), 3.0);
        assert_eq!(watch.limit_seconds(), 20.0);
        watch.beat(&beat("factor", 150), 3.5);
        assert_eq!((watch.limit_seconds(), watch.resolution_columns()), (20.0, 100));
        assert_eq!(watch.hung_for(23.0), None);
        assert!(watch.hung_for(24.0).is_some());
        // The next start knows the pace.
        watch.start(30.0);
        watch.beat(&beat("factor", 100), 31.0);
        assert_eq!(watch.limit_seconds(), 20.0);
    }

    #[test]
    fn nodes_are_probed_early_if_the_pace_is_known() {
        let mut watch = HeartbeatWatch::new(MinTimeouts::from_columns(30.0));
        watch.start(0.0);
        assert_eq!(watch.probe_after_seconds(), 10.0);
        watch.beat(&beat("factor", 0), 1.0);
        assert_eq!(watch.probe_after_seconds(), 10.0);
        watch.beat(&beat("factor", 50), 1.5);
        assert_eq!(watch.probe_after_seconds(), 2.0);
        watch.beat(&beat("factor", 100), 3.5);
        assert_eq!(watch.probe_after_seconds(), 4.0);
        watch.beat(&beat("factor", 150), 9.5);
        assert_eq!(watch.probe_after_seconds(), 10.0, "not later than without it");
        watch.beat(&beat("encode", 150), 10.0);
        assert_eq!(watch.probe_after_seconds(), 10.0);
        // A phase that was measured before is probed as soon.
        let mut watch = HeartbeatWatch::new(MinTimeouts::from_columns(30.0));
        watch.start(0.0);
        watch.beat(&beat("factor", 0), 1.0);
        watch.beat(&beat("encode", 100), 3.0);
        watch.beat(&beat("factor", 100), 3.5);
        assert_eq!(watch.probe_after_seconds(), 4.0);
        watch.beat(&beat("encode", 200), 4.5);
        assert_eq!(watch.probe_after_seconds(), 2.0, "it took half a second before");
    }

    #[test]
    fn limit_of_a_start_without_heartbeats_is_learned() {
        let mut watch = HeartbeatWatch::new(MinTimeouts::from_columns(30.0));
        watch.start(0.0);
        assert_eq!(watch.limit_seconds(), 300.0, "nothing is known");
        // A thousand nodes, the slowest of which took five seconds: eleven levels.
        let mut watch = HeartbeatWatch::new(MinTimeouts::from_columns(30.0));
        watch.reached(5.0, 1000);
        watch.start(0.0);
        assert_eq!((watch.limit_seconds(), watch.probe_after_seconds()), (550.0, 10.0));
        watch.start(600.0);
        assert_eq!(watch.limit_seconds(), 550.0);
        // A start that has lived is the best measure.
        watch.beat(&beat("start", 0), 670.0);
        watch.start(800.0);
        assert_eq!(watch.limit_seconds(), 700.0);
        let mut quick = HeartbeatWatch::new(MinTimeouts::from_columns(30.0));
        quick.reached(0.1, 5);
        quick.start(0.0);
        assert_eq!((quick.limit_seconds(), quick.probe_after_seconds()), (300.0, 2.0));
        quick.beat(&beat("start", 0), 1.0);
        // Each start in vain gives the next one twice the time, up to the limit of the first.
        for (start, limit) in
            [(10.0, 30.0), (50.0, 60.0), (120.0, 120.0), (250.0, 240.0), (500.0, 300.0)]
        {
            quick.start(start);
            assert_eq!(quick.limit_seconds(), limit);
        }
    }

    #[test]
    fn step_may_take_its_expected_time_and_its_parts_count() {
        let mut watch = watch();
        watch.start(0.0);
        watch.beat(&Heartbeat { expected_seconds: 35.0, ..beat("begin", 0) }, 1.0);
        assert_eq!(watch.limit_seconds(), 350.0);
        let longer = watch.longer_than_asked().unwrap();
        assert!(
            longer.contains("takes up to 35 s") && longer.contains("after 350 s, not after 5 s")
        );
        watch.beat(&Heartbeat { expected_seconds: 34.0, ..beat("factor", 384) }, 36.0);
        assert_eq!((watch.limit_seconds(), watch.longer_than_asked()), (340.0, None));
        watch.beat(&Heartbeat { pieces: 7, expected_seconds: 34.0, ..beat("factor", 384) }, 60.0);
        assert_eq!(watch.silent_seconds(61.0), 1.0);
        // A step is measured from column to column nevertheless.
        watch.beat(&beat("factor", 768), 76.0);
        assert_eq!(watch.limit_seconds(), 400.0);
    }

    #[test]
    fn wait_has_a_separate_limit() {
        let mut watch = watch();
        watch.start(0.0);
        watch.beat(&beat("commit", 64), 1.0);
        watch.beat(&beat("flush", 64), 1.1);
        watch.beat(&beat("factor", 64), 1.5);
        watch.beat(&beat("commit", 128), 2.0);
        assert_eq!(watch.limit_seconds(), 5.0);
        // A wait of any rank counts.
        let wait = |steps, expected_seconds| Heartbeat {
            rank: 3,
            steps,
            expected_seconds,
            ..beat(WAIT, 64)
        };
        watch.beat(&wait(1, 0.0), 2.5);
        assert_eq!((watch.limit_seconds(), watch.hung_for(62.0)), (60.0, None));
        // A sync that the waiting rank expects to be long, and one that was long.
        watch.beat(&wait(2, 30.0), 12.5);
        assert_eq!(watch.limit_seconds(), 300.0);
        watch.beat(&wait(3, 0.0), 92.5);
        assert_eq!(watch.limit_seconds(), 800.0);
        assert_eq!(watch.hung_for(893.0), Some(800.5), "a disk that hangs for ever");
        // Other phases take nothing from that.
        watch.beat(&beat("flush", 128), 102.5);
        assert_eq!(watch.limit_seconds(), 5.0);
        watch.beat(&beat("factor", 128), 103.0);
        assert_eq!(watch.limit_seconds(), 5.0);
        watch.beat(&wait(1, 0.0), 104.0);
        watch.beat(&wait(2, 0.0), 114.0);
        watch.beat(&beat("factor", 192), 115.0);
        assert_eq!(watch.limit_seconds(), 10.0, "one second from column to column");
    }

    #[test]
    fn limit_of_a_program_follows_its_checkpoints() {
        let mut watch = HeartbeatWatch::for_program(MinTimeouts::from_columns(30.0));
        watch.start(0.0);
        assert_eq!(watch.limit_seconds(), 300.0, "a launcher that starts nothing hangs");
        watch.beat(&beat("start", 0), 1.0);
        assert_eq!(watch.hung_for(1e9), None, "it gives no signs");
        watch.beat(&beat("open", 0), 2.0);
        watch.beat(&beat("compute", 0), 3.0);
        assert_eq!(watch.hung_for(1e9), None);
        // The first checkpoint comes at once, the second one after a minute, with steps between.
        watch.beat(&beat("compute", 1), 3.1);
        for step in 1..=6 {
            watch.beat(&Heartbeat { steps: step, ..beat("compute", 1) }, 3.1 + 10.0 * step as f64);
        }
        assert_eq!(watch.hung_for(1e9), None, "no checkpoint follows another yet");
        assert_eq!(watch.probe_after_seconds(), 10.0, "not later than without signs");
        watch.beat(&beat("checkpoint", 1), 63.2);
        watch.beat(&beat("compute", 2), 63.5);
        assert_eq!(watch.limit_seconds(), 604.0);
        watch.beat(&Heartbeat { steps: 7, ..beat("compute", 2) }, 300.0);
        assert_eq!((watch.hung_for(900.0), watch.limit_seconds()), (None, 2365.0));
        // The next start knows it; what it does before it computes is not measured.
        watch.start(3000.0);
        watch.beat(&beat("start", 0), 3001.0);
        assert_eq!(watch.hung_for(1e9), None);
        watch.beat(&beat("compute", 2), 3100.0);
        assert_eq!(watch.limit_seconds(), 2365.0);
        watch.beat(&beat("reported", 3), 3101.0);
        assert_eq!(watch.hung_for(1e9), None, "it may write its results as long as it likes");
    }

    #[test]
    fn program_waiting_for_an_image_has_the_larger_limit() {
        let mut watch = HeartbeatWatch::for_program(MinTimeouts::from_columns(30.0));
        watch.start(0.0);
        let wait = |steps, expected_seconds| Heartbeat { steps, expected_seconds, ..beat(WAIT, 0) };
        watch.beat(&beat("open", 0), 1.0);
        watch.beat(&wait(1, 0.0), 2.0);
        assert_eq!(watch.hung_for(1e9), None, "it reads images, and then may do what it likes");
        for number in 0..3 {
            watch.beat(&beat("compute", number), 3.0 + number as f64);
        }
        assert_eq!(watch.limit_seconds(), 30.0);
        watch.beat(&beat("checkpoint", 2), 6.0);
        watch.beat(&wait(1, 50.0), 7.0);
        assert_eq!(watch.limit_seconds(), 500.0);
        watch.beat(&beat("compute", 3), 400.0);
        assert_eq!(watch.limit_seconds(), 3950.0);
        watch.beat(&wait(1, 0.0), 401.0);
        assert_eq!(watch.limit_seconds(), 3950.0, "it may compute again without a sign");
    }

    #[test]
    fn quick_checkpoints_keep_the_requested_limit() {
        let mut watch = HeartbeatWatch::for_program(MinTimeouts::from_columns(30.0));
        watch.start(0.0);
        for number in 0..9 {
            watch.beat(&beat("compute", number), 1.0 + 0.5 * number as f64);
        }
        assert_eq!((watch.limit_seconds(), watch.probe_after_seconds()), (30.0, 2.0));
        assert_eq!(watch.hung_for(36.0), Some(31.0));
    }

    #[test]
    fn pace_of_late_heartbeats_follows_the_clock_of_the_job() {
        let mut watch = watch();
        watch.replay(100.0, 110.0);
        let at = |elapsed_seconds, beat| Heartbeat { elapsed_seconds, ..beat };
        watch.beat(&at(0.5, beat("encode", 0)), 5000.0);
        watch.beat(&at(7.5, beat("factor", 0)), 5000.0);
        watch.beat(&at(11.5, beat("factor", 100)), 5000.0);
        // Another rank waits, whose process began later.
        watch.beat(&at(2.0, Heartbeat { rank: 3, ..beat(WAIT, 100) }), 5000.0);
        watch.beat(&at(14.5, beat("factor", 200)), 5000.0);
        assert_eq!(watch.limit_seconds(), 40.0);
        watch.replayed(5000.0);
        assert_eq!(watch.silent_seconds(5000.0), 0.0);
        watch.beat(&beat("encode", 200), 5001.0);
        assert_eq!(watch.limit_seconds(), 70.0);
        watch.start(6000.0);
        assert_eq!(watch.limit_seconds(), 60.0, "how long the start took was not seen");
    }

    #[test]
    fn repeated_heartbeat_does_not_count() {
        let mut watch = watch();
        watch.start(0.0);
        for second in 0..=10 {
            watch.beat(&beat("factor", 64), f64::from(second));
        }
        assert_eq!(watch.hung_for(10.0), Some(10.0));
    }

    #[test]
    fn slow_phase_may_continue_while_it_takes_steps() {
        let mut watch = watch();
        watch.start(0.0);
        watch.beat(&beat("encode", 64), 1.0);
        watch.beat(&beat("factor", 64), 1.1);
        watch.beat(&beat("encode", 128), 2.0);
        for step in 1..=10 {
            watch.beat(&Heartbeat { steps: step, ..beat("encode", 128) }, 2.0 + step as f64);
        }
        assert_eq!(watch.hung_for(16.0), None);
        assert_eq!(watch.hung_for(18.0), Some(6.0));
    }

    #[test]
    fn a_part_without_columns_is_measured_as_a_whole() {
        let mut watch = watch();
        watch.start(0.0);
        watch.beat(&beat("encode", 64), 1.0);
        assert_eq!(watch.limit_seconds(), 60.0);
        watch.beat(&beat("factor", 64), 41.0);
        assert_eq!(watch.limit_seconds(), 5.0, "40 s of encoding are no pace");
        watch.beat(&beat("encode", 128), 42.0);
        assert_eq!(watch.limit_seconds(), 400.0);
    }

    #[test]
    fn phase_that_was_quick_before_has_a_short_limit() {
        let mut watch = watch();
        watch.start(0.0);
        watch.beat(&beat("encode", 64), 1.0);
        watch.beat(&beat("factor", 64), 1.75);
        watch.beat(&beat("encode", 128), 3.0);
        assert_eq!(watch.limit_seconds(), 7.5);
        assert_eq!(watch.hung_for(11.0), Some(8.0));
        // A larger test may take longer.
        watch.beat(&Heartbeat { n: 100_000, ..beat("encode", 0) }, 12.0);
        assert_eq!(watch.limit_seconds(), 60.0);
        // The next start knows the time of the phase.
        watch.start(20.0);
        assert_eq!(watch.limit_seconds(), 10.0, "the start itself took a second");
        watch.beat(&beat("encode", 128), 21.0);
        assert_eq!(watch.limit_seconds(), 7.5);
    }
}
