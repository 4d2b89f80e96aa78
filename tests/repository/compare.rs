//! `scripts/compare` finds the results where the configuration writes them, and keeps them when it
//! is interrupted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::executables;

/// A result line of HPL.
const RESULT: &str =
    "WR00L2L2         100    10     1     1               0.00              1.0e+00";

#[test]
fn results_are_found_at_the_device_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Ranks are started by hand, so one suffices.
    executables::write_script(&at("mpirun"), "#!/bin/sh\nshift 2\nexec \"$@\"\n");
    let reference = format!(
        "#!/bin/sh\nset -- $(sed -n 4p HPL.dat)\ncase $1 in\n8) echo '{RESULT}' > result.txt ;;\n\
         7) echo '{RESULT}' >&2 ;;\n*) echo '{RESULT}' ;;\nesac\necho 'warning: no result' >&2\n"
    );
    executables::write_script(&at("xhpl"), &reference);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/compare");
    for device in ["6", "7", "8"] {
        let dat = format!(
            "a\nb\nresult.txt file\n{device} device out\n1 N\n100 Ns\n1 NB\n10 NBs\n0 PMAP\n1 grids\n1 Ps\n\
             1 Qs\n16.0 threshold\n1 PFACTs\n2 PFACT\n1 NBMINs\n4 NBMIN\n1 NDIVs\n2 NDIV\n\
             1 RFACTs\n1 RFACT\n1 BCASTs\n1 BCAST\n1 DEPTHs\n1 DEPTH\n2 SWAP\n64 swap\n\
             0 L1\n0 U\n1 Equilibration\n8 alignment\n"
        );
        fs::write(at("HPL.dat"), dat).unwrap();
        let output = Command::new("python3")
            .arg(&script)
            .args(["--np", "1", "--runs", "1", "--ours", env!("CARGO_BIN_EXE_skt-hpl")])
            .args(["--reference".as_ref(), at("xhpl").as_os_str()])
            .args(["--mpirun".as_ref(), at("mpirun").as_os_str()])
            .args(["--dat".as_ref(), at("HPL.dat").as_os_str()])
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .output()
            .expect("python3");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "device {device}: {printed}\n{wrong}");
        assert!(printed.contains("ratio      median"), "device {device}: {printed}");
    }
}

/// Both programs are stand-ins; the reference's second run waits until the comparison is ended,
/// by a signal that comes while the launcher is started, or later.
#[test]
fn an_interrupted_comparison_prints_medians_and_warnings() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        for comes_while_it_starts in [false, true] {
            is_interrupted(signal, comes_while_it_starts);
        }
    }
}

fn is_interrupted(signal: Signal, comes_while_it_starts: bool) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    executables::write_script(&at("mpirun"), "#!/bin/sh\nshift 2\nexec \"$@\"\n");
    let warns = format!("#!/bin/sh\necho '{RESULT}'\necho '# warning  : cores are shared'\n");
    executables::write_script(&at("ours"), &warns);
    let seen = at("seen").display().to_string();
    let waits = at("seen.pid");
    let reference = format!(
        "#!/bin/sh\necho '{RESULT}'\ntest -e {seen} || {{ : > {seen}; exit 0; }}\n\
         echo kept in memory\necho $$ > {seen}.new && mv {seen}.new {seen}.pid\nexec sleep 600\n"
    );
    executables::write_script(&at("xhpl"), &reference);
    fs::write(at("HPL.dat"), "a\nb\nHPL.out file\n6 device\n").unwrap();
    if comes_while_it_starts {
        // Python reads this file before the script. The fourth launcher is the one that waits.
        let starts = format!(
            "import os, subprocess, time\n\
             start, launchers = subprocess.Popen.__init__, []\n\
             def and_wait(self, *a, **k):\n    \
             start(self, *a, **k)\n    \
             launchers.append(self)\n    \
             while len(launchers) == 4 and not os.path.exists('{seen}.pid'): time.sleep(0.01)\n    \
             if len(launchers) == 4: os.kill(os.getpid(), {})\n\
             subprocess.Popen.__init__ = and_wait\n",
            signal as i32
        );
        fs::write(at("sitecustomize.py"), starts).unwrap();
    }
    let child = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/compare"))
        .args(["--runs", "5", "--ours"])
        .arg(at("ours"))
        .args(["--reference".as_ref(), at("xhpl").as_os_str()])
        .args(["--mpirun".as_ref(), at("mpirun").as_os_str()])
        .args(["--dat".as_ref(), at("HPL.dat").as_os_str()])
        .env("PYTHONPATH", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3");
    while !waits.exists() {
        sleep(Duration::from_millis(10));
    }
    let pid = fs::read_to_string(&waits).unwrap().trim().parse().unwrap();
    if !comes_while_it_starts {
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(128 + signal as i32), "{printed}");
    for line in ["skt-hpl    median     1.00", "reference  median     1.00", "ratio      median"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(kill(Pid::from_raw(pid), None).is_err(), "the reference still runs");
    assert!(printed.contains("# warning  : cores are shared  (in 2 of 2 runs)"), "{printed}");
    let last = String::from_utf8_lossy(&output.stderr);
    assert!(last.contains("kept in memory"), "what the interrupted run said: {last}");
}
