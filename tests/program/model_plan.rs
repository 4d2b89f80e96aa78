//! `skt-hpl plan` on the machines of docs/model.md and of the notebook: they show what the program
//! prints, and every number is recomputed here by hand.

use skt_config::Swap;
use skt_model::path::{Changes, Machine, RunParams, predict};

use crate::built::Program;

/// Pairs of a command line on the pages, which begins with `$`, and its output.
fn shown() -> Vec<(String, String)> {
    let pages = concat!(
        include_str!("../../docs/model.md"),
        include_str!("../../docs/measurements/notebook.md")
    );
    let mut shown = Vec::new();
    let blocks = pages.split("```").filter_map(|block| block.strip_prefix("console\n"));
    for block in blocks.filter(|block| block.starts_with("$ skt-hpl plan ")) {
        let (command, output) = block.split_once('\n').expect("a command and its output");
        shown.push((command["$ ".len()..].to_owned(), output.to_owned()));
    }
    shown
}

fn skt_hpl(line: &str) -> String {
    Program::new().printed(line.strip_prefix("skt-hpl ").expect("a command line"))
}

#[test]
fn the_page_shows_what_the_program_prints() {
    let shown = shown();
    assert!(shown.len() >= 3, "{} plans on the pages", shown.len());
    for (command, output) in shown {
        let printed = skt_hpl(&command);
        // A block may end with `...` after whole lines.
        let whole = output.strip_suffix("...\n");
        let printed = whole.map_or(&printed[..], |begin| printed.get(..begin.len()).unwrap_or(""));
        let output = whole.unwrap_or(&output);
        assert_eq!(printed, output, "the pages show another output of\n{command}");
    }
}

/// A flag's value on a command line.
fn flag(command: &str, name: &str) -> Option<f64> {
    let mut words = command.split_whitespace().skip_while(|word| *word != name);
    words.nth(1).map(|value| value.parse().unwrap())
}

#[track_caller]
fn assert_near(what: &str, got: f64, by_hand: f64, relative: f64) {
    assert!((got - by_hand).abs() <= relative * by_hand.abs(), "{what}: {got}, by hand {by_hand}");
}

#[test]
fn every_number_of_these_plans_by_hand() {
    // With a slow network, too, of which the page shows no plan.
    let slow = "skt-hpl plan --nodes 16 --cores-per-node 64 --threads 8 --memory-gib 256 \
                --gflops-per-core 40 --copy-gbs 20 --bandwidth-gbs 0.1";
    // At the measured rate of checkpoints that the page gives in a sentence.
    let measured = "skt-hpl plan --nodes 16000 --cores-per-node 24 --threads 24 --memory-gib 59.6 \
                    --gflops-per-core 17.6 --copy-gbs 10 --bandwidth-gbs 7.1 \
                    --node-mtbf-hours 160000 --downtime-seconds 72 --checkpoint-gbs 1.75";
    let shown = shown().into_iter().map(|(command, _)| command);
    // The crate of the model has the numbers of unequal nodes by hand.
    let shown = shown.filter(|command| !command.contains('@'));
    for command in shown.chain([slow.to_owned(), measured.to_owned()]) {
        let json: serde_json::Value =
            serde_json::from_str(&skt_hpl(&format!("{command} --json"))).unwrap();
        by_hand(&command, &json);
    }
}

