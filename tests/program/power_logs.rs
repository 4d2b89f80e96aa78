//! `skt-hpl report --power-csv` on the forms of logs that docs/report.md lists.

use crate::built::Program;

/// The end of a test of a second, within the readings: they begin at 05:31:06 or 05:31:06.5 UTC.
const END_UNIX_SECONDS: f64 = 1_795_930_267.75;

/// The examples of the page: its name, its lines, and the flags that it takes.
fn examples() -> Vec<(String, Vec<String>, String)> {
    let page = include_str!("../../docs/report.md");
    let (_, section) = page.split_once("\n## Power logs\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let [_, name, lines, flags, _] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("a row of other columns: {row}");
        };
        let lines = lines.split("<br>").map(|line| line.trim_matches('`').to_owned());
        (name.to_owned(), lines.collect(), flags.trim_matches('`').to_owned())
    })
    .collect()
}

/// A line of an example some seconds later.
fn shifted(line: &str, seconds: usize) -> String {
    let later = |text: &str| text.replace(":31:06", &format!(":31:{:02}", 6 + seconds));
    later(&line.replace("1795930266", &format!("{}", 1_795_930_266 + seconds)))
}

/// A report of a test that took a second.
fn report(program: &Program) {
    let test = serde_json::json!({
        "variant": "WR11C2R4", "status": "passed", "time_seconds": 1.0, "gflops": 300.0,
        "end_unix_seconds": END_UNIX_SECONDS, "parameters": {"n": 1000, "nb": 8, "p": 1, "q": 1, "threads": 1},
    });
    let report = serde_json::json!({"format": "skt-hpl report", "tests": [test]});
    program.write("run.json", &report.to_string());
}

#[test]
fn each_form_on_the_page_is_read() {
    let program = Program::new();
    report(&program);
    let examples = examples();
    assert!(examples.len() >= 20, "{} forms on the page", examples.len());
    for (name, lines, flags) in examples {
        let is_bmc = lines[0].contains("ower") && lines[0].contains(": ");
        let is_reading = |line: &&String| shifted(line, 1) != **line;
        let head = lines.iter().take_while(|line| !is_bmc && !is_reading(line)).count();
        let mut log: Vec<String> = lines[..head].to_vec();
        // The test takes one of these three seconds.
        for seconds in 0..4 {
            log.extend(lines[head..].iter().map(|line| shifted(line, seconds)));
        }
        program.write("log.csv", &(log.join("\n") + "\n"));
        let command = format!("report run.json --power-csv log.csv --force {flags}");
        let output = program.command(&command).env("TZ", "UTC").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{name}: {error}\n{log:?}");
        let figure = "gflops_per_watt 1, joules 300, mean_watts 300, measured_seconds 1, ";
        assert!(error.contains(figure), "{name}: {error}\n{log:?}");
    }
}

#[test]
fn a_log_of_accelerators_alone_is_reported() {
    let program = Program::new();
    report(&program);
    for (header, fields, column) in [
        ("time, power.draw [W]", "300 W", Some("power.draw [W]")),
        ("time,gpu,socket_power", "0,300", Some("socket_power")),
        ("time,node_power [W]", "300", None),
    ] {
        let lines = (0..4).map(|second| format!("{}, {fields}\n", 1_795_930_265 + second));
        program.write("log.csv", &format!("{header}\n{}", lines.collect::<String>()));
        let output = program.command("report run.json --power-csv log.csv --force").output();
        let error = String::from_utf8(output.unwrap().stderr).unwrap();
        let warning = column.map(|column| format!("{column} measures accelerators only"));
        assert_eq!(error.contains("accelerators only"), warning.is_some(), "{header}: {error}");
        assert!(warning.is_none_or(|warning| error.contains(&warning)), "{header}: {error}");
        assert!(error.contains("log.csv, column "), "{header}: {error}");
    }
}

#[test]
fn logs_that_could_be_read_in_two_ways_are_refused() {
    let program = Program::new();
    report(&program);
    for (log, why) in [
        (
            "11/09/2026 05:31:06,300\n",
            "line 1, column 1: `11/09/2026 05:31:06` is no time: its day",
        ),
        (
            "timestamp, index, power.draw [W]\n5, 0, 3 W\n5, 1, 3 W\n",
            "line 3, column 1: `1` is a second",
        ),
        (
            "Timestamp,Sensor,Value\n5,Current,300\n",
            "line 1, column 1: neither a reading nor a header",
        ),
        ("time,power,factor\n5,300,0.9\n", "line 2, column 3: `300` needs its unit next to other"),
        (
            "05:31:06 300\n",
            "line 1, column 1: `05:31:06` is no time: a time of day without its date",
        ),
        ("5 3\n5 3\n6 3\n6 3\n7 3\n7 3\n", "several readings for each time"),
    ] {
        program.write("log.csv", log);
        let error = program.refused("report run.json --power-csv log.csv");
        assert!(error.contains(why), "{log:?}: {error}");
    }
}
