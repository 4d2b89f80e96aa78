//! The batch scripts of `docs/batch/`, with stand-ins for the launchers and the batch system: how
//! each reacts to each exit code, and that ranks get cores for their threads.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::stand_ins::StandIns;

/// A stand-in that logs how it was called, and ends with the next code of the file `codes`. A
/// number after the code is that of epochs of which it writes images, newer than all that is there.
/// It starts few programs, as it is called some hundred times.
const STARTS: &str = r#"echo "${0##*/} $*" >> "$HERE/log"
    {
        read -r code epochs
        others=
        while read -r other; do others="$others$other\n"; done
    } < "$HERE/codes"
    printf "$others" > "$HERE/codes"
    of=images/skt-hpl-images.0.run
    [ -d $of ] || mkdir -p $of
    set -- $of/*
    [ ! -e "$1" ] || touch -d 2001-01-01 "$@"
    epoch=0
    set --
    while [ $epoch -lt "${epochs:-0}" ]; do
        epoch=$((epoch + 1))
        set -- "$@" $of/t0.r0-7.a1.2.e$epoch $of/t0.r8-15.a1.2.e$epoch
    done
    [ $epoch = 0 ] || touch -d '1 day' "$@"
    exit "$code""#;

/// A stand-in for PBS's, which reports how often the job was started only if `RUN_COUNT` is set.
const QSTAT: &str = "echo Job Id: 7\n\
    echo '    Resource_List.walltime = 04:00:00'\n\
    [ -z \"$RUN_COUNT\" ] || echo \"    run_count = $RUN_COUNT\"";

/// A batch system in which each start of a run ends with the next of some codes.
struct Batch(StandIns);

impl Batch {
    fn new() -> Self {
        let flux = "case $1 in hostlist) echo n1; exit ;; job) echo 14400; exit ;; esac\n";
        let programs = StandIns::new()
            .with("srun", STARTS)
            .with("mpirun", STARTS)
            .with("skt-hpl", STARTS)
            .with("flux", &format!("{flux}{STARTS}"))
            .with("scontrol", "echo \"scontrol $*\" >> \"$HERE/log\"")
            .with("qsub", "echo \"qsub $* IMAGES=$IMAGES LEVEL=$LEVEL\" >> \"$HERE/log\"")
            // The end of the job.
            .with("squeue", "echo 2033-05-18T03:33:20")
            .with("qstat", QSTAT)
            .with("bjobs", "echo '4:00 L'");
        fs::copy(script("job.sh"), programs.at("job.sh")).unwrap();
        fs::write(programs.at("cluster.toml"), "").unwrap();
        fs::write(programs.at("nodes"), "n1\n".repeat(64)).unwrap();
        Self(programs)
    }

    /// The script's exit code, and the commands that it called, one per line.
    fn run(&self, name: &str, codes: &str) -> (i32, String) {
        self.run_with(name, codes, None)
    }

    /// Runs the script as `run` does, with a variable of the environment and its value.
    fn run_with(&self, name: &str, codes: &str, variable: Option<(&str, &str)>) -> (i32, String) {
        let (here, nodes) = (self.0.at(""), self.0.at("nodes"));
        fs::write(self.0.at("codes"), codes).unwrap();
        fs::write(self.0.at("log"), "").unwrap();
        let mut command = self.0.command("bash");
        for unset in ["SLURM_JOB_END_TIME", "IMAGES", "LEVEL", "SLURM_RESTART_COUNT", "RUN_COUNT"] {
            command.env_remove(unset);
        }
        command.envs(["SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "LS_SUBCWD"].map(|it| (it, &here)));
        command.envs(["PBS_NODEFILE", "LSB_DJOB_HOSTFILE"].map(|it| (it, &nodes)));
        command.envs(["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"].map(|it| (it, "7")));
        command.env("SLURM_CPUS_PER_TASK", "8").env("TZ", "UTC").envs(variable);
        let ended = command.arg(script(name)).current_dir(here).output().unwrap();
        (ended.status.code().unwrap(), fs::read_to_string(self.0.at("log")).unwrap())
    }
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/batch").join(name)
}

/// Scripts in which the job's own launcher starts the ranks.
const PLAIN: [&str; 4] = ["slurm.sh", "pbs.sh", "lsf.sh", "flux.sh"];
const LAUNCH: [&str; 4] = ["slurm-launch.sh", "pbs-launch.sh", "lsf-launch.sh", "flux-launch.sh"];

fn all() -> impl Iterator<Item = &'static str> {
    PLAIN.into_iter().chain(LAUNCH)
}

/// Number of lines that start ranks.
fn starts(log: &str) -> usize {
    log.lines().filter(|line| line.contains("/cluster.toml ")).count()
}

fn is_queued_again(log: &str) -> bool {
    log.contains("scontrol requeue 7")
        || log.contains("qsub -v IMAGES,LEVEL,NO_SPARE pbs")
        || log.contains("qsub -v IMAGES,LEVEL pbs")
}

#[test]
fn an_interrupted_run_is_repeated_and_a_result_ends_it() {
    let batch = Batch::new();
    let ends = |name: &str, codes: &str, code: i32, count: usize| {
        let (ended, log) = batch.run(name, codes);
        assert_eq!((ended, starts(&log)), (code, count), "{name} {codes:?}: {log}");
        // LSF requeues by the exit code; Flux leaves it to the user.
        let must = code == 75 && (name.starts_with("slurm") || name.starts_with("pbs"));
        assert_eq!(is_queued_again(&log), must, "{name} {codes:?}: {log}");
    };
    for name in PLAIN {
        ends(name, "0\n", 0, 1);
        ends(name, "1\n", 1, 1);
        ends(name, "2\n", 2, 1);
        // The program does not start.
        ends(name, "127\n", 127, 1);
        // A plain launcher whose rank was killed returns 137.
        ends(name, "137\n0\n", 0, 2);
        ends(name, "205\n137\n1\n", 1, 3);
        ends(name, "137\n137\n205\n", 75, 3);
        // The time is up.
        ends(name, "137\n75\n", 75, 2);
    }
    // `launch` starts the ranks again itself.
    for name in LAUNCH {
        [0, 1, 2, 75].iter().for_each(|&code| ends(name, &format!("{code}\n"), code, 1));
    }
}

#[test]
fn what_fails_in_each_job_is_not_queued_for_ever() {
    for name in PLAIN {
        let batch = Batch::new();
        let lost = "101\n101\n101\n";
        let codes = [lost, lost, "0\n", lost, lost, lost].map(|ends| batch.run(name, ends).0);
        assert_eq!(codes, [75, 75, 0, 75, 75, 2], "{name}");
        assert!(!batch.0.at("images/failed").exists(), "{name}");
        // A job that lost its nodes has nevertheless progressed if it has images of two epochs.
        for _ in 0..4 {
            assert_eq!(batch.run(name, "255\n255\n137 2\n").0, 75, "{name}");
        }
    }
}

/// A job whose time is over has kept something if it has images of two epochs: the files of one may
/// be those of images that failed.
#[test]
fn a_job_that_keeps_no_images_is_not_queued_for_ever() {
    for name in all() {
        let batch = Batch::new();
        let jobs = ["75\n", "75 1\n", "75 2\n", "75\n", "75 2\n", "75\n", "75\n", "75\n"];
        let ended = jobs.map(|job| batch.run(name, job));
        let codes = ended.each_ref().map(|(code, _)| *code);
        assert_eq!(codes, [75, 75, 75, 75, 75, 75, 75, 2], "{name}");
        assert!(!is_queued_again(&ended[7].1), "{name}");
        assert!(!batch.0.at("images/failed").exists(), "{name}");
        // A result ends the count.
        for (job, code) in [("75\n", 75), ("75\n", 75), ("1\n", 1), ("75\n", 75), ("75\n", 75)] {
            assert_eq!(batch.run(name, job).0, code, "{name}");
        }
    }
}

/// The launcher of the job before may have been on a node that is lost.
#[test]
fn a_restarted_job_waits_for_no_launcher_elsewhere() {
    let batch = Batch::new();
    for (name, variable, is_again) in [
        ("slurm-launch.sh", None, false),
        ("slurm-launch.sh", Some(("SLURM_RESTART_COUNT", "1")), true),
        ("pbs-launch.sh", None, false),
        ("pbs-launch.sh", Some(("RUN_COUNT", "1")), false),
        ("pbs-launch.sh", Some(("RUN_COUNT", "2")), true),
    ] {
        let (ended, log) = batch.run_with(name, "0\n", variable);
        assert_eq!((ended, starts(&log)), (0, 1), "{variable:?}: {log}");
        assert_eq!(log.contains(" launch --head-lost "), is_again, "{variable:?}: {log}");
    }
}

/// What is asked for when the job is submitted may differ from what the script asks for. Slurm
/// reports a job's end time from version 23.02 on; before, its queue does.
#[test]
fn a_job_learns_the_time_that_it_has() {
    let batch = Batch::new();
    let end = |name: &str, reported| -> u64 {
        let (_, log) = batch.run_with(name, "0\n", reported);
        let end = log.split(" --time-limit @").nth(1).and_then(|rest| rest.split(' ').next());
        end.and_then(|end| end.parse().ok()).unwrap_or_else(|| panic!("{name}: {log}"))
    };
    for name in all() {
        if name.starts_with("slurm") {
            assert_eq!(end(name, None), 2_000_000_000, "{name}");
            let reported = Some(("SLURM_JOB_END_TIME", "1234567890"));
            assert_eq!(end(name, reported), 1_234_567_890, "{name}");
        } else {
            let in_time =
                || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 4 * 3600 - 60;
            let (before, end, after) = (in_time(), end(name, None), in_time());
            assert!((before..=after).contains(&end), "{name}: {before} {end} {after}");
        }
    }
}
