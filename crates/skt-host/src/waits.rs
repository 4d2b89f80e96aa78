//! Waits that take long at a start are announced on standard error, at growing intervals: a start
//! that waits for a busy machine looks like one that hangs.
//!
//! Code that may wait holds an [`Announced`]. Only the job's first process prints, and those that
//! know which rank has not come ([`Missing`]): of 10,000 ranks that collect from each other along
//! a tree 14 at most. A thread prints, as the one that waits cannot. It exists only during such
//! waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::{host, launcher_rank, messages};

/// A wait is announced after this time, and each time that it has doubled. Nothing ends by it.
const FIRST: Duration = Duration::from_secs(10);
/// Replaces [`FIRST`], in milliseconds: for tests.
const FIRST_ENV: &str = "SKT_HPL_ANNOUNCE_MILLISECONDS";

/// What is being waited for, the innermost wait last.
static WAITS: Mutex<Waits> = Mutex::new(Waits { list: Vec::new(), last_id: 0, is_watched: false });
static CHANGED: Condvar = Condvar::new();
/// The rank whose message this process awaits, or [`NO_RANK`].
static MISSING: AtomicUsize = AtomicUsize::new(NO_RANK);
const NO_RANK: usize = usize::MAX;
/// The hosts of all ranks.
static HOSTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Waits {
    list: Vec<Wait>,
    last_id: u64,
    is_watched: bool,
}

struct Wait {
    id: u64,
    what: String,
    since: Instant,
    due: Duration,
}

/// A wait that is announced while this exists.
pub struct Announced {
    /// `None` in a process that prints nothing.
    id: Option<u64>,
}

impl Announced {
    /// Begins to wait for `what`, which completes the sentence "This rank waits for".
    pub fn begin(what: impl Into<String>) -> Self {
        Self::begin_with(what.into(), true)
    }

    /// As [`Announced::begin`], in a process that may start no thread yet: it calls [`print_due`]
    /// while it waits.
    pub fn begin_without_thread(what: String) -> Self {
        Self::begin_with(what, false)
    }

    fn begin_with(what: String, by_thread: bool) -> Self {
        if !by_thread && !launcher_rank::is_first() {
            return Self { id: None };
        }
        let mut waits = lock(&WAITS);
        waits.last_id += 1;
        let id = waits.last_id;
        waits.list.push(Wait { id, what, since: Instant::now(), due: first() });
        if by_thread && launcher_rank::is_first() {
            waits.watch();
        }
        Self { id: Some(id) }
    }

    /// What was waited for has come, and now this process waits for `what`.
    pub fn update(&mut self, what: impl Into<String>) {
        let Some(id) = self.id else { return };
        let mut waits = lock(&WAITS);
        let wait = waits.list.iter_mut().find(|wait| wait.id == id).expect("it is waited for");
        *wait = Wait { id, what: what.into(), since: Instant::now(), due: first() };
    }
}

/// Describes what this process waits for in other words, if it waits.
pub fn restate(what: String) {
    if let Some(wait) = lock(&WAITS).list.last_mut() {
        wait.what = what;
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            lock(&WAITS).list.retain(|wait| wait.id != id);
            CHANGED.notify_all();
        }
    }
}

/// The rank that has not come yet, while this exists.
pub struct Missing(());

impl Missing {
    /// This process needs a message of `rank` next.
    pub fn rank(rank: usize) -> Self {
        MISSING.store(rank, Ordering::Relaxed);
        let mut waits = lock(&WAITS);
        if !waits.list.is_empty() {
            waits.watch();
        }
        Self(())
    }
}

impl Drop for Missing {
    fn drop(&mut self) {
        MISSING.store(NO_RANK, Ordering::Relaxed);
    }
}

/// Names the hosts of all ranks for lines that follow.
pub fn name_hosts<'a>(hosts: impl Iterator<Item = &'a str>) {
    if launcher_rank::is_first() {
        *lock(&HOSTS) = hosts.map(str::to_owned).collect();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn first() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| {
        let asked = std::env::var(FIRST_ENV).ok().and_then(|text| text.parse().ok());
        asked.map_or(FIRST, Duration::from_millis)
    })
}

