//! The meter of the site: a command that prints its readings during the job.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use skt_host::wait_clock::WaitClock;

use crate::heartbeat;
use crate::record::energy::EnergyReading;
use crate::record::meter_lines::{LineError, MeterLines};
use crate::record::power_log::{LONGEST_BETWEEN, PowerLog};
use skt_host::messages;

/// How long the first reading is waited for: readings that are further apart are of no use.
const FIRST: Duration = Duration::from_secs(LONGEST_BETWEEN as u64);
/// Seconds added to the longest time between earlier readings, to wait for the next one.
const MARGIN_SECONDS: f64 = 10.0;
/// The time between two looks for a reading.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest line that is read, in bytes.
const LONGEST_LINE: u64 = 4096;

/// A command that prints lines of a meter, the time in seconds since 1970 by the clock of its host.
/// It ends when this is dropped or, if this process is killed, at its next line.
#[derive(Debug)]
pub(super) struct Meter {
    child: Child,
    output: Arc<Mutex<MeterOutput>>,
    level: Option<u8>,
}

#[derive(Debug, Default)]
struct MeterOutput {
    log: PowerLog,
    has_ended: bool,
}

/// Why there is no meter, or why it has no energy for a test.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeterError {
    #[error("--power-command cannot be started: {0}")]
    Start(std::io::Error),
    #[error("--power-command, line {line}, {error}")]
    Line { line: usize, error: LineError },
    #[error(
        "--power-command has ended without a reading: it is to print a line `SECONDS WATTS` again \
         and again, the time in seconds since 1970"
    )]
    Ended,
    #[error(
        "--power-command has printed no reading in {} s: a line is `SECONDS WATTS`, the time in \
         seconds since 1970, and has to leave the buffers of the command",
        FIRST.as_secs()
    )]
    Silent,
    #[error(
        "--power-command says nothing of a test: its readings are from {from:.1} to {to:.1}, the test \
         took {begin:.1} to {end:.1}, in seconds since 1970; is the meter's clock off?"
    )]
    Uncovered { from: f64, to: f64, begin: f64, end: f64 },
}

