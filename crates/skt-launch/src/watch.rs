//! Judges whether the job is still alive, by a limit for the time between two heartbeats: ten times
//! the slowest step of the same kind so far, or what the job itself expects of the present one.

use std::collections::BTreeMap;

use skt_checkpoint::heartbeat::{CHECKPOINT, COMPUTE, FACTOR, Heartbeat, WAIT};

/// A silence is a hang if it takes longer than this many times the slowest step so far and what the
/// job expects.
const PACE_FACTOR: f64 = 10.0;
/// A start, or a step of a kind that was not seen before, may take this many times as long as one
/// whose pace is known: starting thousands of ranks, or filling the memory.
const UNKNOWN_FACTOR: f64 = 10.0;
/// A pause of this many times the longest so far, and of at least [`PROBE_SECONDS_MIN`], is a
/// reason to probe the nodes.
const PROBE_FACTOR: f64 = 2.0;
const PROBE_SECONDS_MIN: f64 = 2.0;

/// What is comparable: a phase of tests of one N, as a time predicts nothing about a larger N. For
/// columns, waits and what follows here N is 0.
type Kind<'a> = (&'a str, usize);
/// From the launcher's start to the first heartbeat.
const START: Kind = ("start of the launcher", 0);
/// From one checkpoint of a program of the user to the next, and between two signs that it
/// computes. It may do what it likes otherwise, so that only what this run has measured counts.
const NEXT_CHECKPOINT: Kind = ("next checkpoint", 0);
const NEXT_SIGN: Kind = ("next sign", 0);

/// Watches the heartbeats of one run, over all its starts. Times are seconds on any clock that does
/// not go back.
#[derive(Debug, Default)]
pub struct HeartbeatWatch {
    /// The limit that the user gives: no silence that is shorter is a hang.
    floor_seconds: f64,
    is_of_program: bool,
    /// The last heartbeat of this start that was not of a wait.
    last: Option<Heartbeat>,
    /// What a waiting rank expects of the next step that it waits for, if the last heartbeat is of
    /// a wait.
    wait_expected_seconds: Option<f64>,
    /// When a heartbeat last brought something new.
    alive_at_seconds: f64,
    /// When the present step began, or would have begun without the waits in it: a column, another
    /// phase, a start, or the time from checkpoint to checkpoint of a program.
    since_seconds: f64,
    /// Whether this start of a program has taken a checkpoint. It may take its first one at once,
    /// which does not predict the next.
    has_checkpoint: bool,
    /// The slowest step of each kind.
    slowest: BTreeMap<(String, usize), f64>,
    /// What a launcher needs at least, by the time that the agent took to reach the nodes.
    reach_seconds: f64,
    /// Number of silent starts since one lived; each has twice the time of the one before.
    silent_starts: i32,
    /// The longest step that the job has expected, and the longest that was reported to the user.
    expected_seconds: f64,
    reported_seconds: f64,
    longest_step_columns: usize,
    /// Whether heartbeats are read that came when another supervisor watched the job. They are read
    /// all at once, so they show no pace.
    is_replay: bool,
    /// Whether the present step began then, so that only a part of it was seen.
    is_partial: bool,
}

/// Whether a program of the user reports that it computes or takes a checkpoint, and so advances.
fn computes(beat: &Heartbeat) -> bool {
    [COMPUTE, CHECKPOINT].contains(&beat.phase.as_str())
}

/// The kind of step that the benchmark takes after `beat`.
fn kind(beat: &Heartbeat) -> Kind<'_> {
    (&beat.phase, if beat.phase == FACTOR { 0 } else { beat.n })
}

impl HeartbeatWatch {
    /// Watches the benchmark or a program of the user. No silence of less than `floor_seconds` is a
    /// hang.
    pub fn new(floor_seconds: f64, is_of_program: bool) -> Self {
        Self { floor_seconds, is_of_program, ..Self::default() }
    }

    /// Notes how long the agent took to reach the slowest node, its handshake included. A launcher
    /// reaches `nodes` nodes in the same way, level by level in a tree.
    pub(crate) fn reached(&mut self, slowest_seconds: f64, nodes: usize) {
        let levels = 1.0 + (nodes.max(1) as f64).log2().ceil();
        self.reach_seconds = self.reach_seconds.max(levels * slowest_seconds);
    }

