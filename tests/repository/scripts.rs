//! The batch scripts of `docs/batch/`, with stand-ins for the launchers and the batch system: how
//! each reacts to each exit code, and that ranks get cores for their threads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::executables;
use tempfile::TempDir;

/// A batch system in which each start of a run ends with the next of some codes.
struct Batch {
    folder: TempDir,
}

/// A stand-in that logs how it was called, and ends with the next code of the file `codes`. A
/// number after the code is that of epochs of which it writes images, newer than all that is there.
const STARTS: &str = "#!/bin/sh\n\
    echo \"$(basename \"$0\") $*\" >> \"$LOG\"\n\
    read -r code epochs < \"$CODES\"\n\
    sed -i 1d \"$CODES\"\n\
    of=images/skt-hpl-images.0.run\n\
    mkdir -p $of\n\
    find $of -type f -exec touch -d 2001-01-01 {} +\n\
    for epoch in $(seq \"${epochs:-0}\"); do\n\
    for ranks in 0-7 8-15; do touch -d '1 day' $of/t0.r$ranks.a1.2.e$epoch; done\n\
    done\n\
    exit \"$code\"\n";
const PRINTS: &str = "#!/bin/sh\necho \"$(basename \"$0\") $*\" >> \"$LOG\"\n";

/// A stand-in for PBS's, which reports how often the job was started only if `RUN_COUNT` is set.
const QSTAT: &str = "#!/bin/sh\n\
    echo Job Id: 7\n\
    echo '    Resource_List.walltime = 04:00:00'\n\
    [ -z \"$RUN_COUNT\" ] || echo \"    run_count = $RUN_COUNT\"\n";

/// The end of a job, as Slurm's queue shows it.
const SLURM_END: &str = "2033-05-18T03:33:20";

impl Batch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (program, text) in [
            ("srun", STARTS),
            ("mpirun", STARTS),
            ("skt-hpl", STARTS),
            ("scontrol", PRINTS),
            ("qsub", "#!/bin/sh\necho \"qsub $* IMAGES=$IMAGES LEVEL=$LEVEL\" >> \"$LOG\"\n"),
            ("squeue", &format!("#!/bin/sh\necho {SLURM_END}\n")),
            ("qstat", QSTAT),
            ("bjobs", "#!/bin/sh\necho '4:00 L'\n"),
        ] {
            executables::write_script(&folder.path().join(program), text);
        }
        let flux = format!(
            "#!/bin/sh\ncase $1 in hostlist) echo n1; exit ;; job) echo 14400; exit ;; esac\n{STARTS}"
        );
        executables::write_script(&folder.path().join("flux"), &flux);
        fs::copy(script("job.sh"), folder.path().join("job.sh")).unwrap();
        fs::write(folder.path().join("nodes"), "n1\n".repeat(64)).unwrap();
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The script's exit code, and the commands that it called, one per line.
    fn run(&self, script: &Path, codes: &str) -> (Option<i32>, String) {
        self.run_with(script, codes, None)
    }

    /// Runs the script as `run` does, with a variable of the environment and its value.
    fn run_with(
        &self,
        script: &Path,
        codes: &str,
        variable: Option<(&str, &str)>,
    ) -> (Option<i32>, String) {
        fs::write(self.at("codes"), codes).unwrap();
        fs::write(self.at("log"), "").unwrap();
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let folder = self.folder.path();
        let ended = Command::new("bash")
            .arg(script)
            .current_dir(folder)
            .env("PATH", path)
            .env("TZ", "UTC")
            .env_remove("SLURM_JOB_END_TIME")
            .env_remove("IMAGES")
            .env_remove("LEVEL")
            .env_remove("SLURM_RESTART_COUNT")
            .env_remove("RUN_COUNT")
            .envs(variable)
            .env("LOG", self.at("log"))
            .env("CODES", self.at("codes"))
            .env("SLURM_SUBMIT_DIR", folder)
            .env("SLURM_JOB_ID", "7")
            .env("SLURM_CPUS_PER_TASK", "8")
            .env("PBS_O_WORKDIR", folder)
            .env("PBS_JOBID", "7")
            .env("PBS_NODEFILE", self.at("nodes"))
            .env("LS_SUBCWD", folder)
            .env("LSB_JOBID", "7")
            .env("LSB_DJOB_HOSTFILE", self.at("nodes"))
            .output()
            .unwrap();
        (ended.status.code(), fs::read_to_string(self.at("log")).unwrap())
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/batch").join(name)
}