fn by_hand(command: &str, json: &serde_json::Value) {
    let given = |name: &str| flag(command, name);
    let (nodes, cores) = (given("--nodes").unwrap(), given("--cores-per-node").unwrap());
    let threads = given("--threads").unwrap();
    let ranks_per_node = cores / threads;
    let choice = &json["choice"];
    let value = |name: &str| choice[name].as_f64().unwrap_or_else(|| panic!("{name}: {choice}"));

    // Of 80 % of the memory, 4 % is work space; none keeps all, self (n - m) / 2n, n being that of
    // the smallest group that the run forms.
    let memory = given("--memory-gib").unwrap() * 2f64.powi(30) * 0.8;
    let usable = memory * 0.96;
    let is_protected = choice["protocol"] == "self";
    let (members, parities) =
        if is_protected { (value("group_size"), value("parities")) } else { (2.0, 1.0) };
    let formed = (nodes / (nodes / members).ceil()).floor();
    let share = if is_protected { (formed - parities) / (2.0 * formed) } else { 1.0 };
    assert_near("matrix", value("matrix_bytes"), share * usable, 1e-12);
    let n = ((share * usable * nodes / 8.0).sqrt() / 256.0).floor() * 256.0;
    assert_eq!(value("n"), n, "{command}");
    let (p, q) = (json["p"].as_f64().unwrap(), json["q"].as_f64().unwrap());
    assert!(p <= q && p * q == nodes * ranks_per_node);
    // Panels and buffers, 3 NB (N/P + N/Q) doubles a rank, fit into the 4 %.
    assert!(ranks_per_node * 8.0 * 768.0 * (n / p + n / q) < 0.04 * memory, "{command}");

    // E(N), from the critical path of this run.
    let bandwidth = given("--bandwidth-gbs").unwrap();
    let core = Machine::ZEN4_CORE.with_core_flops(given("--gflops-per-core").unwrap() * 1e9);
    let message_byte_seconds = 1e-9 * ranks_per_node / bandwidth;
    let machine = Machine { message_seconds: 2e-6, message_byte_seconds, ..core };
    let run = RunParams {
        threads: threads as usize,
        depth: 1,
        halves: RunParams::has_halves(Swap::Mix, 1),
        ..RunParams::new(n as usize, 256, (p as usize, q as usize))
    };
    let efficiency = predict(&run, &machine, &Changes::default()).unwrap().efficiency;
    assert_near("E(N)", value("hpl_efficiency"), efficiency, 5e-3);
    let flops = 2.0 / 3.0 * n.powi(3) + 1.5 * n * n;
    let peak = given("--gflops-per-core").unwrap() * 1e9 * cores * nodes;
    let work = flops / (value("hpl_efficiency") * peak);
    assert_near("work", value("work_seconds"), work, 1e-9);

    abft_by_hand(command, json);
    let mtbf = given("--node-mtbf-hours").unwrap_or(43_800.0) * 3600.0 / nodes;
    assert_near("rate", value("expected_gflops"), flops / value("expected_seconds") / 1e9, 1e-9);
    assert_near("failures", value("expected_failures"), value("expected_seconds") / mtbf, 1e-9);
    if !is_protected {
        // From the start again after each failure: (e^(W/mu) - 1) mu e^(D/mu).
        let time = (work / mtbf).exp_m1() * mtbf * (value("downtime_seconds") / mtbf).exp();
        assert_near("time", value("expected_seconds"), time, 1e-9);
        assert_near("finishes", value("finish_probability"), (-work / mtbf).exp(), 1e-9);
        return;
    }

    // A chain of n + 1 processes, 2 us, with its best segment; then the copy; 3/5 of the matrix.
    let copy = given("--copy-gbs").unwrap() * 1e9;
    let bytes = 8.0 * n * n / nodes;
    let seconds = |bytes: f64| match given("--checkpoint-gbs") {
        Some(rate) => parities * bytes / (rate * 1e9),
        None => {
            let sums = if parities == 1.0 { 1.0 } else { 2.0 };
            let per_byte = 1e-9 / bandwidth + sums / copy;
            let once = (((members - 1.0) * 2e-6).sqrt() + (per_byte * bytes).sqrt()).powi(2);
            parities * once + bytes / copy
        }
    };
    assert_near("checkpoint", value("checkpoint_seconds"), seconds(0.6 * bytes), 1e-9);
    assert_near("recovery", value("recovery_seconds"), seconds(bytes), 1e-9);

    // Young's interval is the first order of the best one.
    let (interval, checkpoint) = (value("interval_seconds"), value("checkpoint_seconds"));
    assert_near("interval", interval, (2.0 * mtbf * checkpoint).sqrt(), 0.05);
    let outage = value("downtime_seconds") + value("recovery_seconds");
    let segment = |seconds: f64| (seconds / mtbf).exp_m1() * mtbf * (outage / mtbf).exp();
    let periods = work / interval - 1.0;
    let time = periods * segment(interval + checkpoint) + segment(interval);
    assert_near("time", value("expected_seconds"), time, 1e-9);
    assert_near("in checkpoints", value("in_checkpoints_seconds"), periods * checkpoint, 1e-9);
    let failures = value("expected_failures");
    assert_near("in outages", value("in_outages_seconds"), failures * outage, 1e-9);

    // Another member of the group fails before the outage is over: (n - 1) V / mu per failure.
    if parities == 1.0 {
        let loss = failures * (members - 1.0) * outage / (mtbf * nodes);
        assert_near("loss", 1.0 - value("keeps_data_probability"), loss, 0.05);
    }
    // Spares: failures are close to Poisson here.
    let spares = value("fewest_spares");
    let at_most = |count: f64| {
        let (mut term, mut sum, mut k) = ((-failures).exp(), 0.0, 0.0);
        while k <= count {
            sum += term;
            k += 1.0;
            term *= failures / k;
        }
        sum
    };
    assert!(at_most(spares + 1.0) > 0.99 && at_most(spares - 2.0) < 0.99, "{spares} spares");
    let finishes = value("keeps_data_probability") * value("spares_suffice_probability");
    assert_near("finishes", value("finish_probability"), finishes, 1e-12);
}