    /// Notes a start of the job. What was learned of its pace stays.
    pub(crate) fn start(&mut self, now_seconds: f64) {
        (self.last, self.wait_expected_seconds, self.is_replay) = (None, None, false);
        (self.alive_at_seconds, self.since_seconds) = (now_seconds, now_seconds);
        (self.is_partial, self.has_checkpoint) = (false, false);
        self.silent_starts += 1;
    }

    /// Notes that an earlier supervisor has started the job. Its heartbeats so far come next, until
    /// [`HeartbeatWatch::replayed`].
    pub(crate) fn replay(&mut self, now_seconds: f64) {
        self.start(now_seconds);
        self.is_replay = true;
    }

    /// Notes that all heartbeats of an earlier time have been read, if there were any: silence
    /// begins to count now.
    pub(crate) fn replayed(&mut self, now_seconds: f64) {
        if std::mem::take(&mut self.is_replay) {
            (self.alive_at_seconds, self.since_seconds) = (now_seconds, now_seconds);
            (self.is_partial, self.has_checkpoint) = (true, false);
        }
    }

    /// Notes that the job was not watched in the last `seconds`. The job may have been stopped as
    /// well, so this is no silence. Short times count, or a supervisor that is often held up for a
    /// moment would never find that a job hangs.
    pub(crate) fn unwatched(&mut self, seconds: f64, now_seconds: f64) {
        if seconds > self.floor_seconds / 3.0 {
            // Not in the pace that is measured either, which later silences are compared with.
            for at in [&mut self.alive_at_seconds, &mut self.since_seconds] {
                *at = (*at + seconds).min(now_seconds);
            }
        }
    }

    /// Notes that all ranks of the job are stopped now: the silence begins when they continue.
    pub(crate) fn suspended(&mut self, now_seconds: f64) {
        self.since_seconds =
            (self.since_seconds + now_seconds - self.alive_at_seconds).min(now_seconds);
        self.alive_at_seconds = now_seconds;
    }

    fn measure(&mut self, (phase, n): Kind, seconds: f64) {
        if !self.is_replay {
            let slowest = self.slowest.entry((phase.to_owned(), n)).or_default();
            *slowest = slowest.max(seconds);
        }
    }

    /// Notes that the present step is over, and that the next one begins.
    fn end_step(&mut self, kind: Kind, now_seconds: f64) {
        if !std::mem::take(&mut self.is_partial) {
            self.measure(kind, now_seconds - self.since_seconds);
        }
        self.since_seconds = now_seconds;
    }

    fn slowest(&self, (phase, n): Kind) -> Option<f64> {
        self.slowest.get(&(phase.to_owned(), n)).copied()
    }

    /// Notes a heartbeat. One that only repeats what is known does not count: a program in an
    /// endless loop hangs.
    pub fn beat(&mut self, beat: &Heartbeat, now_seconds: f64) {
        let pause_seconds = now_seconds - self.alive_at_seconds;
        if self.wait_expected_seconds.take().is_some() {
            if !self.is_of_program {
                self.since_seconds += pause_seconds;
            }
            if beat.phase == WAIT {
                self.measure((WAIT, 0), pause_seconds);
            }
        }
        if beat.phase == WAIT {
            self.wait_expected_seconds = Some(beat.expected_seconds);
            self.alive_at_seconds = now_seconds;
            return;
        }
        self.expected_seconds = self.expected_seconds.max(beat.expected_seconds);
        let Some(last) = self.last.replace(beat.clone()) else {
            self.silent_starts = 0;
            self.end_step(START, now_seconds);
            self.alive_at_seconds = now_seconds;
            return;
        };
        let what = |beat: &Heartbeat| (beat.column, beat.steps, beat.pieces, beat.n);
        let is_other_phase = last.phase != beat.phase;
        if is_other_phase || what(&last) != what(beat) {
            self.alive_at_seconds = now_seconds;
        }
        if self.is_of_program {
            if computes(&last) && computes(beat) {
                self.measure(NEXT_SIGN, pause_seconds);
            }
            if computes(&last) && beat.column > last.column {
                self.is_partial = !std::mem::replace(&mut self.has_checkpoint, true);
                self.end_step(NEXT_CHECKPOINT, now_seconds);
            }
            return;
        }
        let is_column = last.phase == FACTOR && last.n == beat.n && beat.column > last.column;
        if is_column && !is_other_phase {
            let columns = beat.column - last.column;
            self.longest_step_columns = self.longest_step_columns.max(columns);
        }
        if is_column || is_other_phase {
            self.end_step(kind(&last), now_seconds);
        }
    }

