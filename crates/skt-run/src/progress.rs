//! Progress on standard error: what the run is doing, how much is done, and how long the rest will
//! take.
//!
//! Only rank 0 has a progress that is not off. The solver calls [`Progress::columns`] once per
//! panel, which costs two comparisons if no line is due. Nothing here reads a clock: elapsed times
//! are arguments.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use crate::events::Saved;
use skt_host::shown::printable;
use skt_host::units;

/// Seconds between two updates of a live line.
const LIVE_INTERVAL_SECONDS: f64 = 0.25;
/// Seconds between two plain lines.
const PLAIN_INTERVAL_SECONDS: f64 = 5.0;
/// Seconds over which the present rate is measured.
const WINDOW_SECONDS: f64 = 10.0;
/// Moves to the first column and erases to the end of the line (ECMA-48).
const ERASE_LINE: &str = "\r\x1b[K";

/// A point of the progress of a factorization.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    elapsed_seconds: f64,
    gflop: f64,
}

/// Shows progress, see the module.
#[derive(Default)]
pub struct Progress {
    /// Where progress is written; `None` if it is off.
    out: Option<Box<dyn Write + Send>>,
    live: bool,
    width: usize,
    window: VecDeque<Sample>,
    next_due_seconds: f64,
    line_shown: bool,
    /// The slow ranks in a few words.
    slow: Option<String>,
    /// What has been saved last since the last line: a checkpoint, and images of each level.
    saved: BTreeMap<Option<String>, String>,
    /// What a live line shows of that, and until when.
    saved_live: Option<(String, f64)>,
}

impl Progress {
    /// A progress that shows nothing.
    pub fn off() -> Self {
        Self::default()
    }

    /// A progress that is shown on standard error: in one line that is rewritten in place, or a
    /// line every few seconds.
    pub fn stderr(live: bool) -> Self {
        let width = if live { terminal_width().unwrap_or(80) } else { usize::MAX };
        Progress::to(Box::new(io::stderr()), live, width)
    }

    /// A progress that is shown on `out`; a live line is cut to `width` columns, because a line
    /// that wraps cannot be rewritten in place.
    fn to(out: Box<dyn Write + Send>, live: bool, width: usize) -> Self {
        let mut progress = Self::off();
        (progress.out, progress.live, progress.width) = (Some(out), live, width);
        progress
    }

    /// Announces what begins now, e.g. `N=20000: generating the matrix`.
    pub fn phase(&mut self, what: &str) {
        if self.out.is_none() {
            return;
        }
        self.show_saved();
        self.saved_live = None;
        self.window.clear();
        self.slow = None;
        self.next_due_seconds = 0.0;
        self.show(what);
    }

    /// Notes that `done` of `n` columns are factored after `elapsed_seconds`, and shows a line if
    /// one is due.
    pub fn columns(&mut self, done: usize, n: usize, elapsed_seconds: f64) {
        if self.out.is_none() || elapsed_seconds < self.next_due_seconds {
            return;
        }
        self.show_saved();
        if let Some((_, line)) = std::mem::take(&mut self.saved).pop_last() {
            self.saved_live = Some((line, elapsed_seconds + PLAIN_INTERVAL_SECONDS));
        }
        self.saved_live.take_if(|(_, until_seconds)| *until_seconds < elapsed_seconds);
        let now = Sample { elapsed_seconds, gflop: gflop_done(done, n) };
        let first = self.window.is_empty();
        self.window.push_back(now);
        self.next_due_seconds = elapsed_seconds + self.interval_seconds();
        // The first panel has no meaningful rate, and the phase has been announced.
        if first {
            return;
        }
        let recent = recent_gflops(&mut self.window, WINDOW_SECONDS);
        let saved = self.saved_live.as_ref().map(|(line, _)| line.as_str());
        let notes: Vec<&str> = self.slow.as_deref().into_iter().chain(saved).collect();
        let line = columns_line(done, n, elapsed_seconds, recent, &notes);
        self.show(&line);
    }

    /// Sets the words about slow ranks in the next lines, if there are any.
    pub fn slow(&mut self, words: Option<String>) {
        self.slow = words;
    }

    /// Notes what has been saved, to be shown with the next line.
    pub fn saved(&mut self, saved: &Saved) {
        let level = match saved {
            Saved::Checkpoint { .. } => None,
            Saved::Images { level, .. } => Some(level.clone()),
        };
        self.saved.insert(level, saved.to_string());
    }

    /// Shows lines of what has been saved; a live line has it in itself.
    fn show_saved(&mut self) {
        if !self.live {
            let saved = std::mem::take(&mut self.saved);
            saved.values().for_each(|line| self.show(line));
        }
    }

