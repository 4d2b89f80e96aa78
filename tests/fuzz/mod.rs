//! A campaign: inputs by seed, one after the other, each watched for panics, time and memory.
//!
//! `SKT_FUZZ_SECONDS=N` runs each campaign for N seconds instead of its default number of inputs,
//! `SKT_FUZZ_SEED=N` begins with another seed, and `SKT_FUZZ_ONLY=N` runs only the input of that
//! seed.

pub mod memory;
pub mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use mutate::Mutator;
use nix::time::{ClockId, clock_gettime};

/// The longest wall-clock time of an input; a longer one is a hang.
const HANG: Duration = Duration::from_secs(600);
/// The longest CPU time of an input: what is so slow grows faster than its input.
const CPU: Duration = Duration::from_secs(4);
/// The longest text of an error or a warning, in bytes. A list of all legal keys fits.
const TEXT_BYTES: usize = 2000;

/// The input that is being read.
pub struct Current {
    target: &'static str,
    seed: u64,
    input: Vec<u8>,
    since: Instant,
}

impl Current {
    /// Reports what is wrong, and keeps the input.
    fn report(&self, what: &str) {
        let file = std::env::temp_dir().join(format!("skt-fuzz-{}-{}", self.target, self.seed));
        let kept = std::fs::write(&file, &self.input);
        eprintln!(
            "\n{}: {what}\n  input of {} bytes in {} ({kept:?})\n  again: SKT_FUZZ_ONLY={} cargo \
             test --test fuzz_inputs {}",
            self.target,
            self.input.len(),
            file.display(),
            self.seed,
            self.target
        );
    }

    /// Reports what is wrong, keeps the input, and aborts the process.
    pub fn abort(&self, what: &str) -> ! {
        self.report(what);
        std::process::abort()
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the clock of a thread").into()
}

/// Passes mutations of the corpus to `check`, which panics if a property does not hold.
pub fn campaign(
    target: &'static str,
    corpus: &[Vec<u8>],
    tokens: &[&str],
    inputs: u64,
    mut check: impl FnMut(&[u8]),
) {
    let first = setting("SKT_FUZZ_SEED").unwrap_or(0);
    let seconds = setting("SKT_FUZZ_SECONDS").map(Duration::from_secs);
    let only = setting("SKT_FUZZ_ONLY");
    let begun = Instant::now();
    let is_over = |done: u64| match (only, seconds) {
        (Some(_), _) => done == 1,
        (None, Some(seconds)) => begun.elapsed() >= seconds,
        (None, None) => done == inputs,
    };
    let current = Arc::new(Mutex::new(Current { target, seed: 0, input: vec![], since: begun }));
    let (end, ended) = mpsc::channel::<()>();
    let watched = current.clone();
    let watchdog = std::thread::spawn(move || {
        while ended.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let now = watched.lock().expect("not held over a panic");
            if now.since.elapsed() > HANG {
                now.abort(&format!("no end after {HANG:?}"));
            }
        }
    });
    let mut done = 0;
    while !is_over(done) {
        let seed = only.unwrap_or(first + done);
        let input = Mutator::input(corpus, tokens, seed);
        *current.lock().expect("not held over a panic") =
            Current { target, seed, input: input.clone(), since: Instant::now() };
        let before = cpu_time();
        let watch = memory::watch(&current);
        let result = catch_unwind(AssertUnwindSafe(|| check(&input)));
        drop(watch);
        let took = cpu_time() - before;
        if let Err(panic) = result {
            current.lock().expect("not held over a panic").report("a panic");
            resume_unwind(panic);
        }
        if took > CPU {
            current.lock().expect("not held").report("slow");
            panic!("{target}: {took:?} of a processor for an input of {} bytes", input.len());
        }
        done += 1;
    }
    drop(end);
    watchdog.join().expect("the watchdog does not panic");
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    println!("{target}: {done} inputs from seed {first}, {rate:.0} a second, no finding");
}

/// Fails if a text is not a message that can be shown to a person: if it is too long, or has
/// control characters, which a terminal obeys.
pub fn assert_tame(text: &str) {
    assert!(text.len() <= TEXT_BYTES, "a message of {} bytes: {text:.200?}", text.len());
    let control = text.chars().find(|c| c.is_control());
    assert_eq!(control, None, "a raw control character in {text:?}");
}