impl Waits {
    /// Starts the thread that prints, if there is none. Without it nothing but lines is missing.
    fn watch(&mut self) {
        if self.is_watched {
            return;
        }
        // Signals are for the other threads.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let started = thread::Builder::new().name("skt-waits".into()).spawn(print_until_none);
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        self.is_watched = started.is_ok();
    }

    /// The line about the innermost wait, if one is due. `time` is how long each has waited.
    fn due_line(&mut self, time: impl Fn(&Wait) -> Duration) -> Option<String> {
        let wait = self.list.last_mut()?;
        let waited = time(wait);
        if waited < wait.due {
            return None;
        }
        while wait.due <= waited {
            wait.due *= 2;
        }
        let prints = launcher_rank::is_first() || MISSING.load(Ordering::Relaxed) != NO_RANK;
        prints.then(|| wait.line(waited))
    }
}

impl Wait {
    fn line(&self, waited: Duration) -> String {
        let (rank, host) = (launcher_rank::rank().unwrap_or(0), host::name().unwrap_or_default());
        let (seconds, what) = (waited.as_secs_f64(), &self.what);
        let mut line = format!("rank {rank} on {host} has waited for {seconds:.0} s for {what}");
        let missing = MISSING.load(Ordering::Relaxed);
        if missing != NO_RANK {
            let on = lock(&HOSTS).get(missing).map_or(String::new(), |host| format!(" on {host}"));
            line += &format!("; rank {missing}{on} has not come yet");
        }
        line
    }
}

/// Prints the line about the innermost wait, if one is due.
pub fn print_due() {
    let line = lock(&WAITS).due_line(|wait| wait.since.elapsed());
    line.into_iter().for_each(|line| messages::print(format_args!("{line}")));
}

/// Prints the lines that are due until nothing is waited for.
fn print_until_none() {
    let mut waits = lock(&WAITS);
    while let Some(wait) = waits.list.last() {
        let left = wait.due.saturating_sub(wait.since.elapsed());
        waits = CHANGED.wait_timeout(waits, left).unwrap_or_else(PoisonError::into_inner).0;
        if let Some(line) = waits.due_line(|wait| wait.since.elapsed()) {
            // A reader that is slow must not delay the one that waits.
            drop(waits);
            messages::print(format_args!("{line}"));
            waits = lock(&WAITS);
        }
    }
    waits.is_watched = false;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(id: u64, what: &str) -> Wait {
        Wait { id, what: what.into(), since: Instant::now(), due: FIRST }
    }

    #[test]
    fn lines_are_due_at_growing_intervals() {
        let list = vec![wait(1, "all ranks"), wait(2, "the lock")];
        let mut waits = Waits { list, last_id: 2, is_watched: true };
        let mut due = Vec::new();
        for second in 0..=100 {
            let line = waits.due_line(|_| Duration::from_secs(second));
            due.extend(line.map(|line| (second, line)));
        }
        let times: Vec<u64> = due.iter().map(|(second, _)| *second).collect();
        assert_eq!(times, [10, 20, 40, 80]);
        assert!(due.iter().all(|(_, line)| line.contains("for the lock")), "{due:?}");
        // A process that stood still prints one line, not those of all the time.
        let late = waits.due_line(|_| Duration::from_secs(4000));
        assert!(late.is_some_and(|line| line.contains("has waited for 4000 s")));
        assert!(waits.due_line(|_| Duration::from_secs(4001)).is_none());
    }

    #[test]
    fn thread_exists_only_during_waits() {
        let mut outer = Announced::begin("all ranks");
        let inner = Announced::begin("the lock");
        outer.update("their hosts");
        restate("the lock of another".into());
        assert_eq!(lock(&WAITS).list.last().unwrap().what, "the lock of another");
        assert!(lock(&WAITS).is_watched);
        drop(inner);
        assert_eq!(lock(&WAITS).list.last().map(|wait| wait.what.clone()).unwrap(), "their hosts");
        drop(outer);
        while lock(&WAITS).is_watched {
            thread::yield_now();
        }
    }

    #[test]
    fn missing_rank_is_named_with_its_host() {
        name_hosts(["n1", "n2"].into_iter());
        let line = || wait(1, "all ranks").line(FIRST);
        let missing = Missing::rank(1);
        assert!(line().ends_with("for 10 s for all ranks; rank 1 on n2 has not come yet"));
        drop(missing);
        assert!(line().ends_with("for all ranks"));
    }
}
