//! The JSON report satisfies the published schema, has what is known, and is never seen half
//! written.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::mpirun::mpi_program;
use crate::report_common::{
    PASSED_NORMS, mxp_record, mxp_run, other_run, record, record_with, small_run,
};
use crate::report_schema::Schema;
use serde_json::{Value, json};
use skt_config::{ConfigText, Format, GemmPrecision, MxpMatrix, RunSpec};
use skt_health::environment::bf16::Bf16SelfTest;
use skt_health::environment::library::{BlasChoice, RatedBlas};
use skt_health::environment::{BlasInfo, DgemmSelfTest, Environment, HostRanks};
use skt_host::memory::CgroupLimit;
use skt_host::{host, host::HostInfo, memory, memory::MemoryInfo};
use skt_hpl::report::JsonReport;
use skt_run::record::{Outcome, RepairedRank, Replacement, RunFacts, TestRecord};

fn published() -> Schema {
    Schema::new(include_str!("../../docs/report.schema.json"))
}

pub fn facts() -> RunFacts {
    RunFacts {
        command_line: vec!["skt-hpl".to_string(), "--json".to_string(), "a b.json".to_string()],
        configuration: Some(ConfigText {
            file: "HPL.dat".to_string(),
            format: Format::Dat,
            text: "title\nof \u{fffd}\n".to_string(),
        }),
        environment: Environment {
            host: HostInfo {
                name: "n1".to_string(),
                kernel: "Linux 6.1.0".to_string(),
                architecture: "x86_64".to_string(),
                cpu_model: Some("AMD EPYC".to_string()),
                sockets: Some(1),
                cores: Some(2),
                cpus: Some(4),
                has_avx2: Some(true),
                nominal_gigahertz: Some(2.6),
                memory_bytes: Some(24 << 30),
            },
            memory: MemoryInfo {
                total_bytes: Some(24 << 30),
                available_bytes: Some(20 << 30),
                cgroup: Some(CgroupLimit {
                    path: PathBuf::from("/sys/fs/cgroup/job"),
                    limit_bytes: 16 << 30,
                    used_bytes: 1 << 30,
                }),
            },
            blas: BlasInfo {
                library: "OpenBLAS".to_string(),
                path: Some(PathBuf::from("/lib/libopenblas.so.0")),
                version: Some("OpenBLAS 0.3.21".to_string()),
                kernel: Some("SkylakeX".to_string()),
            },
            blas_choice: Some(BlasChoice {
                library: "openblas".to_string(),
                why: "no other library is 3 % faster".to_string(),
                tried: vec![
                    RatedBlas {
                        name: "openblas".to_string(),
                        gflops_per_core: Some(100.0),
                        refused: None,
                    },
                    RatedBlas {
                        name: "mkl_rt".to_string(),
                        gflops_per_core: None,
                        refused: Some("it crashes".to_string()),
                    },
                ],
            }),
            mpi_library: Some("Open MPI v4.1.4".to_string()),
            hosts: vec![HostRanks { host: "n1".to_string(), ranks: 1 }],
            pinning: "pinned, one to a core".to_string(),
            helper_cpus: vec![1],
            bf16: Some(Bf16SelfTest {
                function: "cblas_sbgemm".to_string(),
                file: Some("/lib/libopenblas.so.0".to_string()),
                gflops_per_core: 440.0,
                sgemm_gflops_per_core: 220.0,
                error: Some(0.01),
            }),
        },
        dgemm_self_test: Some(DgemmSelfTest {
            gflops_per_core: 110.5,
            peak_gflops_per_core: Some(120.0),
            warnings: vec!["slow".to_string()],
        }),
        start_unix_seconds: 1_700_000_000,
    }
}

