//! The meter of the site: a command that prints its readings during the job.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use skt_host::wait_clock::WaitClock;

use super::curve::LONGEST_BETWEEN;
use super::fields::LineError;
use super::lock;
use super::log::{LONGEST_LINE, LogSettings, PowerLog};
use crate::heartbeat;
use crate::record::energy::EnergyReading;
use skt_host::messages;

/// How long the first reading is waited for: readings that are further apart are of no use.
const FIRST: Duration = Duration::from_secs(LONGEST_BETWEEN as u64);
/// Seconds added to the longest time between earlier readings, to wait for the next one.
const MARGIN_SECONDS: f64 = 10.0;
/// The time between two looks for a reading.
const PAUSE: Duration = Duration::from_millis(20);

/// The power meter of the site.
#[derive(Debug, Clone, Default)]
pub struct MeterCommand {
    /// Prints the readings; a line of the shell.
    pub command: String,
    /// How its lines are read.
    pub lines: LogSettings,
    /// The level of the measurement in the methodology of the Green500, as the user names it.
    pub level: Option<u8>,
}

/// A command that prints lines of a meter, the time in seconds since 1970 by the clock of its host.
/// It ends when this is dropped or, if this process is killed, at its next line.
#[derive(Debug)]
pub(crate) struct Meter {
    child: Child,
    output: Arc<Mutex<MeterOutput>>,
    level: Option<u8>,
}

#[derive(Debug, Default)]
struct MeterOutput {
    log: PowerLog,
    /// The number of a wrong line before the first reading, and what is wrong with it.
    wrong: Option<(usize, LineError)>,
    has_ended: bool,
}

impl Meter {
    /// Starts the command with `sh`, and waits for its first reading.
    pub(crate) fn start(
        MeterCommand { command, lines, level }: &MeterCommand,
    ) -> Result<Self, String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let refused = |why| format!("--power-command cannot be started: {why}");
        let mut child = shell.spawn().map_err(refused)?;
        let out = child.stdout.take().expect("it is piped");
        let log = PowerLog::new(lines.clone());
        let output = Arc::new(Mutex::new(MeterOutput { log, ..MeterOutput::default() }));
        let meter = Self { child, output: output.clone(), level: *level };
        let reader = thread::Builder::new().name("power meter".to_owned());
        reader.spawn(move || listen(out, &output)).map_err(refused)?;
        let mut begun = meter.wait_for(|output| (output.log.span.is_some(), FIRST));
        let why = match (begun.log.span, begun.wrong.take()) {
            (Some(_), _) => None,
            (None, Some((line, error))) => Some(format!("--power-command, line {line}, {error}")),
            (None, None) => {
                let what = if begun.has_ended {
                    "has ended without a reading".to_owned()
                } else {
                    format!("has printed no reading in {} s", FIRST.as_secs())
                };
                Some(format!(
                    "--power-command {what}: it is to print lines `SECONDS WATTS`, the time in \
                     seconds since 1970"
                ))
            }
        };
        if let Some(lack) = begun.log.lack() {
            messages::print(format_args!("warning: --power-command: {lack}"));
        }
        drop(begun);
        why.map_or(Ok(meter), Err)
    }

    /// Waits until the output is as `state` returns first, the command has ended, or the limit is
    /// over that `state` returns, too.
    fn wait_for(
        &self,
        state: impl Fn(&MeterOutput) -> (bool, Duration),
    ) -> MutexGuard<'_, MeterOutput> {
        let mut clock = WaitClock::new(Duration::ZERO);
        loop {
            let output = lock(&self.output);
            let (is_there, limit) = state(&output);
            clock.set_limit(limit);
            if is_there || output.has_ended || clock.is_over() {
                return output;
            }
            drop(output);
            // A supervisor would take the wait for a hang.
            heartbeat::piece();
            thread::sleep(PAUSE);
        }
    }

    /// The energy of a test of `seconds` that ended at `end_unix`. Waits for the first reading
    /// after its end ([`patience`]).
    pub(crate) fn over(&self, end_unix: f64, seconds: f64) -> Result<EnergyReading, String> {
        let is_past = |log: &PowerLog| log.span.is_some_and(|(_, last)| last >= end_unix);
        let output = self.wait_for(|output| (is_past(&output.log), patience(&output.log)));
        let covers = format!("what --power-command measures{}", output.log.columns());
        let reading = output.log.over(end_unix, seconds, &covers);
        let reading = reading.map_err(|why| format!("--power-command {why}"))?;
        let reading = reading.map(|reading| EnergyReading { level: self.level, ..reading });
        reading.ok_or_else(|| {
            let (from, to) = output.log.span.expect("no meter starts without a reading");
            format!(
                "--power-command reports nothing of a test: its readings are from {from:.1} to \
                 {to:.1}, the test took {:.1} to {end_unix:.1}, in seconds since 1970; is the \
                 meter's clock off?",
                end_unix - seconds
            )
        })
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
    let seconds = log.longest_between.map_or(LONGEST_BETWEEN, |longest| longest + MARGIN_SECONDS);
    Duration::from_secs_f64(seconds.min(LONGEST_BETWEEN))
}

