//! `skt-hpl plan --ft`.

use crate::built::Program;

#[test]
fn protection_that_is_asked_for_is_planned() {
    let program = Program::new();
    // None is expected to be done first, though it finishes in one go with less than 99 %.
    let machine = "plan --nodes 16 --cores-per-node 64 --threads 16 --memory-gib 256 \
                   --gflops-per-core 48 --copy-gbs 20 --node-mtbf-hours 200";
    let plain = program.printed(machine);
    assert_eq!(row(&plain, "protocol"), "none");
    let (printed, commands) = program.done(&format!("{machine} --ft self --spares 0 --out c.toml"));
    assert_eq!((row(&printed, "protocol"), row(&printed, "spares")), ("self", "0"));
    assert!(program.read("c.toml").contains("method = \"self\""));
    assert!(commands.contains("launch --hosts hosts"), "{commands}");
    let why = program.refused(
        "plan --nodes 1 --cores-per-node 4 --memory-gib 8 --gflops-per-core 40 \
                               --copy-gbs 20 --ft self",
    );
    assert!(why.contains("--ft self: 1 node(s) form no group"), "{why}");
    let why = program.refused(&format!("{machine} --ft checkpoint"));
    assert!(why.contains("legal is none, single, double, self, abft"), "{why}");
}

#[test]
fn a_run_too_short_for_a_checkpoint_is_reported() {
    let program = Program::new();
    let (printed, commands) = program.done(
        "plan --nodes 4 --cores-per-node 2 --memory-gib 4 --gflops-per-core 50 --copy-gbs 5 \
         --ft self --spares 0 --out c.toml",
    );
    let warning = "\nwarning: no checkpoint is due before the end of the run\n";
    assert!(printed.contains(warning), "{printed}");
    assert!(commands.contains("launch --hosts hosts"), "{commands}");
}

/// The first value in the row `name` of the table of the choice.
fn row<'a>(printed: &'a str, name: &str) -> &'a str {
    let (_, choice) = printed.split_once("\nThe choice").expect("a table");
    let mut rows = choice.lines().map(str::split_whitespace);
    let mut found = rows.find_map(|mut row| (row.next() == Some(name)).then_some(row));
    found.as_mut().and_then(Iterator::next).unwrap_or_else(|| panic!("{name}: {printed}"))
}

/// The number after `before`, to the next character that is no digit.
fn number(text: &str, before: &str) -> usize {
    let (_, after) = text.split_once(before).unwrap_or_else(|| panic!("{before}: {text}"));
    let digits = after.split(|c: char| !c.is_ascii_digit()).next().expect("one");
    digits.parse().unwrap_or_else(|_| panic!("{before}: {text}"))
}

/// Asserts that `n` has the memory of `ranks` of `ranks + guests` ranks of `full`. Panels are no
/// part of N^2, so that N may be a little smaller.
fn assert_room(n: usize, full: usize, ranks: f64, guests: f64) {
    let share = (n as f64 / full as f64).powi(2) * (ranks + guests) / ranks;
    assert!(share > 0.95 && share < 1.01 && n.is_multiple_of(64), "{n} of {full}: {share}");
}

#[test]
fn a_plan_leaves_memory_for_the_ranks_of_a_lost_node() {
    let program = Program::new();
    let plan = "plan --cores-per-node 64 --threads 16 --memory-gib 256 --gflops-per-core 48 \
                --copy-gbs 20 --survive-without-spares";
    // Of two nodes each gets all ranks of the other.
    for (nodes, guests) in [(16, 1.0), (2, 4.0)] {
        let out = format!("{plan} --nodes {nodes} --spares 0 --force --out c.toml");
        let (whole, _) = program.done(&out.replace("--survive-without-spares", "--ft self"));
        let (printed, commands) = program.done(&out);
        assert_eq!(row(&printed, "protocol"), "self");
        let [n, full] = [&printed, &whole].map(|it| row(it, "n").parse().unwrap());
        assert_room(n, full, 4.0, guests);
        assert!(program.read("c.toml").contains(&format!("\nn = [{n}]\n")));
        let launch = "launch --hosts hosts --no-spare spread ";
        assert!(commands.contains(launch), "{commands}");
    }
    let why = program.refused(&format!("{plan} --nodes 16 --ft none"));
    assert!(why.contains("--survive-without-spares: with --ft none a loss"), "{why}");
}

#[test]
fn init_leaves_memory_for_one_rank_more() {
    let program = Program::new();
    for (ft, method) in [("", "self"), (" --ft abft", "abft")] {
        let init = |more: &str| {
            let line = format!("init --force --ranks 6 --memory-gib 64{ft} {more}");
            let (_, printed) = program.done(&line);
            (number(&printed, "init: N = "), printed)
        };
        let (full, _) = init(if ft.is_empty() { "--ft self" } else { "" });
        let (n, printed) = init("--survive-without-spares");
        assert_room(n, full, 6.0, 1.0);
        assert!(printed.contains(&format!(" --ft {method}")), "{printed}");
        assert!(program.read("HPL.dat").contains("\nskt-hpl init: 6 ranks\n"));
    }
    let one = "init --force --ranks 1 --memory-gib 64 --survive-without-spares";
    let why = program.refused(one);
    assert!(why.contains("--survive-without-spares: without checkpoints a loss"), "{why}");
}