    /// How long the job may be silent now, in seconds.
    pub fn limit_seconds(&self) -> f64 {
        let floor = self.floor_seconds;
        let limit = |is_known: bool, seconds: f64| {
            let floor = if is_known { floor } else { UNKNOWN_FACTOR * floor };
            floor.max(PACE_FACTOR * seconds)
        };
        // A program need not report that a wait is over, and may do what it likes after it.
        let of_program = self.last.as_ref().filter(|_| self.is_of_program);
        let of_program = of_program.map(|last| self.limit_of_program(last));
        if let Some(expected) = self.wait_expected_seconds {
            let waiting = limit(false, self.slowest((WAIT, 0)).unwrap_or(0.0).max(expected));
            return waiting.max(of_program.unwrap_or(0.0));
        }
        let Some(last) = &self.last else {
            // Until a start has lived, only what the launcher needs at least is known; ranks, their
            // MPI and the self-test may take much longer.
            let longest = self.slowest(START);
            let seconds = longest.unwrap_or(0.0).max(self.reach_seconds);
            let (known, most) = (limit(longest.is_some(), seconds), limit(false, seconds));
            return (known * 2f64.powi((self.silent_starts - 1).clamp(0, 30))).min(most);
        };
        let before = self.slowest(kind(last));
        let is_known = before.is_some() || last.phase == FACTOR;
        let of_step = limit(is_known, before.unwrap_or(0.0).max(last.expected_seconds));
        of_program.unwrap_or(of_step)
    }

    /// How long a program whose last sign is `last` may be silent; for ever if no time between
    /// checkpoints was measured, or in phases that are not measured.
    fn limit_of_program(&self, last: &Heartbeat) -> f64 {
        let longest = self.slowest(NEXT_CHECKPOINT).filter(|_| computes(last));
        longest.map_or(f64::INFINITY, |longest| {
            let longest = longest.max(self.slowest(NEXT_SIGN).unwrap_or(0.0));
            self.floor_seconds.max(PACE_FACTOR * longest)
        })
    }

    /// A message if the job expects a step that takes longer than the lower bound of its limit;
    /// once, and again if a later step takes twice as long.
    pub(crate) fn longer_than_asked(&mut self) -> Option<String> {
        let (step, floor) = (self.expected_seconds, self.floor_seconds);
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
        let latest = self.floor_seconds / 3.0;
        let pace_seconds = match &self.last {
            None => Some(self.slowest(START).unwrap_or(0.0).max(self.reach_seconds)),
            Some(_) if self.is_of_program => self.slowest(NEXT_SIGN),
            Some(last) => self.slowest(kind(last)),
        };
        let probe = |pace: f64| (PROBE_FACTOR * pace).max(PROBE_SECONDS_MIN).min(latest);
        pace_seconds.filter(|pace| *pace > 0.0).map_or(latest, probe)
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
        HeartbeatWatch::new(5.0, false)
    }

    const LAUNCH: &str = "launch";

    /// Starts and heartbeats at some seconds, each with the limit that follows.
    fn play(watch: &mut HeartbeatWatch, rows: &[(f64, &str, usize, f64)]) {
        for &(now, phase, column, limit) in rows {
            match phase {
                LAUNCH => watch.start(now),
                _ => watch.beat(&beat(phase, column), now),
            }
            assert_eq!(watch.limit_seconds(), limit, "{phase} {column} at {now} s");
        }
    }

