//! `skt-hpl plan` and `report` on the command line.

use serde_json::json;
use skt_model::path::{Changes, Machine, RunParams, predict};

use crate::built::Program;

/// A small, fixed machine: there is no measurement, so the numbers are always the same.
const MACHINE: &str = "plan --nodes 256 --spares 8 --cores-per-node 32 --threads 8 \
                       --memory-gib 128 --gflops-per-core 40 --copy-gbs 50 --bandwidth-gbs 1 \
                       --node-mtbf-hours 2000";

fn with(extra: &str) -> String {
    format!("{MACHINE} {extra}")
}

#[test]
fn plan_gives_a_table_and_a_configuration_that_reads_back() {
    let program = Program::new();
    let words = program.printed(&with("--out plan.toml"));
    let row = |name: &str| -> Vec<&str> {
        let row = words.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        row.into_iter().find(|words| words.first() == Some(&name)).expect(&words)
    };
    assert_eq!(row("protocol"), ["protocol", "self", "none", "single", "double", "abft"]);
    let heads = ["\nThe choice, and the best of each other protocol\n", "\nUncertain\n"];
    assert!(heads.iter().all(|head| words.contains(head)), "{words}");
    assert!(program.read("plan.toml").contains("\nmethod = \"self\"\n"));
    let dat = program.printed("convert plan.toml");
    let n = row("n")[1];
    assert!(dat.lines().any(|l| l.split_whitespace().next() == Some(n)), "N = {n} not in\n{dat}");
    // 256 nodes of 4 ranks make 32 x 32.
    assert_eq!((row("p")[1], row("q")[1]), ("32", "32"), "{words}");
    let again = program.refused(&with("--json --out -"));
    assert!(again.contains("--json and --out -"), "{again}");
}

#[test]
fn plan_as_json_has_all_candidates_and_parts_of_the_time() {
    let program = Program::new();
    let json = plan_json(&program, "");
    let choice = &json["choice"];
    let number = |name: &str| choice[name].as_f64().unwrap();
    let parts = ["work_seconds", "in_checkpoints_seconds", "in_outages_seconds", "lost_seconds"]
        .map(number);
    let time = number("expected_seconds");
    assert!((parts.iter().sum::<f64>() / time - 1.0).abs() < 1e-9, "{parts:?} of {time}");
    // None, three protocols in groups of 2 to 32 with 1 to 4 parities, and process rows of 32, 64
    // and 128 with 1 to 3 checksums.
    let all = 1 + 3 * (6 + 5 + 4 + 4) + 3 * 3;
    assert_eq!(json["candidates"].as_array().unwrap().len(), all);
    assert_eq!(json["uncertain"].as_array().unwrap().len(), 2);
    // Checkpoints that cost next to nothing: a run takes them a second apart.
    let fast = "--checkpoint-gbs 1e7";
    let json = plan_json(&program, fast);
    assert_eq!(json["choice"]["interval_seconds"], 1.0);
    let others = json["uncertain"].as_array().unwrap();
    let best = |other: &serde_json::Value| other["best_interval_seconds"].as_f64().unwrap();
    assert!(!others.is_empty() && others.iter().all(|other| best(other) >= 1.0), "{others:?}");
}