const ALL: [&str; 8] = [
    "slurm.sh",
    "pbs.sh",
    "lsf.sh",
    "flux.sh",
    "slurm-launch.sh",
    "pbs-launch.sh",
    "lsf-launch.sh",
    "flux-launch.sh",
];

/// Number of lines that start ranks.
fn starts(log: &str) -> usize {
    log.lines().filter(|line| line.contains("--config cluster.toml")).count()
}

#[test]
fn an_interrupted_run_is_started_again_and_a_result_is_the_end() {
    let batch = Batch::new();
    for name in ["slurm.sh", "pbs.sh", "lsf.sh", "flux.sh"] {
        // A plain launcher whose rank was killed returns 137.
        for (codes, code, count) in [
            ("0\n", 0, 1),
            ("1\n", 1, 1),
            ("2\n", 2, 1),
            // The program does not start.
            ("127\n", 127, 1),
            ("137\n0\n", 0, 2),
            ("205\n137\n1\n", 1, 3),
            ("137\n137\n205\n", 75, 3),
            // The time is up.
            ("137\n75\n", 75, 2),
        ] {
            let (ended, log) = batch.run(&script(name), codes);
            assert_eq!((ended, starts(&log)), (Some(code), count), "{name} {codes:?}: {log}");
            let asks =
                log.contains("scontrol requeue 7") || log.contains("qsub -v IMAGES,LEVEL pbs.sh");
            // LSF requeues by the exit code; Flux leaves it to the user.
            let must = code == 75 && ["slurm.sh", "pbs.sh"].contains(&name);
            assert_eq!(asks, must, "{name} {codes:?}: {log}");
        }
    }
}

#[test]
fn what_fails_in_each_job_is_not_queued_for_ever() {
    for name in ["slurm.sh", "pbs.sh", "lsf.sh", "flux.sh"] {
        let batch = Batch::new();
        let lost = "101\n101\n101\n";
        let codes =
            [lost, lost, "0\n", lost, lost, lost].map(|ends| batch.run(&script(name), ends).0);
        assert_eq!(codes, [75, 75, 0, 75, 75, 2].map(Some), "{name}");
        assert!(!batch.at("images/failed").exists(), "{name}");
        // A job that lost its nodes has nevertheless progressed if it has images of two epochs.
        for _ in 0..4 {
            assert_eq!(batch.run(&script(name), "255\n255\n137 2\n").0, Some(75), "{name}");
        }
    }
}

/// A job whose time is over has kept something if it has images of two epochs: the files of one may
/// be those of images that failed.
#[test]
fn a_job_that_keeps_no_images_is_not_queued_for_ever() {
    for name in ALL {
        let batch = Batch::new();
        let jobs = ["75\n", "75 1\n", "75 2\n", "75\n", "75 2\n", "75\n", "75\n", "75\n"];
        let ended = jobs.map(|job| batch.run(&script(name), job));
        let codes = ended.each_ref().map(|(code, _)| code.unwrap());
        assert_eq!(codes, [75, 75, 75, 75, 75, 75, 75, 2], "{name}");
        assert!(!ended[7].1.contains("requeue") && !ended[7].1.contains("qsub"), "{name}");
        assert!(!batch.at("images/failed").exists(), "{name}");
        // A result ends the count.
        for (job, code) in [("75\n", 75), ("75\n", 75), ("1\n", 1), ("75\n", 75), ("75\n", 75)] {
            assert_eq!(batch.run(&script(name), job).0, Some(code), "{name}");
        }
    }
}

/// Jobs that cannot be counted, as where a quota is used up, are not queued for ever, either.
#[test]
fn a_job_that_cannot_be_counted_is_the_last() {
    for name in ALL {
        let batch = Batch::new();
        fs::create_dir_all(batch.at("images/failed")).unwrap();
        let (code, log) = batch.run(&script(name), "75\n");
        assert_eq!(code, Some(2), "{name}: {log}");
        assert!(!log.contains("requeue") && !log.contains("qsub"), "{name}: {log}");
    }
}