/// For all process rows with checksums: the memory that they leave, their cost, and the loss.
fn abft_by_hand(command: &str, json: &serde_json::Value) {
    let given = |name: &str| flag(command, name);
    let (nodes, cores) = (given("--nodes").unwrap(), given("--cores-per-node").unwrap());
    let usable = given("--memory-gib").unwrap() * 2f64.powi(30) * 0.8 * 0.96;
    let ranks = nodes * cores / given("--threads").unwrap();
    let peak = given("--gflops-per-core").unwrap() * 1e9 * cores * nodes;
    let node_mtbf = given("--node-mtbf-hours").unwrap_or(43_800.0) * 3600.0;
    let all = json["candidates"].as_array().unwrap();
    let of_abft: Vec<_> = all.iter().filter(|one| one["protocol"] == "abft").collect();
    assert!(!of_abft.is_empty(), "{command}");
    for candidate in of_abft {
        let value = |name: &str| candidate[name].as_f64().unwrap();
        let (q, m, n) = (value("q"), value("parities"), value("n"));
        assert_eq!(value("p") * (q + m), ranks);
        assert_eq!(value("group_size"), q + m);
        assert_near("matrix", value("matrix_bytes"), q / (q + m) * usable, 1e-12);
        assert_eq!(n, ((q / (q + m) * usable * nodes / 8.0).sqrt() / 256.0).floor() * 256.0);
        let work = (2.0 / 3.0 * n.powi(3) + 1.5 * n * n) / (value("hpl_efficiency") * peak);
        assert_near("work", value("work_seconds"), work, 1e-9);
        assert!(value("hpl_efficiency") < q / (q + m), "ranks with checksums do no counted work");
        // All data of a node, along q + m + 1 processes, and a step that is undone.
        let sums = if m == 1.0 { 1.0 } else { 2.0 };
        let per_byte =
            1e-9 / given("--bandwidth-gbs").unwrap() + sums * 1e-9 / given("--copy-gbs").unwrap();
        let sum = (((q + m - 1.0) * 2e-6).sqrt() + (per_byte * usable).sqrt()).powi(2);
        let step = work / (n / 256.0);
        assert_near("recovery", value("recovery_seconds"), sum + step, 1e-9);
        let outage = value("downtime_seconds") + value("recovery_seconds");
        let mtbf = node_mtbf / nodes;
        let time = work / step * (step / mtbf).exp_m1() * mtbf * (outage / mtbf).exp();
        assert_near("time", value("expected_seconds"), time, 1e-6);
        if m == 1.0 {
            let loss = value("expected_failures") * q * outage / node_mtbf;
            assert_near("loss", 1.0 - value("keeps_data_probability"), loss, 0.05);
        }
    }
}