    #[test]
    fn the_limit_follows_the_slowest_step_of_a_kind() {
        let mut watch = watch();
        play(&mut watch, &[(100.0, LAUNCH, 0, 50.0)]);
        assert_eq!((watch.hung_for(149.0), watch.hung_for(151.0)), (None, Some(51.0)));
        let mut watch = self::watch();
        let steps = [(0.0, LAUNCH, 0, 50.0), (1.0, FACTOR, 0, 5.0), (3.0, FACTOR, 100, 20.0)];
        play(&mut watch, &steps);
        play(&mut watch, &[(3.5, FACTOR, 150, 20.0)]);
        assert_eq!(watch.resolution_columns(), 100);
        assert_eq!((watch.hung_for(23.0), watch.hung_for(24.0)), (None, Some(20.5)));
        // The next start knows the pace.
        play(&mut watch, &[(30.0, LAUNCH, 0, 10.0), (31.0, FACTOR, 100, 20.0)]);
        // A part without columns is measured as a whole.
        let mut watch = self::watch();
        play(&mut watch, &[(0.0, LAUNCH, 0, 50.0), (1.0, "encode", 64, 50.0)]);
        // 40 s of encoding are no pace of columns.
        play(&mut watch, &[(41.0, FACTOR, 64, 5.0), (42.0, "encode", 128, 400.0)]);
        let mut watch = self::watch();
        play(&mut watch, &[(0.0, LAUNCH, 0, 50.0), (1.0, "encode", 64, 50.0)]);
        play(&mut watch, &[(1.75, FACTOR, 64, 5.0), (3.0, "encode", 128, 7.5)]);
        assert_eq!(watch.hung_for(11.0), Some(8.0));
        // A larger test may take longer.
        watch.beat(&Heartbeat { n: 100_000, ..beat("encode", 0) }, 12.0);
        assert_eq!(watch.limit_seconds(), 50.0);
        // The start itself took a second.
        play(&mut watch, &[(20.0, LAUNCH, 0, 10.0), (21.0, "encode", 128, 7.5)]);
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
    fn nodes_are_probed_early_if_the_pace_is_known() {
        let mut watch = HeartbeatWatch::new(30.0, false);
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
        let mut watch = HeartbeatWatch::new(30.0, false);
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
        let mut watch = HeartbeatWatch::new(30.0, false);
        watch.start(0.0);
        assert_eq!(watch.limit_seconds(), 300.0, "nothing is known");
        // A thousand nodes, the slowest of which took five seconds: eleven levels.
        let mut watch = HeartbeatWatch::new(30.0, false);
        watch.reached(5.0, 1000);
        watch.start(0.0);
        assert_eq!((watch.limit_seconds(), watch.probe_after_seconds()), (550.0, 10.0));
        watch.start(600.0);
        assert_eq!(watch.limit_seconds(), 550.0);
        // A start that has lived is the best measure.
        watch.beat(&beat("start", 0), 670.0);
        watch.start(800.0);
        assert_eq!(watch.limit_seconds(), 700.0);
        let mut quick = HeartbeatWatch::new(30.0, false);
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
        assert_eq!((watch.limit_seconds(), watch.hung_for(52.0)), (50.0, None));
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
        let mut watch = HeartbeatWatch::new(30.0, true);
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
        let mut watch = HeartbeatWatch::new(30.0, true);
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
        let mut watch = HeartbeatWatch::new(30.0, true);
        watch.start(0.0);
        for number in 0..9 {
            watch.beat(&beat("compute", number), 1.0 + 0.5 * number as f64);
        }
        assert_eq!((watch.limit_seconds(), watch.probe_after_seconds()), (30.0, 2.0));
        assert_eq!(watch.hung_for(36.0), Some(31.0));
    }

    #[test]
    fn heartbeats_of_an_earlier_supervisor_show_no_pace() {
        let mut watch = watch();
        watch.replay(100.0);
        for (phase, column) in [("encode", 0), (FACTOR, 0), (FACTOR, 100), (FACTOR, 200)] {
            watch.beat(&beat(phase, column), 100.0);
        }
        watch.replayed(105.0);
        assert_eq!((watch.silent_seconds(105.0), watch.limit_seconds()), (0.0, 5.0));
        // Only a part of the step was seen that the job was taken over in.
        watch.beat(&beat(FACTOR, 300), 107.0);
        assert_eq!(watch.limit_seconds(), 5.0);
        watch.beat(&beat(FACTOR, 400), 109.0);
        assert_eq!(watch.limit_seconds(), 20.0);
        watch.beat(&beat("encode", 400), 110.0);
        assert_eq!(watch.limit_seconds(), 50.0, "how long it took before was not seen");
        watch.start(200.0);
        assert_eq!(watch.limit_seconds(), 50.0, "nor how long the start took");
        let mut program = HeartbeatWatch::new(5.0, true);
        program.replay(100.0);
        (0..5).for_each(|number| program.beat(&beat("compute", number), 100.0));
        program.replayed(105.0);
        for (number, limit) in [(5, f64::INFINITY), (6, 10.0), (7, 10.0)] {
            program.beat(&beat("compute", number), 101.0 + number as f64);
            assert_eq!(program.limit_seconds(), limit, "{number}");
        }
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
}