fn lock(output: &Mutex<MeterOutput>) -> MutexGuard<'_, MeterOutput> {
    // No thread that panics leaves a change half done.
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meter {
    /// Starts `command` with `sh`, and waits for its first reading. `level` is that of the
    /// measurement, if the user names one.
    pub fn start(command: &str, level: Option<u8>) -> Result<Self, MeterError> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = shell.spawn().map_err(MeterError::Start)?;
        let out = child.stdout.take().expect("it is piped");
        let (output, (first, is_there)) = (Arc::<Mutex<MeterOutput>>::default(), channel());
        let meter = Self { child, output: output.clone(), level };
        let reader = thread::Builder::new().name("power meter".to_owned());
        reader.spawn(move || listen(out, &output, &first)).map_err(MeterError::Start)?;
        meter.await_first(&is_there)?;
        Ok(meter)
    }

    fn await_first(&self, is_there: &Receiver<Result<(), MeterError>>) -> Result<(), MeterError> {
        let mut clock = WaitClock::new(FIRST);
        loop {
            match is_there.recv_timeout(PAUSE) {
                Ok(first) => return first,
                Err(RecvTimeoutError::Disconnected) => return Err(MeterError::Ended),
                Err(RecvTimeoutError::Timeout) if clock.is_over() => {
                    return Err(MeterError::Silent);
                }
                // A supervisor would take the wait for a hang.
                Err(RecvTimeoutError::Timeout) => heartbeat::piece(),
            }
        }
    }

    /// The energy of a test of `seconds` that ended at `end_unix`. Waits for the first reading
    /// after its end ([`patience`]).
    ///
    /// # Errors
    /// [`MeterError::Uncovered`] if nothing is known of it.
    pub fn over(&self, end_unix: f64, seconds: f64) -> Result<EnergyReading, MeterError> {
        let mut clock = WaitClock::new(Duration::ZERO);
        loop {
            let output = lock(&self.output);
            clock.set_limit(patience(&output.log));
            let is_past_the_end = output.log.span().is_some_and(|(_, last)| last >= end_unix);
            if is_past_the_end || output.has_ended || clock.is_over() {
                let reading = output.log.over(end_unix, seconds, "what --power-command measures");
                let uncovered = || {
                    let (from, to) = output.log.span().expect("no meter starts without a reading");
                    MeterError::Uncovered { from, to, begin: end_unix - seconds, end: end_unix }
                };
                return reading
                    .map(|reading| EnergyReading { level: self.level, ..reading })
                    .ok_or_else(uncovered);
            }
            drop(output);
            heartbeat::piece();
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // The child has not been waited for yet, so the system has not reused its id.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// How long to wait for a meter's next reading, given the readings so far.
fn patience(log: &PowerLog) -> Duration {
    let seconds = log.longest_between().map_or(LONGEST_BETWEEN, |longest| longest + MARGIN_SECONDS);
    Duration::from_secs_f64(seconds.min(LONGEST_BETWEEN))
}

/// Reads the lines of the command until it ends. A wrong line before the first reading is an error;
/// later ones are left out, and the power next to them is unknown.
fn listen(out: ChildStdout, output: &Mutex<MeterOutput>, first: &Sender<Result<(), MeterError>>) {
    let (mut out, mut bytes) = (BufReader::new(out), Vec::new());
    let (mut lines, mut has_reading, mut has_warned) = (MeterLines::default(), false, false);
    for line in 1.. {
        bytes.clear();
        match out.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes) {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
        let is_end = bytes.last() != Some(&b'\n') && (bytes.len() as u64) < LONGEST_LINE;
        if is_end {
            // The command may have ended within a number.
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let read = lines.read(&text).and_then(|reading| match reading {
            Some(reading) => lock(output)
                .log
                .add(reading)
                .map(|()| true)
                .map_err(|what| LineError { column: 1, what: what.to_owned() }),
            None => Ok(false),
        });
        match read {
            Ok(false) => {}
            Ok(true) => {
                has_reading = true;
                _ = first.send(Ok(()));
            }
            Err(error) if !has_reading => {
                _ = first.send(Err(MeterError::Line { line, error }));
                break;
            }
            Err(error) => {
                lock(output).log.cut();
                if !std::mem::replace(&mut has_warned, true) {
                    messages::print(format_args!(
                        "warning: --power-command, line {line}, {error}; this line is left out, and \
                         the power beside it is unknown"
                    ));
                }
            }
        }
    }
    lock(output).has_ended = true;
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use skt_host::clock::now_unix;

    #[test]
    fn a_meter_of_constant_power() {
        let command = "echo time watts; while date '+%s.%N 100'; do sleep 0.1; done";
        let begin = now_unix();
        let meter = Meter::start(command, Some(1)).unwrap();
        let covers = |(first, last): (f64, f64)| last - first > 0.4;
        while !lock(&meter.output).log.span().is_some_and(covers) {
            thread::sleep(Duration::from_millis(10));
        }
        let end = now_unix();
        let reading = meter.over(end, end - begin).unwrap();
        let seconds = reading.measured_seconds;
        assert!(seconds > 0.3 && seconds <= end - begin, "{reading:?}");
        assert!((reading.joules - 100.0 * seconds).abs() < 1e-3, "{reading:?}");
        assert_eq!((reading.level, reading.source.as_str()), (Some(1), "meter"));
        let pid = Pid::from_raw(meter.child.id() as i32);
        drop(meter);
        // The killed children of the shell exist until the first process (init) has reaped them.
        let begun = Instant::now();
        while killpg(pid, None).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(60), "its children have not ended");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_meter_that_ends_leaves_the_rest_unknown() {
        let meter = Meter::start("date '+%s.%N 50'; sleep 0.3; date '+%s.%N 50'", None).unwrap();
        while !lock(&meter.output).has_ended {
            thread::sleep(Duration::from_millis(10));
        }
        let end = now_unix() + 1000.0;
        let reading = meter.over(end, 2000.0).expect("its first readings");
        assert!(reading.measured_seconds < 990.0 && reading.mean_watts > 49.0, "{reading:?}");
        let why = meter.over(5000.0, 100.0).unwrap_err().to_string();
        let end = "took 4900.0 to 5000.0, in seconds since 1970; is the meter's clock off?";
        assert!(why.ends_with(end), "{why}");
    }

    #[test]
    fn a_slow_meter_is_waited_for_as_long_as_it_takes() {
        let seconds = |times: &[f64]| {
            let mut log = PowerLog::default();
            times.iter().for_each(|&time| log.add((time, 100.0)).unwrap());
            patience(&log).as_secs()
        };
        assert_eq!((seconds(&[5.0]), seconds(&[5.0, 6.0, 7.0])), (60, 11));
        assert_eq!((seconds(&[0.0, 30.0, 31.0]), seconds(&[0.0, 55.0])), (40, 60));
    }

    #[test]
    fn a_command_without_readings_is_refused() {
        let why = |command: &str| Meter::start(command, None).unwrap_err();
        assert!(matches!(why("exit 0"), MeterError::Ended));
        assert!(matches!(why("echo time watts"), MeterError::Ended));
        assert!(matches!(why("printf '5 41'"), MeterError::Ended), "a number may be cut");
        let named = why("echo '# meter 3'; echo 1,5 412,5; sleep 60").to_string();
        let begin = "--power-command, line 2, column 9: 3 fields in place of 2";
        assert!(named.starts_with(begin), "{named}");
    }

    #[test]
    fn power_next_to_a_wrong_line_is_unknown() {
        let command = "printf '0 10\\n1 10\\n1,5 10\\n2 10\\n3 10\\n'";
        let meter = Meter::start(command, None).unwrap();
        while !lock(&meter.output).has_ended {
            thread::sleep(Duration::from_millis(10));
        }
        let reading = meter.over(3.0, 3.0).unwrap().rated(1.0, 3.0);
        assert_eq!((reading.measured_seconds, reading.gflops_per_watt), (2.0, None));
    }
}