/// Reads the lines of the command until it ends. A wrong line before the first reading is an error;
/// later ones are left out, and the power next to them is unknown.
fn listen(out: ChildStdout, output: &Mutex<MeterOutput>) {
    let (mut out, mut bytes, mut has_warned) = (BufReader::new(out), Vec::new(), false);
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
        let mut output = lock(output);
        let Err(error) = output.log.read(&String::from_utf8_lossy(&bytes)) else { continue };
        if output.log.span.is_none() {
            output.wrong = Some((line, error));
            break;
        }
        drop(output);
        if !std::mem::replace(&mut has_warned, true) {
            messages::print(format_args!(
                "warning: --power-command, line {line}, {error}; this line is left out, and the \
                 power of its time is unknown"
            ));
        }
    }
    lock(output).has_ended = true;
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use skt_host::clock::now_unix;

    fn meter_command(command: &str) -> MeterCommand {
        MeterCommand { command: command.to_owned(), ..MeterCommand::default() }
    }

    #[test]
    fn a_meter_of_constant_power() {
        let command = "echo time watts; while date '+%s.%N 100'; do sleep 0.1; done";
        let begin = now_unix();
        let meter =
            Meter::start(&MeterCommand { level: Some(1), ..meter_command(command) }).unwrap();
        let covers = |(first, last): (f64, f64)| last - first > 0.4;
        while !lock(&meter.output).log.span.is_some_and(covers) {
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
        let meter =
            Meter::start(&meter_command("date '+%s.%N 50'; sleep 0.3; date '+%s.%N 50'")).unwrap();
        while !lock(&meter.output).has_ended {
            thread::sleep(Duration::from_millis(10));
        }
        let end = now_unix() + 1000.0;
        let reading = meter.over(end, 2000.0).expect("its first readings");
        assert!(reading.measured_seconds < 990.0 && reading.mean_watts > 49.0, "{reading:?}");
        let why = meter.over(5000.0, 100.0).unwrap_err();
        let end = "took 4900.0 to 5000.0, in seconds since 1970; is the meter's clock off?";
        assert!(why.ends_with(end), "{why}");
    }

    #[test]
    fn a_slow_meter_is_waited_for_as_long_as_it_takes() {
        let seconds = |times: &[f64]| {
            let mut log = PowerLog::default();
            times.iter().for_each(|time| log.read(&format!("{time} 100")).unwrap());
            patience(&log).as_secs()
        };
        assert_eq!((seconds(&[5.0]), seconds(&[5.0, 6.0, 7.0])), (60, 11));
        assert_eq!((seconds(&[0.0, 30.0, 31.0]), seconds(&[0.0, 55.0])), (40, 60));
    }

    #[test]
    fn sensors_are_added_and_columns_chosen_as_in_a_log() {
        let command = "printf 'time,gpu,watts,limit [W]\\n'; \
            for second in 0 1 2 3; do printf '%s,%s\\n' $second 0,30,7 $second 1,12,7; done";
        let joules = |lines: LogSettings| {
            let meter = Meter::start(&MeterCommand { lines, ..meter_command(command) })?;
            while !lock(&meter.output).has_ended {
                thread::sleep(Duration::from_millis(10));
            }
            meter.over(4.0, 3.0).map(|reading| reading.rated(1.0, 3.0).joules)
        };
        let adds_sensors = LogSettings { adds_sensors: true, ..LogSettings::default() };
        assert_eq!(joules(LogSettings { offset_seconds: 1.0, ..adds_sensors.clone() }), Ok(126.0));
        let columns = vec!["limit [W]".to_owned()];
        let limits = LogSettings { columns, offset_seconds: 1.0, ..adds_sensors };
        assert_eq!(joules(limits), Ok(42.0));
    }

    #[test]
    fn a_command_without_readings_is_refused() {
        let why = |command: &str| Meter::start(&meter_command(command)).unwrap_err();
        // At the end of the output a number may be cut.
        for command in ["exit 0", "echo time watts", "printf '5 41'"] {
            assert!(why(command).starts_with("--power-command has ended without a reading"));
        }
        let named = why("echo '# meter 3'; echo 1,5 412,5; sleep 60");
        let begin = "--power-command, line 2, column 9: 3 fields in place of 2";
        assert!(named.starts_with(begin), "{named}");
    }

    #[test]
    fn power_next_to_a_wrong_line_is_unknown() {
        let command = "printf '0 10\\n1 10\\n1,5 10\\n2 10\\n3 10\\n'";
        let meter = Meter::start(&meter_command(command)).unwrap();
        while !lock(&meter.output).has_ended {
            thread::sleep(Duration::from_millis(10));
        }
        let reading = meter.over(3.0, 3.0).unwrap().rated(1.0, 3.0);
        assert_eq!((reading.measured_seconds, reading.gflops_per_watt), (2.0, None));
    }
}
