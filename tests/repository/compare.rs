//! `scripts/compare` finds the results where the configuration writes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::executables;

/// A result line of HPL.
const RESULT: &str =
    "WR00L2L2         100    10     1     1               0.00              1.0e+00";

#[test]
fn results_are_found_where_the_device_of_the_configuration_sends_them() {
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
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "device {device}: {said}\n{wrong}");
        assert!(said.contains("ratio      median"), "device {device}: {said}");
    }
}