    /// Shows a line about work that is not counted in columns, if one is due after
    /// `elapsed_seconds`.
    pub fn step(&mut self, elapsed_seconds: f64, line: &str) {
        if self.out.is_none() || elapsed_seconds < self.next_due_seconds {
            return;
        }
        self.next_due_seconds = elapsed_seconds + self.interval_seconds();
        self.show_saved();
        self.show(line);
    }

    /// Removes a live line before anything else is written to the screen.
    pub fn clear(&mut self) {
        if self.line_shown {
            self.write(ERASE_LINE);
            self.line_shown = false;
        }
    }

    fn interval_seconds(&self) -> f64 {
        if self.live { LIVE_INTERVAL_SECONDS } else { PLAIN_INTERVAL_SECONDS }
    }

    fn show(&mut self, line: &str) {
        let line = printable(line);
        if self.live {
            let cut: String = line.chars().take(self.width.saturating_sub(1)).collect();
            self.write(&format!("{ERASE_LINE}{cut}"));
            self.line_shown = true;
        } else {
            // The mark shows that the line is not part of the report if both end up in one log.
            self.write(&format!("# {line}\n"));
        }
    }

    /// Writes text. A log that cannot be written any more must not end a run of hours.
    fn write(&mut self, text: &str) {
        if let Some(out) = &mut self.out
            && out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err()
        {
            self.out = None;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The operations of the first `done` of `n` columns, in 10^9: an LU of order n costs 2/3 n^3, and
/// one of order n - done remains.
pub fn gflop_done(done: usize, n: usize) -> f64 {
    gflop_total(n) * fraction(done, n)
}

fn gflop_total(n: usize) -> f64 {
    let n = n as f64;
    2.0 / 3.0 * n * n * n / 1e9
}

/// The share of the operations that is done: `1 - ((n - done) / n)^3`.
pub fn fraction(done: usize, n: usize) -> f64 {
    if n == 0 {
        return 1.0;
    }
    let left = n.saturating_sub(done) as f64 / n as f64;
    1.0 - left * left * left
}

/// The rate between the newest sample and the oldest one within the window, or the second newest if
/// no other is within it.
fn recent_gflops(samples: &mut VecDeque<Sample>, window_seconds: f64) -> f64 {
    let newest = samples[samples.len() - 1];
    while samples.len() > 2 && newest.elapsed_seconds - samples[0].elapsed_seconds > window_seconds
    {
        samples.pop_front();
    }
    let oldest = samples[0];
    (newest.gflop - oldest.gflop) / (newest.elapsed_seconds - oldest.elapsed_seconds)
}

/// The line that is shown while a matrix is factored. `notes`, such as words about slow ranks, come
/// early, as a live line is cut to the terminal.
fn columns_line(
    done: usize,
    n: usize,
    elapsed_seconds: f64,
    recent_gflops: f64,
    notes: &[&str],
) -> String {
    let left_gflop = gflop_total(n) - gflop_done(done, n);
    let notes: String = notes.iter().map(|note| format!(", {note}")).collect();
    format!(
        "N={n}: column {done}, {:.1} %{notes}, {} (now {}), ETA {}",
        100.0 * fraction(done, n),
        units::rate(gflop_done(done, n) / elapsed_seconds),
        units::rate(recent_gflops),
        units::span(left_gflop / recent_gflops)
    )
}

/// Number of columns of the terminal on standard error.
fn terminal_width() -> Option<usize> {
    // SAFETY: `size` is plain data for which zeros are a value, and TIOCGWINSZ writes one such
    // structure to the address that it is given.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size) != 0 {
            return None;
        }
        size
    };
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A writer whose text can be read while a [`Progress`] owns it.
    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// A machine of 100 Gflop/s factors N = 20000 in 53.3 s.
    fn elapsed(done: usize) -> f64 {
        gflop_done(done, 20_000) / 100.0
    }

    #[test]
    fn plain_lines_come_every_five_seconds() {
        let screen = Screen::default();
        let mut progress = Progress::to(Box::new(screen.clone()), false, usize::MAX);
        progress.phase("N=20000: generating the matrix (3.0 GiB on 4 ranks)");
        progress.phase("N=20000: factoring");
        for done in (0..=20_000).step_by(200) {
            progress.columns(done, 20_000, elapsed(done));
        }
        progress.clear();
        assert_eq!(
            screen.text(),
            "\
# N=20000: generating the matrix (3.0 GiB on 4 ranks)
# N=20000: factoring
# N=20000: column 800, 11.5 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 47 s
# N=20000: column 1600, 22.1 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 42 s
# N=20000: column 2400, 31.9 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 36 s
# N=20000: column 3400, 42.8 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 30 s
# N=20000: column 4400, 52.5 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 25 s
# N=20000: column 5600, 62.7 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 20 s
# N=20000: column 7000, 72.5 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 15 s
# N=20000: column 8800, 82.4 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 9 s
# N=20000: column 11400, 92.0 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 4 s
"
        );
    }

    #[test]
    fn steps_are_shown_when_a_line_is_due() {
        let screen = Screen::default();
        let mut progress = Progress::to(Box::new(screen.clone()), false, usize::MAX);
        for second in 0..12 {
            progress.step(f64::from(second), &format!("step {second}"));
        }
        assert_eq!(screen.text(), "# step 0\n# step 5\n# step 10\n");
    }

    fn checkpoint(epoch: u64) -> Saved {
        Saved::Checkpoint { epoch, column: 512, seconds: 0.2, stall_seconds: 0.2 }
    }

    #[test]
    fn checkpoints_and_images_have_one_line_an_interval() {
        let screen = Screen::default();
        let mut progress = Progress::to(Box::new(screen.clone()), false, usize::MAX);
        progress.columns(0, 20_000, 0.0);
        for done in (10..=800).step_by(10) {
            if done % 200 == 0 {
                progress.saved(&checkpoint(done as u64 / 200));
            }
            if done == 500 {
                let level = "local:/x".to_owned();
                progress.saved(&Saved::Images { level, epoch: 2, seconds: 1.25 });
            }
            progress.columns(done, 20_000, elapsed(done));
        }
        // What is saved last is shown before anything else begins.
        progress.saved(&Saved::Checkpoint {
            epoch: 5,
            column: 1024,
            seconds: 2.5,
            stall_seconds: 0.25,
        });
        progress.phase("back substitution");
        let text = screen.text();
        let lines: Vec<&str> = text.lines().collect();
        let want = [
            "# checkpoint 3, 0.20 s, column 512",
            "# images of checkpoint 2 on local:/x complete, 1.25 s",
            "# N=20000: column 650, 9.4 %, 100.0 Gflop/s (now 100.0 Gflop/s), ETA 48 s",
            "# checkpoint 5, 2.50 s, 0.25 s of it waited, column 1024",
            "# back substitution",
        ];
        assert_eq!(lines, want, "{text}");
    }

    #[test]
    fn a_live_line_has_the_last_checkpoint_for_a_while() {
        let screen = Screen::default();
        let mut progress = Progress::to(Box::new(screen.clone()), true, 90);
        progress.columns(0, 20_000, 0.0);
        progress.saved(&checkpoint(3));
        progress.columns(10, 20_000, 1.0);
        progress.columns(20, 20_000, 7.0);
        let text = screen.text();
        let lines: Vec<&str> = text.split(ERASE_LINE).skip(1).collect();
        assert!(lines[0].contains(" %, checkpoint 3, 0.20 s, column 512, "), "{text}");
        assert!(!lines[1].contains("checkpoint"), "{text}");
    }

    #[test]
    fn a_live_line_is_rewritten_cut_and_cleared() {
        let screen = Screen::default();
        let mut progress = Progress::to(Box::new(screen.clone()), true, 32);
        progress.phase("N=20000: factoring");
        progress.columns(0, 20_000, 0.0);
        progress.columns(10, 20_000, elapsed(10));
        progress.columns(200, 20_000, elapsed(200));
        progress.clear();
        progress.clear();
        assert_eq!(
            screen.text(),
            "\r\x1b[KN=20000: factoring\r\x1b[KN=20000: column 200, 3.0 %, 100\r\x1b[K"
        );
    }

    #[test]
    fn off_shows_nothing_and_an_unwritable_log_ends_nothing() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut progress = Progress::to(Box::new(Full), false, 80);
        progress.phase("first");
        assert!(progress.out.is_none());
        progress.columns(10, 20, 100.0);
        assert!(progress.window.is_empty());
    }

