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

    fn watch() -> HeartbeatWatch {
        HeartbeatWatch::new(5.0, false)
    }

    fn program_watch() -> HeartbeatWatch {
        HeartbeatWatch::new(30.0, true)
    }

    fn play_event(watch: &mut HeartbeatWatch, event: &str) -> f64 {
        let words: Vec<&str> = event.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<f64>().expect("a number");
        let now = number(0);
        match words[1] {
            "launch" => watch.start(now),
            "suspended" => watch.suspended(now),
            "unwatched" => watch.unwatched(number(2), now),
            "replay" => watch.replay(now),
            "replayed" => watch.replayed(now),
            "reached" => watch.reached(number(2), number(3) as usize),
            "later" => {}
            phase => {
                let first = Heartbeat::new(String::new(), 0, phase);
                let column = number(2) as usize;
                let mut beat = Heartbeat { column, n: 1000, elapsed_seconds: 0.0, ..first };
                for (key, value) in words.iter().filter_map(|word| word.split_once('=')) {
                    match key {
                        "n" => beat.n = value.parse().expect("an order"),
                        "steps" => beat.steps = value.parse().expect("a number"),
                        "pieces" => beat.pieces = value.parse().expect("a number"),
                        _ => beat.expected_seconds = value.parse().expect("seconds"),
                    }
                }
                watch.beat(&beat, now);
            }
        }
        now
    }

    /// Plays rows `SECONDS EVENT; SECONDS EVENT => CHECKS`: an event is a heartbeat `PHASE COLUMN KEY=VALUE` or a
    /// call, `later` none; `hung 0` is no hang, and `limit inf` no limit.
    #[track_caller]
    fn play(mut watch: HeartbeatWatch, rows: &str) -> HeartbeatWatch {
        for row in rows.lines().map(str::trim) {
            let (events, checks) = row.split_once(" => ").unwrap_or((row, ""));
            let mut now = 0.0;
            for event in events.split("; ") {
                now = play_event(&mut watch, event);
            }
            for (what, want) in checks.split(", ").filter_map(|check| check.split_once(' ')) {
                let found = match what {
                    "limit" => watch.limit_seconds(),
                    "probe" => watch.probe_after_seconds(),
                    "silent" => watch.silent_seconds(now),
                    _ => watch.hung_for(now).unwrap_or(0.0),
                };
                assert_eq!(found, want.parse::<f64>().expect("seconds"), "{what} in `{row}`");
            }
        }
        watch
    }

    #[test]
    fn the_limit_follows_the_slowest_step_of_a_kind() {
        // The next start knows the pace.
        let learned = play(
            watch(),
            "0 launch => limit 50
             49 later => hung 0
             51 later => hung 51
             51 launch; 52 factor 0 => limit 5
             54 factor 100 => limit 20
             54.5 factor 150 => limit 20
             74 later => hung 0
             75 later => hung 20.5
             81 launch => limit 10
             82 factor 100 => limit 20",
        );
        assert_eq!(learned.resolution_columns(), 100);
        // A part without columns is measured as a whole: 40 s of encoding are no pace of columns.
        play(
            watch(),
            "0 launch; 1 encode 64 => limit 50
             41 factor 64 => limit 5
             42 encode 128 => limit 400",
        );
        // A larger test may take longer. The start itself took a second.
        play(
            watch(),
            "0 launch; 1 encode 64 => limit 50
             1.75 factor 64 => limit 5
             3 encode 128 => limit 7.5
             11 later => hung 8
             12 encode 0 n=100000 => limit 50
             20 launch => limit 10
             21 encode 128 => limit 7.5",
        );
        // A repeated heartbeat does not count, and a slow phase continues while it takes steps.
        let mut repeated = play(watch(), "0 launch");
        for second in 0..=10 {
            repeated = play(repeated, &format!("{second} factor 64"));
        }
        play(repeated, "10 later => hung 10");
        let mut slow = play(watch(), "0 launch\n1 encode 64\n1.1 factor 64\n2 encode 128");
        for step in 1..=10 {
            slow = play(slow, &format!("{} encode 128 steps={step}", 2 + step));
        }
        play(slow, "16 later => hung 0\n18 later => hung 6");
    }

    /// An hour in which the job stood still is no step of an hour: it could hang for ten then.
    #[test]
    fn suspended_time_is_no_part_of_the_pace() {
        for stop in ["1000 suspended\n3602 suspended", "3602 unwatched 3600"] {
            play(
                watch(),
                &format!(
                    "0 launch; 1 factor 0; 2 factor 1 => limit 10
                     {stop} => silent 0
                     3603 factor 2; 3604 factor 3 => limit 10"
                ),
            );
        }
    }

    #[test]
    fn nodes_are_probed_early_if_the_pace_is_known() {
        // Not later than without it.
        play(
            HeartbeatWatch::new(30.0, false),
            "0 launch => probe 10
             1 factor 0 => probe 10
             1.5 factor 50 => probe 2
             3.5 factor 100 => probe 4
             9.5 factor 150 => probe 10
             10 encode 150 => probe 10",
        );
        // A phase that took half a second before is probed as soon.
        play(
            HeartbeatWatch::new(30.0, false),
            "0 launch; 1 factor 0; 3 encode 100; 3.5 factor 100 => probe 4
             4.5 encode 200 => probe 2",
        );
    }

    #[test]
    fn limit_of_a_start_without_heartbeats_is_learned() {
        play(HeartbeatWatch::new(30.0, false), "0 launch => limit 300");
        // A thousand nodes, the slowest of which took five seconds: eleven levels. A start that has
        // lived is the best measure.
        play(
            HeartbeatWatch::new(30.0, false),
            "0 reached 5 1000; 0 launch => limit 550, probe 10
             600 launch => limit 550
             670 start 0; 800 launch => limit 700",
        );
        // Each start in vain gives the next one twice the time, up to the limit of the first.
        play(
            HeartbeatWatch::new(30.0, false),
            "0 reached 0.1 5; 0 launch => limit 300, probe 2
             1 start 0; 10 launch => limit 30
             50 launch => limit 60
             120 launch => limit 120
             250 launch => limit 240
             500 launch => limit 300",
        );
    }

    /// A step is measured from column to column, whatever pieces it has.
    #[test]
    fn step_may_take_its_expected_time_and_its_parts_count() {
        let mut watch = play(watch(), "0 launch\n1 begin 0 expected=35 => limit 350");
        let longer = watch.longer_than_asked().unwrap();
        assert!(
            longer.contains("takes up to 35 s") && longer.contains("after 350 s, not after 5 s")
        );
        let mut watch = play(watch, "36 factor 384 expected=34 => limit 340");
        assert_eq!(watch.longer_than_asked(), None);
        play(
            watch,
            "60 factor 384 expected=34 pieces=7; 61 later => silent 1
             76 factor 768 => limit 400",
        );
    }

    /// A wait of any rank counts: a sync that it expects to be long, one that was long, and a disk
    /// that hangs for ever. Other phases take nothing from that.
    #[test]
    fn wait_has_a_separate_limit() {
        play(
            watch(),
            "0 launch; 1 commit 64; 1.1 flush 64; 1.5 factor 64; 2 commit 128 => limit 5
             2.5 wait 64 steps=1 => limit 50
             52 later => hung 0
             12.5 wait 64 steps=2 expected=30 => limit 300
             92.5 wait 64 steps=3 => limit 800
             893 later => hung 800.5
             102.5 flush 128 => limit 5
             103 factor 128 => limit 5
             104 wait 64 steps=1; 114 wait 64 steps=2; 115 factor 192 => limit 10",
        );
    }

    #[test]
    fn limit_of_a_program_follows_its_checkpoints() {
        // The first checkpoint comes at once, the second one after a minute, with steps between. The
        // next start knows it; what it does before it computes is not measured, and it may write its
        // results as long as it likes.
        play(
            program_watch(),
            "0 launch => limit 300
             1 start 0 => limit inf
             2 open 0; 3 compute 0 => limit inf
             3.1 compute 1; 13.1 compute 1 steps=1; 23.1 compute 1 steps=2; 33.1 compute 1 steps=3
             43.1 compute 1 steps=4; 53.1 compute 1 steps=5
             63.1 compute 1 steps=6 => limit inf, probe 10
             63.2 checkpoint 1; 63.5 compute 2 => limit 604
             300 compute 2 steps=7 => limit 2365
             900 later => hung 0
             3000 launch; 3001 start 0 => limit inf
             3100 compute 2 => limit 2365
             3101 reported 3 => limit inf",
        );
        play(
            program_watch(),
            "0 launch; 1 compute 0; 1.5 compute 1; 2 compute 2; 2.5 compute 3 => limit 30, probe 2
             33.5 later => hung 31",
        );
        // It reads images, and then may do what it likes; later it may compute without a sign.
        play(
            program_watch(),
            "0 launch; 1 open 0; 2 wait 0 steps=1 => limit inf
             3 compute 0; 4 compute 1; 5 compute 2 => limit 30
             6 checkpoint 2; 7 wait 0 steps=1 expected=50 => limit 500
             400 compute 3 => limit 3950
             401 wait 0 steps=1 => limit 3950",
        );
    }

    /// Only a part of the step was seen that the job was taken over in, and how long the start took
    /// was not.
    #[test]
    fn heartbeats_of_an_earlier_supervisor_show_no_pace() {
        play(
            watch(),
            "100 replay; 100 encode 0; 100 factor 0; 100 factor 100; 100 factor 200
             105 replayed => silent 0, limit 5
             107 factor 300 => limit 5
             109 factor 400 => limit 20
             110 encode 400 => limit 50
             200 launch => limit 50",
        );
        play(
            HeartbeatWatch::new(5.0, true),
            "100 replay; 100 compute 0; 100 compute 1; 100 compute 4; 105 replayed
             106 compute 5 => limit inf
             107 compute 6 => limit 10
             108 compute 7 => limit 10",
        );
    }
}