/// A machine and a run with as few facts as possible.
fn bare_facts() -> RunFacts {
    let mut bare = facts();
    bare.environment.host = HostInfo {
        cpu_model: None,
        sockets: None,
        cores: None,
        cpus: None,
        has_avx2: None,
        nominal_gigahertz: None,
        memory_bytes: None,
        ..bare.environment.host
    };
    bare.environment.memory = MemoryInfo { total_bytes: None, available_bytes: None, cgroup: None };
    bare.environment.blas =
        BlasInfo { library: "unknown".to_string(), path: None, version: None, kernel: None };
    bare.environment.mpi_library = None;
    bare.dgemm_self_test = None;
    bare.configuration = None;
    bare
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A test with each outcome.
fn all_ends(spec: &RunSpec) -> Vec<TestRecord> {
    let test = || spec.tests().pop().unwrap();
    let mut timeless = record(test());
    timeless.gflops = f64::NAN;
    timeless.time_seconds = 0.0;
    let mut replaced = record(test());
    let protection = replaced.protection.as_mut().expect("it is protected");
    protection.restarts[0].replacement =
        Some(Replacement { process_column: 2, decoded_bytes: 1 << 40, decode_seconds: 0.25 });
    let mut repaired = record(test());
    let protection = repaired.protection.as_mut().expect("it is protected");
    (protection.checks, protection.repaired_rows) = (9, 3);
    protection.repaired = vec![RepairedRank {
        host: "n2".to_string(),
        rank: 5,
        process_row: 1,
        process_column: 1,
        rows: 3,
        first_row: 1500,
        first_column: 640,
        last_column: 704,
        checks: 2,
        is_origin: true,
    }];
    vec![
        record(test()),
        record_with(test(), Outcome::Failed { scaled_residual: f64::NAN, norms: PASSED_NORMS }),
        record_with(test(), Outcome::NotChecked),
        record_with(test(), Outcome::Broke { column: 17, pivot: "NaN".to_string() }),
        record_with(test(), Outcome::Skipped { reason: "not enough memory".to_string() }),
        timeless,
        replaced,
        repaired,
    ]
}

#[test]
fn every_document_satisfies_the_schema() {
    let schema = published();
    let folder = tempfile::tempdir().unwrap();
    for (spec, facts) in [(small_run(), facts()), (other_run(), bare_facts())] {
        let path = folder.path().join("run.json");
        let mut report = JsonReport::create(&path, &spec, facts).unwrap();
        schema.check(&read(&path));
        for record in all_ends(&spec) {
            report.test(&record, "a line\n").unwrap();
            schema.check(&read(&path));
        }
        report.finish("the end\n").unwrap();
        schema.check(&read(&path));
    }
}

#[test]
fn tests_of_hpl_mxp_satisfy_the_schema_and_have_their_steps() {
    let folder = tempfile::tempdir().unwrap();
    for matrix in MxpMatrix::ALL {
        let spec = mxp_run(matrix);
        let path = folder.path().join("run.json");
        let mut report = JsonReport::create(&path, &spec, facts()).unwrap();
        let test = || spec.tests().remove(0);
        report.test(&mxp_record(test(), &[2.5e4, f64::NAN, 0.25], 1), "a line\n").unwrap();
        let outcome = Outcome::Broke { column: 17, pivot: "NaN".to_string() };
        report.test(&record_with(test(), outcome), "a line\n").unwrap();
        report.finish("the end\n").unwrap();
        let document = read(&path);
        published().check(&document);
        assert_eq!(document["parameters"]["matrix"], json!(matrix.name()));
        let [passed, broke] = document["tests"].as_array().unwrap().as_slice() else {
            panic!("two tests")
        };
        assert_eq!(passed["variant"], json!("WR13MXP"));
        assert_eq!(passed["parameters"]["matrix"], json!(matrix.name()));
        assert_eq!(passed["efficiency"], Value::Null);
        let mxp = &passed["mxp"];
        assert_eq!((&mxp["factor_seconds"], &mxp["refinement"]), (&json!(4.0), &json!("gmres")));
        assert_eq!(mxp["steps"][0]["scaled_residual"], json!(2.5e4));
        assert_eq!(mxp["steps"][1]["scaled_residual"], json!("NaN"));
        assert_eq!(mxp["steps"][2]["refinement"], json!("gmres"));
        assert_eq!(broke.get("mxp"), None);
    }
}

#[test]
fn rounded_operands_are_among_the_parameters() {
    let folder = tempfile::tempdir().unwrap();
    for gemm in GemmPrecision::ALL {
        let spec = RunSpec { gemm, ..mxp_run(MxpMatrix::Scaled) };
        let path = folder.path().join("run.json");
        let mut report = JsonReport::create(&path, &spec, facts()).unwrap();
        report.test(&mxp_record(spec.tests().remove(0), &[0.25], 0), "a line\n").unwrap();
        report.finish("the end\n").unwrap();
        let document = read(&path);
        published().check(&document);
        let want = gemm.is_rounded().then(|| json!(gemm.name()));
        assert_eq!(document["parameters"].get("gemm"), want.as_ref());
        assert_eq!(document["tests"][0]["parameters"].get("gemm"), want.as_ref());
    }
}

#[test]
fn a_document_of_hpl_has_no_field_of_hpl_mxp() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut report = JsonReport::create(&path, &small_run(), facts()).unwrap();
    report.test(&record(small_run().tests().remove(0)), "a line\n").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    for key in ["\"mxp\"", "\"matrix\":\"", "\"gemm\""] {
        assert!(!text.contains(key), "{key}");
    }
    let document = read(&path);
    assert_eq!(document["parameters"].get("matrix"), None);
    assert_eq!(document["tests"][0]["parameters"].get("matrix"), None);
}