#[test]
fn launch_starts_ranks_again_itself_and_is_queued_again_at_75() {
    let batch = Batch::new();
    for name in ["slurm-launch.sh", "pbs-launch.sh", "lsf-launch.sh", "flux-launch.sh"] {
        for code in [0, 1, 2, 75] {
            let (ended, log) = batch.run(&script(name), &format!("{code}\n"));
            assert_eq!((ended, starts(&log)), (Some(code), 1), "{name}: {log}");
            let asks = log.contains("scontrol requeue 7")
                || log.contains("qsub -v IMAGES,LEVEL pbs-launch.sh");
            let must = code == 75 && ["slurm-launch.sh", "pbs-launch.sh"].contains(&name);
            assert_eq!(asks, must, "{name} {code}: {log}");
        }
    }
}

/// The launcher of the job before may have been on a node that is lost.
#[test]
fn a_restarted_slurm_job_waits_for_no_launcher_elsewhere() {
    let (batch, path) = (Batch::new(), script("slurm-launch.sh"));
    let (_, log) = batch.run(&path, "0\n");
    assert!(!log.contains("--head-lost"), "{log}");
    let (_, log) = batch.run_with(&path, "0\n", Some(("SLURM_RESTART_COUNT", "1")));
    assert!(log.contains(" launch --head-lost "), "{log}");
}

/// PBS starts a job whose first node was lost again, elsewhere.
#[test]
fn a_restarted_pbs_job_waits_for_no_launcher_elsewhere() {
    let (batch, path) = (Batch::new(), script("pbs-launch.sh"));
    for (runs, is_again) in [(None, false), (Some("1"), false), (Some("2"), true)] {
        let (ended, log) = batch.run_with(&path, "0\n", runs.map(|runs| ("RUN_COUNT", runs)));
        assert_eq!((ended, starts(&log)), (Some(0), 1), "{runs:?}: {log}");
        assert_eq!(log.contains(" launch --head-lost "), is_again, "{runs:?}: {log}");
    }
}

/// Slurm reports a job's end time from version 23.02 on; before, its queue does.
#[test]
fn a_slurm_job_of_any_version_knows_its_end() {
    let batch = Batch::new();
    for name in ["slurm.sh", "slurm-launch.sh"] {
        for (reported, want) in [(None, "@2000000000"), (Some("1234567890"), "@1234567890")] {
            let reported = reported.map(|end| ("SLURM_JOB_END_TIME", end));
            let (_, log) = batch.run_with(&script(name), "0\n", reported);
            assert!(log.contains(&format!(" --time-limit {want} ")), "{name}: {log}");
        }
    }
}

/// What is asked for when the job is submitted may differ from what the script asks for.
#[test]
fn other_jobs_learn_the_time_that_they_have() {
    let batch = Batch::new();
    for name in ALL.iter().filter(|name| !name.starts_with("slurm")) {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let before = now();
        let (_, log) = batch.run(&script(name), "0\n");
        let end = log.split(" --time-limit @").nth(1).and_then(|rest| rest.split(' ').next());
        let end: u64 =
            end.and_then(|end| end.parse().ok()).unwrap_or_else(|| panic!("{name}: {log}"));
        let left = 4 * 3600 - 60;
        assert!((before + left..=now() + left).contains(&end), "{name}: {end}");
    }
}

/// A time limit in the past would end each job at once.
#[test]
fn a_job_that_cannot_learn_its_end_does_not_start() {
    let batch = Batch::new();
    for program in ["squeue", "qstat", "bjobs", "flux"] {
        executables::write_script(&batch.at(program), "#!/bin/sh\nexit 1\n");
    }
    for name in ALL {
        let (code, log) = batch.run(&script(name), "0\n");
        assert_eq!(code, Some(2), "{name}");
        assert_eq!(starts(&log), 0, "{name}: {log}");
    }
}