#[test]
fn plan_writes_intervals_of_images_into_the_configuration() {
    let program = Program::new();
    let disks = "--machine-mtbf-hours 100 --local-gbs 2 --local-folder /scratch/hpl";
    let words = program.printed(&with(&format!("{disks} --out plan.toml")));
    let json = plan_json(&program, disks);
    let (level, choice) = (&json["levels"][0], &json["choice"]);
    let of = |object: &serde_json::Value, name: &str| object[name].as_f64().unwrap();
    // A copy of the matrix, and its parities.
    let (n, m) = (of(choice, "group_size"), of(choice, "parities"));
    let bytes = of(choice, "matrix_bytes") * (1.0 + m / (n - m));
    assert!((of(level, "node_bytes") / bytes - 1.0).abs() < 1e-12);
    assert!((of(level, "write_seconds") / (bytes / 2e9) - 1.0).abs() < 1e-12);
    let young = (2.0 * of(level, "cost_seconds") * 100.0 * 3600.0).sqrt();
    let (interval, step) = (of(level, "interval_seconds"), of(choice, "interval_seconds"));
    assert!((interval - young.max(of(level, "write_seconds"))).abs() <= step, "{level}");
    assert_eq!(interval, of(level, "every_checkpoints") * step);
    assert!(level["pays"] == true && level["is_first_order_valid"] == true, "{level}");
    assert!(words.contains("\nImages\n"), "{words}");
    let setting = format!("level = \"local:/scratch/hpl,every={interval:.0}s\"");
    let toml = program.read("plan.toml");
    assert!(toml.lines().any(|line| line == setting), "{toml}");
    program.printed("convert plan.toml");

    // What is not asked for is absent, and what does not pay is not written.
    let plain = program.printed(MACHINE);
    assert!(!plain.contains("Images"), "{plain}");
    assert!(plan_json(&program, "").get("levels").is_none());
    let rare = "--machine-mtbf-hours 1e9 --local-gbs 2 --local-folder /scratch --out rare.toml";
    program.printed(&with(rare));
    let pays = &plan_json(&program, "--machine-mtbf-hours 1e9 --local-gbs 2")["levels"][0]["pays"];
    assert_eq!(*pays, false);
    let toml = program.read("rare.toml");
    assert!(!toml.lines().any(|line| line.starts_with("level = ")), "{toml}");
}

#[test]
fn plan_prints_how_many_spares_it_takes() {
    let program = Program::new();
    let machine = "plan --nodes 1024 --cores-per-node 64 --threads 16 --memory-gib 256 \
                   --gflops-per-core 40 --copy-gbs 20 --bandwidth-gbs 1";
    let plan = |extra: &str| -> serde_json::Value {
        serde_json::from_str(&program.printed(&format!("{machine} --json {extra}"))).unwrap()
    };
    let fewest = plan("");
    assert_ne!(fewest["choice"]["group_size"], 2);
    assert_eq!(fewest["choice"]["spares"], fewest["choice"]["fewest_spares"]);
    for spares in ["0", "1", "40"] {
        let plan = plan(&format!("--spares {spares}"));
        let group = |plan: &serde_json::Value| plan["choice"]["group_size"].clone();
        assert_eq!(group(&plan), group(&fewest), "spares do not decide");
        let suffice = plan["choice"]["spares_suffice_probability"].as_f64().unwrap();
        assert_eq!(suffice < 0.99, spares == "0", "{suffice}");
    }
}