/// The facts of the real machine must satisfy the schema, too.
#[test]
fn this_machine_satisfies_the_schema() {
    let mut here = facts();
    here.environment.host = host::this_host();
    here.environment.memory = memory::this_process();
    here.environment.blas = skt_solver::blas::library::loaded();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    JsonReport::create(&path, &small_run(), here).unwrap();
    published().check(&read(&path));
}

#[test]
fn the_schema_refuses_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut report = JsonReport::create(&path, &small_run(), facts()).unwrap();
    report.test(&record(small_run().tests().remove(0)), "a line\n").unwrap();
    let good = read(&path);
    let schema = published();
    schema.check(&good);
    let wrong: [(&str, Value); 15] = [
        ("/format_version", json!(2)),
        ("/counts/passed", json!(-1)),
        ("/counts/passed", json!(0.5)),
        ("/start", json!("2023-11-14 22:13:20")),
        ("/finished", Value::Null),
        ("/parameters/bcast", json!([3])),
        ("/parameters/pfact", json!(["up"])),
        ("/parameters/nb", json!([0])),
        ("/parameters/surprise", json!({"value": 1})),
        ("/parameters/surprise", json!([])),
        ("/parameters/surprise", json!([[1]])),
        ("/tests/0/status", json!("not-checked")),
        ("/tests/0/surprise", json!(1)),
        ("/tests/0/power/0/level", json!(4)),
        ("/tests/0/power/1/watts", json!([-1])),
    ];
    for (place, value) in wrong {
        let mut bad = good.clone();
        let (parent, key) = place.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[key] = value;
        assert!(schema.refusal(&bad).is_some(), "{place}");
    }
    let mut more = good.clone();
    for value in [json!(0.5), json!("auto"), json!(false), json!([1, 2]), Value::Null] {
        more["parameters"]["surprise"] = value;
        schema.check(&more);
    }
    let mut bad = good.clone();
    bad["environment"].as_object_mut().unwrap().remove("pinning");
    assert!(schema.refusal(&bad).is_some(), "a field that lacks");
}

