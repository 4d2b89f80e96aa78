//! Jobs that call another library than the default one are killed, most of them when there are
//! checkpoints, and started again where the library is in another folder: x has the same bits.
//! Where the library is missing, or is another version, such a start is refused before, or warns,
//! and loses nothing.

use std::path::Path;

use crate::dice::{Dice, seed};
use crate::mpi_job::{Ended, Job, MAX_JOBS};
use crate::planted_blas::{folder_with, planted};
use crate::soak::soak_jobs;

/// A name that `--blas auto` tries.
const LIBRARY: &str = "blis";
/// The columns of the matrix when there is a checkpoint.
const SAVED: std::ops::Range<usize> = 128..690;
const FLAGS: &str = "--n 700 --nb 16 --p 1 --q 2 --checkpoint-every 2p! --progress off";

/// How a job names its library.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Named {
    Auto,
    File,
}

impl Named {
    /// The job `name` where the library is in `folder`.
    fn job(self, name: &str, method: &str, folder: &Path) -> Job {
        let blas = match self {
            Self::Auto => "auto".to_owned(),
            Self::File => folder.join(format!("lib{LIBRARY}.so")).display().to_string(),
        };
        let flags = format!("{FLAGS} --ft {method} --blas {blas}");
        let path = format!("LD_LIBRARY_PATH={}", folder.display());
        let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
        Job::new(program, 2, name, &flags).within(&["env", &path])
    }
}

/// What the jobs did.
#[derive(Debug, Default)]
struct Counts {
    kills: usize,
    /// Kills at a column by which there is a checkpoint.
    saved: usize,
    refused: usize,
    warned: usize,
    resumed: usize,
}

/// Starts the job, whose ranks `victims` die by signal 9 when `column` is eliminated. Also returns
/// whether one has.
fn start_and_kill_at(job: &Job, victims: &[usize], column: usize) -> (Ended, bool) {
    let faults = victims.iter().map(|rank| format!("--inject={rank}@column:{column}"));
    let faults: Vec<String> = faults.collect();
    let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
    let ended = job.start(&faults);
    let killed = ended.text.contains("signal 9");
    (ended, killed)
}

/// Whether a start has continued from a checkpoint.
fn has_resumed(ended: &Ended) -> bool {
    let mut restarts = ended.text.lines().filter(|line| line.starts_with("# restart: "));
    restarts.any(|line| !line.contains("epoch 0,"))
}

/// Starts a killed job without its library. Returns whether it has run, with another one.
fn start_without(job: &Job, named: Named, counts: &mut Counts) -> bool {
    let has_data = !job.segments(None).is_empty();
    let ended = job.start(&[]);
    if named == Named::Auto && ended.ok {
        assert!(!has_data && ended.text.contains("PASSED"), "{}", ended.text);
        return true;
    }
    counts.refused += 1;
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("a text");
    let words = match named {
        Named::Auto => [
            "--blas auto: this run was computed with the BLAS libblis.so (libblis.so, ",
            // It is not found, or the system's BLIS is.
            " there. Install the same library there, or continue with other",
        ],
        Named::File => ["libblis.so: the loader refuses it", "Name another library, or --blas"],
    };
    let words = words.map(str::to_owned).into_iter().chain([format!(" on {host}: ")]);
    for words in words {
        assert!(!ended.ok && ended.text.contains(&words), "no '{words}': {}", ended.text);
    }
    false
}

/// Starts a killed job with another version of its library. Returns whether it has run.
fn start_with_another(job: &Job, named: Named, want: Option<&str>, counts: &mut Counts) -> bool {
    let has_data = !job.segments(None).is_empty();
    let ended = job.start(&[]);
    if named == Named::Auto && !ended.ok {
        counts.refused += 1;
        let words = "another library has this name there. Install the same library there, or";
        assert!(ended.text.contains(words), "{}", ended.text);
        return false;
    }
    assert!(named == Named::File || !has_data, "{}", ended.text);
    // It computes as the other one does.
    assert!(ended.ok && ended.x().as_deref() == want, "{}", ended.text);
    let has_warned = ended.text.contains("the last bits of x may differ");
    assert!(has_warned || !has_resumed(&ended), "{}", ended.text);
    counts.warned += usize::from(has_warned);
    true
}

#[test]
fn a_killed_job_takes_its_library_wherever_it_is() {
    let seed = seed("SKT_FT_SEED");
    let mut dice = Dice(seed);
    let library = planted("planted_kills", "#define FAST\n#define ROUNDING");
    let newer = planted("planted_kills_newer", "#define FAST\n#define ROUNDING");
    let (has, has_newer) = ([(LIBRARY, &*library)], [(LIBRARY, &*newer)]);
    let folders = [&has[..], &has, &[], &has_newer].map(folder_with);
    let [of_auto, of_file] = [Named::Auto, Named::File].map(|named| {
        let name = format!("blas-kills-{named:?}");
        named.job(&name, "self", folders[0].path()).start_timed()
    });
    let want = of_auto.0.x();
    assert!(of_auto.0.text.contains("auto takes blis: "), "{}", of_auto.0.text);
    let is_same = want.is_some() && of_file.0.x() == want;
    assert!(is_same, "{}\n{}", of_auto.0.text, of_file.0.text);
    let program = Path::new(env!("CARGO_BIN_EXE_skt-hpl"));
    let by_default = Job::new(program, 2, "blas-kills-default", FLAGS).start(&[]);
    assert!(by_default.ok && by_default.x() != want, "{}", by_default.text);
    let mut times = [of_auto.1, of_file.1];
    let jobs = soak_jobs().map_or(2, |jobs| jobs.min(40));
    let (mut counts, mut number) = (Counts::default(), 0);
    while counts.kills < jobs {
        assert!(number < 2 * jobs + MAX_JOBS, "seed {seed}: {counts:?}");
        let (way, method) = (number % 2, ["self", "double"][number / 2 % 2]);
        let (named, name) = ([Named::Auto, Named::File][way], format!("blas-kills{number}"));
        let at = |folder: usize| named.job(&name, method, folders[folder].path());
        let [here, moved, without, another] = [0, 1, 2, 3].map(at);
        number += 1;
        let victims: &[usize] = [&[0][..], &[1], &[0, 1]][dice.roll(3)];
        // Many of the others come before the first checkpoint, as the libraries are tried first.
        let is_saved = dice.roll(4) > 0;
        let (ended, killed) = if is_saved {
            let column = SAVED.start + dice.roll(SAVED.len());
            start_and_kill_at(&here, victims, column)
        } else {
            here.start_and_kill(victims, times[way].any(&mut dice))
        };
        if ended.ok {
            assert!(!is_saved, "seed {seed}: {}", ended.text);
            times[way].halve();
            continue;
        }
        assert!(killed, "seed {seed}: {}", ended.text);
        counts.kills += 1;
        counts.saved += usize::from(is_saved);
        let is_done = match dice.roll(3) {
            0 => false,
            1 => start_without(&without, named, &mut counts),
            _ => start_with_another(&another, named, want.as_deref(), &mut counts),
        };
        if !is_done {
            let ended = moved.start(&[]);
            let is_right = ended.ok && ended.text.contains("PASSED") && ended.x() == want;
            assert!(is_right, "seed {seed}, job {number}: {}", ended.text);
            assert!(!ended.text.contains("last bits of x may"), "seed {seed}: {}", ended.text);
            counts.resumed += usize::from(has_resumed(&ended));
        }
        moved.assert_nothing_is_left();
    }
    println!("{counts:?}");
    // Those that another library has continued have warned.
    assert!(counts.resumed + counts.warned >= counts.saved, "{counts:?}");
}