/// The smallest node bounds what each holds, so nodes with little memory are left out where the
/// others are faster without them.
#[test]
fn plan_takes_the_best_of_unequal_nodes() {
    let program = Program::new();
    let machine = "plan --cores-per-node 64 --threads 8 --bandwidth-gbs 12.5 \
                   --gflops-per-core 40 --copy-gbs 20";
    let plan = |extra: &str| program.printed(&format!("{machine} {extra}"));
    let refused = |extra: &str| program.refused(&format!("{machine} {extra}"));
    let nodes =
        |words: &str| words.lines().nth(1).unwrap().split_whitespace().nth(1).map(str::to_owned);
    let table = |words: &str| words.split("\n\n").skip(1).take(2).collect::<String>();
    let both = plan("--memory-gib 2x128,6x256");
    assert_eq!(nodes(&both).as_deref(), Some("8"), "{both}");
    let ways = |words: &str| {
        let (_, table) = words.split_once("\nNodes\n").expect("a table");
        table.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let (of_nodes, chosen) =
        ("nodes 6 8 gib 256.000 128.000 blocks equal equal ", "chosen false true");
    assert!(ways(&both).starts_with(of_nodes) && ways(&both).ends_with(chosen), "{both}");
    assert!(ways(&both).contains(" 324864 expected_gflops ") && ways(&both).contains(" 19752.1 "));
    assert_eq!(table(&both), table(&plan("--nodes 8 --memory-gib 128")));
    let without = plan("--memory-gib 6x256,1x0.5");
    assert_eq!(nodes(&without).as_deref(), Some("6"), "{without}");
    assert_eq!(table(&without), table(&plan("--nodes 6 --memory-gib 256")));
    // A node that holds nothing is left out, too.
    let none = plan("--memory-gib 6x256,1x0.000001");
    assert!(none.contains("\n7 node(s): no configuration"), "{none}");
    assert_eq!(table(&none), table(&without));
    let why = refused("--nodes 7 --memory-gib 2x128,6x256");
    assert!(why.contains("--nodes 7, and --memory-gib lists 8 nodes: leave out --nodes"), "{why}");
    let why = refused("--memory-gib 256,5");
    assert!(why.contains("e.g. 6x256,2x128"), "{why}");
}

/// One rate for all nodes is the rate of a core, however often it is given.
#[test]
fn plan_of_nodes_of_one_rate_is_that_of_equal_nodes() {
    let program = Program::new();
    let machine = "plan --cores-per-node 64 --threads 8 --bandwidth-gbs 12.5 --copy-gbs 20";
    let plan = |extra: &str| program.printed(&format!("{machine} {extra}"));
    let equal = plan("--nodes 8 --memory-gib 256 --gflops-per-core 37.6");
    assert_eq!(plan("--memory-gib 8x256@37.6"), equal);
    assert_eq!(plan("--memory-gib 6x256@37.6,2x256@37.6"), equal);
    let unequal = plan("--memory-gib 6x256,2x128 --gflops-per-core 37.6");
    assert_eq!(plan("--memory-gib 2x128@37.6,6x256@37.6"), unequal);
}

/// Faster nodes get more blocks, if that gives the highest rate, and a run accepts what is written.
#[test]
fn plan_divides_blocks_by_the_rates_of_nodes() {
    let program = Program::new();
    let machine = "plan --cores-per-node 64 --threads 16 --bandwidth-gbs 12.5 --copy-gbs 20";
    let plan = |extra: &str| program.printed(&format!("{machine} {extra}"));
    plan("--memory-gib 6x256@40,2x256@30 --out p.toml");
    let toml = program.read("p.toml");
    for setting in ["rates = \"40,40,40,40,40,40,30,30\"", "pmap = \"column\""] {
        assert!(toml.lines().any(|line| line == setting), "{toml}");
    }
    program.printed("convert p.toml p.dat");
    let (_, how) = program.done(&format!("{machine} --memory-gib 6x256@40,2x256@30 --out q.dat"));
    assert!(how.contains(" --rates 40,40,40,40,40,40,30,30 "), "{how}");
    let json = plan("--memory-gib 6x256@40,2x256@30 --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["machine"]["kinds"][1]["gflops_per_core"], 30.0);
    assert_eq!(
        json["column_gflops_per_core"],
        json!([40.0, 40.0, 40.0, 40.0, 40.0, 40.0, 30.0, 30.0])
    );
    let most = json["columns_over_mean"].as_f64().unwrap();
    assert!((most - 1.0667).abs() < 1e-3, "{most}");
    let ways = json["ways"].as_array().unwrap();
    let row = |way: &serde_json::Value| json!([way["nodes"], way["blocks"], way["chosen"]]);
    let want = json!([[6, "equal", false], [8, "by rate", true], [8, "equal", false]]);
    assert_eq!(ways.iter().map(row).collect::<serde_json::Value>(), want);
}

#[test]
fn plan_refuses_rates_that_no_run_can_have() {
    let program = Program::new();
    let machine = "plan --cores-per-node 64 --threads 64 --copy-gbs 20";
    for (extra, named) in [
        (
            "--memory-gib 6x256@40,2x256@30 --gflops-per-core 40",
            "--memory-gib has the rates of cores",
        ),
        ("--memory-gib 6x256@40,2x256", "6x256@40,2x128@30"),
        ("--memory-gib 6x256@40,2x256@0", "6x256@40,2x128@30"),
    ] {
        let message = program.refused(&format!("{machine} {extra}"));
        assert!(message.contains(named), "{extra}: {message}");
    }
    // Four nodes of a rank each are a 2 x 2 grid, and the other sets have fewer kinds.
    let words = program.printed(&format!("{machine} --memory-gib 2x256@40,1x256@35,1x256@30"));
    assert!(words.contains("3 kinds of nodes and a 2 x 2 grid"), "{words}");
    // Checksums take as many blocks of each process column.
    let words = program.printed(&format!("{machine} --memory-gib 4x256@40,4x256@39 --ft abft"));
    assert!(words.contains("\n8 node(s): --ft abft: its groups of block columns"), "{words}");
    assert!(words.contains("  chosen             false    false     true\n"), "{words}");
}

/// A run accepts what is written, also where checkpoints next to the solver follow each other at
/// once. Of a machine on which no run ever ends, the words are still numbers.
#[test]
fn plan_writes_what_a_run_accepts() {
    let program = Program::new();
    let machine = "plan --force --out p.toml --nodes 100 --cores-per-node 64 --memory-gib 256 \
                   --gflops-per-core 40 --copy-gbs 20 --bandwidth-gbs 0.1";
    let helped = "--threads 63 --helper-cores 1 --node-mtbf-hours 500";
    for extra in [helped, "--threads 64 --node-mtbf-hours 0.0001"] {
        let words = program.printed(&format!("{machine} {extra}"));
        program.printed("convert --force p.toml p.dat");
        let toml = program.read("p.toml");
        assert!(!toml.contains("\"0s\""), "{toml}");
        assert!(!words.contains("NaN"), "{words}");
        if extra == helped {
            let every = toml.lines().find_map(|line| line.strip_prefix("every = \"")).unwrap();
            let every: f64 = every.trim_end_matches("s\"").parse().unwrap();
            assert!(every >= 1.0, "{toml}\n{words}");
        }
    }
}

/// Images on disks that are too slow, or have no folder, leave power cuts to the file system.
#[test]
fn plan_leaves_no_failures_to_images_that_are_not_written() {
    let program = Program::new();
    program.printed(
        "plan --out p.toml --nodes 100 --cores-per-node 64 --threads 16 --memory-gib 256 \
         --gflops-per-core 40 --copy-gbs 20 --node-mtbf-hours 4000 --machine-mtbf-hours 24 \
         --local-gbs 0.05 --global-gbs 500 --global-folder /gpfs",
    );
    let toml = program.read("p.toml");
    assert!(toml.contains("level = \"global:/gpfs,every="), "{toml}");
}

/// A gain by checkpoints below the tolerance justifies none, nor does that of a shorter run.
#[test]
fn small_gains_justify_no_checkpoints() {
    let program = Program::new();
    let printed = program.printed(
        "plan --nodes 32 --cores-per-node 64 --threads 64 --memory-gib 512 --gflops-per-core 20 \
         --copy-gbs 20 --bandwidth-gbs 25 --node-mtbf-hours 8000 --json",
    );
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(json["choice"]["protocol"], "none");
    let rate = |of: &serde_json::Value| of["expected_gflops"].as_f64().unwrap();
    let of_self = json["candidates"].as_array().unwrap().iter();
    let best = of_self.filter(|it| it["protocol"] == "self").map(rate).fold(0.0, f64::max);
    let gain = best / rate(&json["choice"]) - 1.0;
    assert!((0.012..0.015).contains(&gain), "{gain}");
}

#[test]
fn cores_that_no_rank_uses_are_reported() {
    let program = Program::new();
    let idle = |extra: &str| {
        let printed = program.printed(&format!(
            "plan --cores-per-node 100 --threads 16 --memory-gib 64 --gflops-per-core 40 \
             --copy-gbs 20 --json {extra}"
        ));
        let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(json["machine"]["ranks_per_node"], 6);
        json["machine"]["idle_cores"].as_u64().unwrap()
    };
    assert_eq!(idle(""), 4);
    for (cores, left) in [(3, 1), (4, 0)] {
        let protected = format!("--nodes 100 --node-mtbf-hours 50 --helper-cores {cores}");
        assert_eq!(idle(&protected), left);
    }
    // A run without checkpoints keeps no cores.
    assert_eq!(idle("--helper-cores 3"), 4);
}

#[test]
fn plan_refuses_what_cannot_be() {
    let program = Program::new();
    for (extra, named) in [
        ("--node-mtbf-hours=-1", "'-1' for '--node-mtbf-hours <HOURS>': legal is a number above 0"),
        ("--node-mtbf-hours -1", "--node-mtbf-hours"),
        ("--threads 64", "--threads 64"),
        ("--cores-per-node 0", "of 0 cores a node: legal is"),
        ("--helper-cores 99", "--helper-cores 99 of 32 cores"),
        ("--memory-fraction 1.5", "--memory-fraction <0..1>': legal is more than 0, at most 1"),
        ("--memory-gib 0.000001", "no configuration"),
        ("--probability 2", "--probability <0..1>': legal is a number from 0 to 1"),
        ("--bandwidth-gbs 0", "--bandwidth-gbs"),
        ("--report none.json", "none.json"),
        ("--local-gbs 0", "--local-gbs"),
        ("--global-gbs 1 --machine-mtbf-hours 0", "--machine-mtbf-hours"),
        ("--local-folder /scratch", "--local-gbs"),
        ("--local-gbs 2 --machine-mtbf-hours 100 --local-folder here", "absolute paths"),
    ] {
        // A flag that is given twice would be refused for that reason.
        let first = extra.split(['=', ' ']).next().unwrap();
        let mut args: Vec<&str> = MACHINE.split_whitespace().collect();
        if let Some(at) = args.iter().position(|a| *a == first) {
            args.drain(at..at + 2);
        }
        args.extend(extra.split(' '));
        let message = program.refused_words(&args);
        assert!(message.contains(named), "{extra:?}: {message}");
    }
}

/// Writes a report with the fields of this version, and those that a checkpointed run adds.
fn write_report(program: &Program, name: &str, rates: &[(usize, f64)]) {
    let tests: Vec<serde_json::Value> = rates
        .iter()
        .map(|&(n, gflops)| {
            serde_json::json!({
                "variant": "WR11C2R4",
                "parameters": {"n": n, "nb": 128, "p": 2, "q": 4, "threads": 1},
                "status": "passed",
                "scaled_residual": 2.5e-3,
                "norms": {},
                "time_seconds": 2.0 * (n as f64).powi(3) / 3.0 / gflops / 1e9,
                "gflops": gflops,
                "efficiency": null,
                "start": "2026-01-02T03:04:05Z",
                "end": "2026-01-02T03:05:05Z",
                "generate_seconds": 1.0,
                "check_seconds": 0.5,
                "phases_seconds": {"max": {"panel": 1.0, "update": 5.0}, "mean": {}},
                "rank_bytes": 1000,
                "progress": [
                    {"elapsed_seconds": 1.0, "fraction": 0.4, "gflops": 80.0},
                    {"elapsed_seconds": 2.0, "fraction": 0.9, "gflops": 90.0}
                ],
                "events": [{"kind": "failure", "start_seconds": 1.0, "seconds": 3.0,
                            "detail": "node <7> lost"}],
                "memory_bytes": {"matrix": 1048576, "copy": 2097152},
                "a_field_of_the_future": [1, 2, 3]
            })
        })
        .collect();
    let report = serde_json::json!({
        "format": "skt-hpl report",
        "format_version": 1,
        "finished": true,
        "command_line": ["skt-hpl"],
        "program": {"name": "skt-hpl", "version": "0.1.0", "compiler": "rustc 1.90.0"},
        "environment": {
            "host": {"cpu_model": "Fast & Co", "cores": 3, "memory_bytes": 25_000_000_000u64},
            "blas": {"library": "OpenBLAS", "version": "OpenBLAS 0.3.21 Zen MAX", "kernel": "Zen",
                     "path": "/lib/libopenblas.so.0"},
            "hosts": [{"host": "a", "ranks": 4}, {"host": "b", "ranks": 4}]
        },
        "dgemm_self_test": {"gflops_per_core": 20.0, "warnings": []},
        "tests": tests
    });
    program.write(name, &report.to_string());
}

#[test]
fn page_shows_tests_events_memory_and_is_self_contained() {
    let program = Program::new();
    write_report(&program, "a.json", &[(1000, 60.0), (2000, 90.0), (2000, 80.0)]);
    write_report(&program, "b.json", &[(2000, 70.0)]);
    program.printed("report a.json b.json");
    let page = program.read("report.html");
    for expected in [
        "Comparison",
        "Fast &amp; Co",
        "node &lt;7&gt; lost",
        "<td>90.00</td><td>2000</td>",
        "\nWhere the time went",
        "\nBest rate by order of the matrix",
        "\nRate from the start",
        "<h3>Events, test 2</h3>",
        "<h3>Events, test 3</h3>",
    ] {
        assert!(page.contains(expected), "{expected} missing");
    }
    assert!(!page.contains("<script") && !page.contains("src=\"http"));
    assert!(program.refused("report a.json").contains("report.html"));
    program.done("report a.json --force");
}

#[test]
fn submission_has_rmax_nmax_and_half() {
    let program = Program::new();
    write_report(&program, "a.json", &[(1000, 20.0), (2000, 60.0), (8000, 100.0)]);
    let sheet = program.printed("report --top500 a.json --rpeak-gflops 200 --power-kw 0.5");
    let value = |field: &str| {
        let line =
            sheet.lines().find(|l| l.starts_with(field)).unwrap_or_else(|| panic!("{field}"));
        line[25..].trim().to_string()
    };
    assert_eq!(value("Rmax"), "100.000");
    assert_eq!(value("Nmax"), "8000");
    // 50 is three quarters of the way from 20 to 60.
    assert_eq!(value("N1/2"), "1750 (between two measured orders)");
    // Two hosts of three cores have four ranks each.
    assert_eq!(value("Cores"), "6");
    assert_eq!(value("Memory"), "50.0 (2 hosts of 25.0 as that of rank 0)");
    assert_eq!(value("Compiler"), "rustc 1.90.0");
    assert_eq!(value("Math library"), "OpenBLAS 0.3.21 MAX, kernel Zen, /lib/libopenblas.so.0");
    assert_eq!(value("Efficiency"), "50.00");
    assert_eq!(value("Gflops/W"), "0.2000");
    assert_eq!(value("Core phase start"), "2026-01-02T03:04:05Z");
    assert!(value("Site").starts_with("____"));
    // E(N) = N/(aN + b) through 80 at 4000 and 100 at 8000: half of 100 at 1600.
    write_report(&program, "b.json", &[(4000, 80.0), (8000, 100.0)]);
    let sheet = program.printed("report --top500 b.json");
    assert!(sheet.contains("1600 (extrapolated"), "{sheet}");
}

/// The test of 2000 rows takes 88.9 s and ends 0.25 s after 1000 s, at 110 W and then 130 W.
#[test]
fn a_log_of_a_meter_gives_power_and_efficiency() {
    let program = Program::new();
    write_report(&program, "a.json", &[(2000, 0.06)]);
    let mut report: serde_json::Value = serde_json::from_str(&program.read("a.json")).unwrap();
    report["tests"][0]["end_unix_seconds"] = serde_json::json!(1000.25);
    report["tests"][0]["power"] = serde_json::json!([{"source": "RAPL", "covers": "1 processor package(s)",
        "joules": 7000.0, "mean_watts": 78.7, "measured_seconds": 88.9, "watts": [70.0, null, 85.0]}]);
    program.write("a.json", &report.to_string());
    // The meter is 7 s ahead.
    let watts = |second: usize| if second <= 957 { 110 } else { 130 };
    let log: String = (900..1010).map(|s| format!("{s};{}\n", watts(s))).collect();
    program.write("log.csv", &format!("time;W\n{log}"));
    let of_log = "a.json --power-csv log.csv --power-clock-offset -7";
    let sheet = program.printed(&format!("report --top500 --power-level 2 {of_log}"));
    let value = |field: &str| {
        let line = sheet.lines().find(|line| line.starts_with(field)).expect(field);
        line[25..].trim().to_string()
    };
    // 110 W from 911.36 to 950.0, a ramp of a second, and 130 W to 1000.25.
    let seconds = 2.0 * 2000f64.powi(3) / 3.0 / 0.06e9;
    let joules = 110.0 * (950.0 - (1000.25 - seconds)) + 120.0 + 130.0 * 49.25;
    assert_eq!(value("Average power"), format!("{:.3}", joules / seconds / 1000.0));
    assert_eq!(value("Gflops/W"), format!("{:.4}", 0.06 * seconds / joules));
    assert_eq!(value("Power quality level"), "2 (as the site reports)");
    let readings = "89 in the core phase, at most 1.0 s apart, of 100.0 % of it";
    assert_eq!(value("Readings"), readings);
    assert_eq!(value("Counters of the nodes"), "78.7 W by RAPL: 1 processor package(s)");
    assert!(sheet.contains("no power to submit"));
    program.done(&format!("report --out page.html {of_log}"));
    let page = program.read("page.html");
    assert!(
        page.contains("<h3>Energy, test 1</h3>") && page.contains("<td>RAPL</td><td>7.000</td>")
    );
    assert!(page.contains("1. N=2000, meter") && page.contains("1. N=2000, RAPL"));
    // A clock that is off by an hour.
    let off = "report --top500 a.json --power-csv log.csv --power-clock-offset -3600";
    let why = program.refused(off);
    assert!(
        why.contains("does not cover the timed part of test 1 of a.json: 88.9 of 88.9 s"),
        "{why}"
    );
    // Counters alone are no power to submit.
    let sheet = program.printed("report --top500 a.json");
    let blank = sheet.lines().find(|line| line.starts_with("Average power")).unwrap();
    assert!(blank.ends_with("____"), "{blank}");
    // The level of a meter does not apply to a power from elsewhere.
    report["tests"][0]["power"] = serde_json::json!([{"source": "meter", "covers": "all", "level": 1,
        "joules": 10668.0, "mean_watts": 120.0, "measured_seconds": 88.9, "gflops_per_watt": 0.0005}]);
    program.write("a.json", &report.to_string());
    for (more, level) in [("", "1 (as the site reports)"), ("--power-kw 0.2", "____")] {
        let sheet = program.printed(&format!("report --top500 a.json {more}"));
        let line = sheet.lines().find(|line| line.starts_with("Power quality level")).unwrap();
        assert!(line.ends_with(level), "{more:?}: {line}");
    }
}

#[test]
fn reports_that_are_none_are_refused_with_their_name() {
    let program = Program::new();
    program.write("x.json", "{\"format\": \"other\"}");
    program.write("y.json", "{\n  nonsense");
    assert!(program.refused("report x.json").contains("\"other\""));
    let broken = program.refused("report y.json");
    assert!(broken.contains("y.json") && broken.contains("line 2"), "{broken}");
    write_report(&program, "empty.json", &[]);
    let nothing = program.refused("report --top500 empty.json");
    assert!(nothing.contains("passed its residual check"), "{nothing}");
}

/// The plan of the machine of [`with`] with further flags.
fn plan_json(program: &Program, extra: &str) -> serde_json::Value {
    serde_json::from_str(&program.printed(&with(&format!("--json {extra}")))).unwrap()
}

#[test]
fn plan_expects_what_earlier_runs_reached_of_the_model() {
    let program = Program::new();
    // One rank at 90 % of the model's rate, with cores of 40 Gflop/s.
    let core = Machine::ZEN4_CORE.with_core_flops(40e9);
    let run = RunParams::new(4000, 128, (1, 1));
    let seconds = predict(&run, &core, &Changes::default()).unwrap().time_seconds / 0.9;
    let phases = serde_json::json!({"update": seconds});
    program.write("a.json", &path_report(4000, 128, &phases, "null"));
    let efficiency = |extra: &str| {
        plan_json(&program, extra)["candidates"][0]["hpl_efficiency"].as_f64().unwrap()
    };
    let ratio = efficiency("--report a.json") / efficiency("");
    assert!((ratio - 0.9).abs() < 1e-6, "{ratio}");
    // A run of any size counts.
    let large = path_report(20_000_000, 256, &serde_json::json!({"update": 1e6}), "null");
    let large = large.replace(r#""p": 1, "q": 1"#, r#""p": 256, "q": 256, "transport": "shared""#);
    program.write("large.json", &large);
    assert!(efficiency("--report large.json") > 0.0);
    // A test of a smaller order does not count.
    let small = path_report(1000, 128, &phases, "null");
    let small = small.replace(r#""p": 1, "q": 1"#, r#""p": 1, "q": 2, "transport": "shared""#);
    program.write("small.json", &small);
    assert_eq!(efficiency("--report a.json --report small.json"), efficiency("--report a.json"));
    program.write("ft.json", &path_report(4000, 128, &phases, "{}"));
    let message = program.refused(&with("--report ft.json"));
    assert!(message.contains("without checkpoints"), "{message}");
}

#[test]
fn plan_takes_rates_that_were_measured() {
    let program = Program::new();
    let plan = |extra: &str| plan_json(&program, extra);
    let measured = plan("--checkpoint-gbs 1.5");
    let choice = &measured["choice"];
    let n = choice["n"].as_f64().unwrap();
    let want = 0.6 * 8.0 * n * n / 256.0 / 1.5e9 * choice["parities"].as_f64().unwrap();
    assert!((choice["checkpoint_seconds"].as_f64().unwrap() / want - 1.0).abs() < 1e-9);
    // What was measured is not uncertain.
    assert_eq!(measured["uncertain"].as_array().unwrap().len(), 1);
    let message = program.refused(&with("--checkpoint-gbs 0"));
    assert!(message.contains("--checkpoint-gbs"), "{message}");
    // A machine of the model, with its latency within a node and its rates of panels.
    let core = Machine { message_seconds: 9e-6, ..Machine::ZEN4_CORE };
    program.write("m.json", &serde_json::to_string(&core).unwrap());
    assert_eq!(plan("--machine m.json")["choice"], plan("")["choice"]);
    let message = program.refused(&with("--machine none.json"));
    assert!(message.contains("none.json"), "{message}");
}

/// A report of one test, as `--json` writes it, without the fields that the model does not read.
fn path_report(n: usize, nb: usize, phases: &serde_json::Value, protection: &str) -> String {
    let seconds: f64 = phases.as_object().unwrap().values().map(|s| s.as_f64().unwrap()).sum();
    format!(
        r#"{{"format": "skt-hpl report", "tests": [{{
            "parameters": {{"n": {n}, "nb": {nb}, "p": 1, "q": 1, "depth": 1, "bcast": "1ring",
                "swap": "mix", "swap_threshold": 64, "threads": 1}},
            "status": "passed", "time_seconds": {seconds}, "protection": {protection},
            "phases_seconds": {{"max": {{}}, "mean": {phases}}}
        }}]}}"#
    )
}