/// qsub passes on no variable that is not named.
#[test]
fn a_pbs_job_that_submits_itself_keeps_its_images_and_its_level() {
    for name in ["pbs.sh", "pbs-launch.sh"] {
        let batch = Batch::new();
        let level = "global:/parallel/fs,mtbf=7d,keep=3";
        let (_, log) = batch.run_with(&script(name), "75\n", Some(("LEVEL", level)));
        assert!(log.contains(&format!("qsub -v IMAGES,LEVEL {name} IMAGES=/")), "{name}: {log}");
        assert!(log.contains(&format!("/images LEVEL={level}\n")), "{name}: {log}");
        let images = batch.at("others").display().to_string();
        let (_, log) = batch.run_with(&script(name), "75\n", Some(("IMAGES", &images)));
        assert!(log.contains(&format!("IMAGES={images} LEVEL=global:{images}\n")), "{name}: {log}");
    }
}

/// Two jobs with a folder each disturb each other neither by the state of `launch` nor by a host
/// file.
#[test]
fn what_launch_keeps_follows_the_images() {
    let batch = Batch::new();
    for name in ALL.iter().filter(|name| name.contains("launch")) {
        let images = batch.at(&format!("{name}.images"));
        let shown = images.display().to_string();
        let (_, log) = batch.run_with(&script(name), "0\n", Some(("IMAGES", &shown)));
        assert!(log.contains(&format!(" --state {shown}/launch ")), "{name}: {log}");
    }
    assert!(!batch.at("hosts").exists());
}

/// A plan may have no checkpoints, and so no images.
#[test]
fn images_are_left_out_where_the_level_is_empty() {
    let batch = Batch::new();
    for name in ALL {
        let (_, log) = batch.run(&script(name), "0\n");
        assert!(log.contains(" --level global:/"), "{name}: {log}");
        let (ended, log) = batch.run_with(&script(name), "0\n", Some(("LEVEL", "")));
        assert!(ended == Some(0) && starts(&log) == 1, "{name}: {log}");
        assert!(!log.contains("--level"), "{name}: {log}");
    }
}

#[test]
fn a_script_without_what_all_share_starts_nothing() {
    let batch = Batch::new();
    fs::remove_file(batch.at("job.sh")).unwrap();
    for name in ALL {
        assert_eq!(batch.run(&script(name), "0\n"), (Some(2), String::new()), "{name}");
    }
}

#[test]
fn ranks_get_cores_for_their_eight_threads() {
    let batch = Batch::new();
    for (name, words) in [
        ("slurm.sh", "srun --cpus-per-task=8 "),
        ("pbs.sh", " --map-by ppr:8:node --bind-to none -np 64 "),
        ("lsf.sh", " --map-by ppr:8:node --bind-to none -np 64 "),
        ("flux.sh", " --ntasks=64 --cores-per-task=8 "),
    ] {
        let (_, log) = batch.run(&script(name), "0\n");
        assert!(log.contains(words), "{name}: {log}");
    }
}

#[test]
fn help_of_each_script_is_all_that_it_does() {
    let nowhere = tempfile::tempdir().unwrap();
    // Nothing may be built, installed or changed.
    for program in ["cargo", "apt-get", "sudo", "ip", "unshare", "mktemp"] {
        let text = format!("#!/bin/sh\necho {program} was called >&2\nexit 9\n");
        executables::write_script(&nowhere.path().join(program), &text);
    }
    let path = format!("{}:{}", nowhere.path().display(), std::env::var("PATH").unwrap());
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    for entry in fs::read_dir(scripts).unwrap() {
        let file = entry.unwrap().path();
        // Files with an extension are read by others.
        if file.extension().is_some() {
            continue;
        }
        let ended = Command::new(&file)
            .arg("--help")
            .env("PATH", &path)
            .current_dir(nowhere.path())
            .output()
            .unwrap();
        let [out, err] =
            [ended.stdout, ended.stderr].map(|printed| String::from_utf8(printed).unwrap());
        let name = file.file_name().unwrap().to_str().unwrap();
        assert_eq!((ended.status.code(), err.as_str()), (Some(0), ""), "{name}: {out}");
        assert!(out.contains(name), "{name}: {out}");
    }
}