#[test]
fn a_document_has_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let spec = small_run();
    let mut report = JsonReport::create(&path, &spec, facts()).unwrap();
    for record in all_ends(&spec) {
        report.test(&record, "a line\n").unwrap();
    }
    let killed = read(&path);
    assert_eq!(killed["finished"], json!(false));
    assert_eq!(killed["end"], Value::Null);
    assert_eq!(killed["counts"], json!({"passed": 5, "failed": 2, "skipped": 1}));
    assert_eq!(killed["start"], json!("2023-11-14T22:13:20Z"));
    assert_eq!(killed["command_line"], json!(["skt-hpl", "--json", "a b.json"]));
    assert_eq!(killed["parameters"]["grids"], json!([{"p": 1, "q": 1}]));
    assert_eq!(killed["parameters"]["bcast"], json!(["2ringM"]));
    let [passed, failed, _, broke, skipped, _, replaced, repaired] =
        killed["tests"].as_array().unwrap().as_slice()
    else {
        panic!("eight tests")
    };
    let rank = &repaired["protection"]["repaired"][0];
    assert_eq!((&rank["host"], &rank["rank"], &rank["rows"]), (&json!("n2"), &json!(5), &json!(3)));
    assert_eq!(passed["protection"].get("repaired"), None, "nothing was repaired there");
    assert_eq!(passed["variant"], json!("WR13R2C4"));
    let replacement = &replaced["protection"]["restarts"][0]["replacement"];
    assert_eq!(replacement["process_column"], json!(2));
    assert_eq!(passed["status"], json!("passed"));
    assert_eq!(passed["gflops"], json!(92.125));
    assert_eq!(passed["efficiency"], json!(92.125 / 110.5));
    assert_eq!(passed["phases_seconds"]["max"]["update"], json!(4.0));
    assert_eq!(passed["norms"]["a_1"], json!(10.538_95));
    assert_eq!(failed["scaled_residual"], json!("NaN"));
    let [meter, nodes] = passed["power"].as_array().unwrap().as_slice() else {
        panic!("two sources")
    };
    assert_eq!((&meter["level"], &meter["nodes"]), (&json!(1), &Value::Null));
    assert_eq!(meter["gflops_per_watt"], json!(92.125 / 921.25));
    assert_eq!((&nodes["level"], &nodes["nodes"]["all"]), (&Value::Null, &json!(3)));
    assert_eq!(nodes["watts"], json!([900.0, null, 942.5, 921.3, 921.2]));
    assert_eq!(passed["end_unix_seconds"], json!(1_700_000_005.25));
    // If nothing was solved, there is no rate.
    assert_eq!((&broke["gflops"], &broke["efficiency"]), (&Value::Null, &Value::Null));
    assert_eq!((&broke["column"], &broke["time_seconds"]), (&json!(17), &json!(5.0)));
    assert_eq!((&skipped["time_seconds"], &skipped["start"]), (&Value::Null, &Value::Null));
    report.finish("the end\n").unwrap();
    let finished = read(&path);
    assert_eq!(finished["finished"], json!(true));
    assert!(finished["end"].is_string());
}

#[test]
fn nothing_but_the_document_is_left_and_links_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real.json");
    let link = folder.path().join("link.json");
    fs::write(&real, "old").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    JsonReport::create(&link, &small_run(), facts()).unwrap().finish("").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&real)["finished"], json!(true));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// A reader sees a whole document at any time.
#[test]
fn a_reader_never_sees_half_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let spec = small_run();
    let mut report = JsonReport::create(&path, &spec, facts()).unwrap();
    let reader = {
        let path = path.clone();
        std::thread::spawn(move || {
            let mut most = 0;
            while most < 60 {
                most = read(&path)["tests"].as_array().unwrap().len();
            }
        })
    };
    for _ in 0..60 {
        report.test(&record(spec.tests().remove(0)), "a line\n").unwrap();
    }
    reader.join().unwrap();
}

#[test]
fn a_path_that_cannot_be_written_is_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing").join("run.json");
    let error = JsonReport::create(&missing, &small_run(), facts()).unwrap_err().to_string();
    assert!(error.contains(missing.to_str().unwrap()), "{error}");
    // A device or a folder must not be replaced by a file.
    for path in [Path::new("/dev/null"), folder.path()] {
        let error = JsonReport::create(path, &small_run(), facts()).unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
    }
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_path_that_is_not_utf_8_gets_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"r\xe9.json"));
    let mut rank = mpi_program(env!("CARGO_BIN_EXE_skt-hpl"));
    rank.args(["--n", "10", "--ft", "none", "--json"]).arg(&path).current_dir(&folder);
    let ended = rank.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    let report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let word = report["command_line"][6].as_str().unwrap();
    assert!(word.ends_with("/r\u{fffd}.json"), "{word}");
}
