use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a line, which is cut into its arguments at blanks.
fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skt-studies"));
    command.args(line.split_whitespace()).current_dir(folder).output().unwrap()
}

#[track_caller]
pub(crate) fn stdout(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a call that ends with exit code 2.
#[track_caller]
pub(crate) fn refusal(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert_eq!(output.status.code(), Some(2), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn all_figures_are_written_with_units_and_an_index() {
    let folder = tempfile::tempdir().unwrap();
    stdout(folder.path(), "all --out figures");
    let list = stdout(folder.path(), "list");
    let index = fs::read_to_string(folder.path().join("figures/index.html")).unwrap();
    assert!(list.lines().count() >= 25);
    // The suffixes of columns that are neither names nor numbers without a unit.
    let units = [
        "seconds",
        "hours",
        "years",
        "bytes",
        "percent",
        "fraction",
        "gflops",
        "rows",
        "processes",
        "members",
        "nodes",
        "survived",
        "half_width",
    ];
    let unitless = ["series", "panel", "part", "machine", "x_name", "x_value", "y_name", "y_value"];
    for line in list.lines() {
        let (name, title) = line.split_once(' ').expect("a name and its title");
        let read = |extension: &str| {
            let file = format!("figures/{name}.{extension}");
            fs::read_to_string(folder.path().join(&file)).unwrap_or_else(|e| panic!("{file}: {e}"))
        };
        let (svg, csv) = (read("svg"), read("csv"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{name}");
        assert!(svg.contains(&format!(">\n{}\n</text>", title.trim_start())), "{name}: {title}");
        assert!(!svg.contains("NaN") && !csv.contains("NaN"), "{name} holds a NaN");
        assert!(index.contains(&format!("{name}.svg")) && index.contains(&format!("{name}.csv")));
        let header = csv.lines().next().unwrap();
        for column in header.split(',') {
            let has_unit = units.iter().any(|unit| column.ends_with(unit));
            assert!(has_unit || unitless.contains(&column), "{name}: column {column}");
        }
        let columns = header.split(',').count();
        assert!(csv.lines().count() > 3, "{name} has hardly any rows");
        assert!(
            csv.lines().filter(|l| !l.contains('"')).all(|l| l.split(',').count() == columns),
            "{name}: rows of unequal length"
        );
    }
}

#[test]
fn one_figure_as_csv_or_svg_and_unknown_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let csv = stdout(folder.path(), "figure tang-10-memory");
    assert!(csv.starts_with("series,group_size_processes,available_memory_percent\n"));
    assert!(csv.contains("self checkpoint,16,46.875\n"), "{csv}");
    stdout(folder.path(), "figure tang-10-memory --out m.svg");
    let again = refusal(folder.path(), "figure tang-10-memory --out m.svg");
    assert!(again.contains("m.svg"), "{again}");
    let unknown = refusal(folder.path(), "figure no-such");
    assert!(unknown.contains("no-such") && unknown.contains("tang-10-memory"));
    let format = refusal(folder.path(), "figure tang-10-memory --out m.pdf");
    assert!(format.contains(".svg or .csv"), "{format}");
}

#[test]
fn simulation_is_reproducible_and_refuses_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let args = "simulate --runs 50 --nodes 500 --node-mtbf-hours 900";
    let once = stdout(folder.path(), args);
    let threads = format!("{args} --threads 3");
    assert_eq!(once, stdout(folder.path(), &threads));
    let seeded = format!("{args} --seed 2");
    assert_ne!(once, stdout(folder.path(), &seeded));
    for (extra, named) in [
        ("--node-mtbf-hours=-4", "--node-mtbf-hours"),
        ("--group 1", "a group of 1"),
        ("--group 8 --parities 5", "5 parities"),
        ("--runs 0", "runs = 0"),
        ("--overlap 2", "'2' for '--overlap <0..1>'"),
        ("--law weibull --shape 0", "--shape"),
        ("--nodes 0", "nodes = 0"),
        ("--confidence 1", "--confidence <0..1>': legal is between 0 and 1"),
        ("--trace none.txt", "none.txt"),
        ("--protocol hierarchical --spares 3", "--spares"),
        ("--protocol abft", "--interval-seconds"),
        ("--interval-seconds 0", "--interval-seconds <S>': legal is a number above 0"),
    ] {
        let message = refusal(folder.path(), &format!("simulate {extra}"));
        assert!(message.contains(named), "{extra:?}: {message}");
    }
    fs::write(folder.path().join("trace"), "10 0\nsoon 1\n").unwrap();
    let message = refusal(folder.path(), "simulate --trace trace");
    assert!(message.contains("line 2") && message.contains("soon"), "{message}");
}

#[test]
fn waste_table_marks_where_the_formula_leaves_its_range() {
    let folder = tempfile::tempdir().unwrap();
    let table = stdout(folder.path(), "waste");
    assert_eq!(table.lines().count(), 1 + 4 * (3 + 3 + 4));
    let titan = table.lines().find(|l| l.starts_with("Titan,2D-STENCIL,HIERARCH-IO,")).unwrap();
    assert!(titan.contains(",136,15.0588,1.0984e-4,"), "{titan}");
    assert!(table.contains("FirstOrderDoubtful") && table.contains("NoPeriod"));
}

#[test]
fn simulated_waste_without_lost_runs_is_the_formulas() {
    let folder = tempfile::tempdir().unwrap();
    let text = stdout(
        folder.path(),
        "simulate --nodes 64 --node-mtbf-hours 64 --work-hours 20 --group 16 \
         --downtime-seconds 300 --runs 2000",
    );
    let numbers = |head: &str| -> Vec<f64> {
        let lines = text.lines().filter(|l| l.starts_with(head));
        lines.map(|l| l[28..].split_whitespace().next().unwrap().parse().unwrap()).collect()
    };
    let lost = numbers("lost data")[0];
    assert!(lost > 20.0 && lost < 60.0, "runs are lost, so that it matters\n{text}");
    let [all, unharmed, first_order, long, finite] = numbers("waste")[..] else { panic!("{text}") };
    assert!(all > unharmed + 0.5 * lost / 100.0, "{text}");
    assert!((unharmed / finite - 1.0).abs() < 0.01, "{text}");
    assert!((long / finite - 1.0).abs() < 0.01 && first_order > long, "{text}");
    let [_finished, time, by_formula] = numbers("time")[..] else { panic!("{text}") };
    assert!((time / by_formula - 1.0).abs() < 0.01, "{text}");
    // If nothing is lost, there is nothing to distinguish.
    let text = stdout(folder.path(), "simulate --runs 50");
    assert_eq!(text.lines().filter(|l| l.starts_with("waste ")).count(), 4, "{text}");
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" list >&-", env!("CARGO_BIN_EXE_skt-studies")]);
    let output = shell.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("error: standard output: cannot be written"), "{error}");
}