    #[test]
    fn the_recent_rate_forgets_what_is_older_than_the_window() {
        let mut samples: VecDeque<Sample> = [(0.0, 0.0), (100.0, 1000.0), (105.0, 1500.0)]
            .map(|(elapsed_seconds, gflop)| Sample { elapsed_seconds, gflop })
            .into();
        assert_eq!(recent_gflops(&mut samples, 10.0), 100.0);
        assert_eq!(samples.len(), 2);
        // A panel that takes longer than the window still gives a rate.
        samples.push_back(Sample { elapsed_seconds: 205.0, gflop: 1600.0 });
        assert_eq!(recent_gflops(&mut samples, 10.0), 1.0);
    }

    #[test]
    fn lines_of_extreme_runs() {
        assert_eq!(
            columns_line(12_582_912, 25_165_824, 7200.0, 1.1e9, &[]),
            "N=25165824: column 12582912, 87.5 %, 1.291 Eflop/s (now 1.100 Eflop/s), ETA 20 min 07 s"
        );
        // Nothing moved, so there is no rate and no estimate.
        assert_eq!(
            columns_line(10, 1000, 5.0, 0.0, &[]),
            "N=1000: column 10, 3.0 %, 3.96 Mflop/s (now 0.00 Mflop/s), ETA -"
        );
        assert_eq!(fraction(0, 0), 1.0);
    }
}
