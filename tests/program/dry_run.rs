//! `skt-hpl launch --dry-run`.

use crate::built::Program;

/// The line of the plan that begins with this word.
fn line<'a>(plan: &'a str, what: &str) -> &'a str {
    let found = plan.lines().find_map(|line| line.strip_prefix(what));
    found.unwrap_or_else(|| panic!("no line {what} in {plan}")).trim()
}

/// The example of the user guide.
#[test]
fn a_node_with_more_slots_runs_more_ranks() {
    let program = Program::new();
    program.write("hosts", "node1 slots=4\nnode2 slots=4\nnode3 slots=8\n");
    let launch = "launch --dry-run --hosts hosts --launcher openmpi --agent ./no-agent";
    let (plan, printed) = program.done(&format!("{launch} -- --threads 8 --p 4 --q 4 --n 40000"));
    let nodes =
        "3 for 16 rank(s) of 8 thread(s): node1, node2 with 4 slot(s), node3 with 8 slot(s)";
    assert_eq!(line(&plan, "nodes"), nodes);
    assert!(line(&plan, "memory").contains(" on a node with 8; "), "{plan}");
    // Each group has a rank of node3 and one of another node.
    assert!(printed.contains("8 group(s) of 2 ranks in 3 failure domain(s)"), "{printed}");
}

#[test]
fn a_dry_run_prints_the_plan_and_starts_nothing() {
    let program = Program::new();
    let nodes = (1..=9).map(|node| format!("n{node:02} slots=2\n"));
    program.write("hosts", &nodes.collect::<String>());
    let launch = "launch --dry-run --hosts hosts --launcher openmpi --agent ./no-agent";
    let plan = program.printed(&format!("{launch} -- --n 10000 --p 4 --q 4 --threads 2"));
    let nodes = "8 for 16 rank(s) of 2 thread(s): n[01-08] with 2 slot(s)";
    assert_eq!(line(&plan, "nodes"), nodes);
    assert_eq!(line(&plan, "spares"), "1: n09 with 2 slot(s)");
    let memory = line(&plan, "memory");
    assert!(memory.contains(" MiB a rank at most, ") && memory.contains(" stay "), "{memory}");
    assert!(line(&plan, "a loss").starts_with("n09 takes the node's place, and"), "{plan}");
    let command = line(&plan, "command");
    for part in [" mpirun --mca plm_rsh_agent ./no-agent ", " -np 16 ", " --bind-to none "] {
        assert!(command.contains(part), "{part}: {command}");
    }
    assert!(command.ends_with(" run --n 10000 --p 4 --q 4 --threads 2"), "{command}");
    assert!(!program.path().join("skt-hpl.launch").exists(), "there is no state");

    let plan = program.printed(&format!("{launch} -- --n 10000 --p 9 --q 2 --ft none"));
    assert_eq!(line(&plan, "spares"), "none");
    let loss = "no spare: `launch` ends with 75 until the node is back, and the run starts from \
                the beginning";
    assert_eq!(line(&plan, "a loss"), loss);
    let plan = program.printed(&format!("{launch} --no-spare wait -- --n 10000 --p 9 --q 2"));
    let loss = "no spare: `launch` waits for the node, and the run ";
    assert!(line(&plan, "a loss").starts_with(loss), "{plan}");
    // A short run with `self` has nothing to continue from.
    let warning = "no checkpoint is due before the end of the test: a run that loses memory starts";
    for (flags, warns) in [("", true), ("--checkpoint-every 2p", false), ("--ft none", false)] {
        let plan = program.printed(&format!("{launch} -- --n 10000 --p 4 --q 4 {flags}"));
        assert_eq!(plan.contains(warning), warns, "{flags}: {plan}");
        let from = if flags.ends_with("none") { "the beginning" } else { "its checkpoint" };
        assert!(line(&plan, "a loss").ends_with(from), "{flags}: {plan}");
    }
    let plan = program.printed(&format!("{launch} --no-spare spread -- --n 10000 --p 9 --q 2"));
    let loss = "no spare: other nodes run its ranks if they have the memory, and the run ";
    assert!(line(&plan, "a loss").starts_with(loss), "{plan}");
    let warning = "with the memory of this machine";
    assert!(!plan.contains(warning), "{plan}");
    // 700 TB a rank: no machine has two of them.
    let plan = program.printed(&format!("{launch} --no-spare spread -- --n 40000000 --p 9 --q 2"));
    assert!(plan.contains(warning) && plan.contains(" ranks need "), "{plan}");
    assert!(plan.contains("no node has room for one more rank: a loss stops the run; "), "{plan}");
    assert!(plan.contains("; N = ") && plan.contains(" would fit\n"), "{plan}");
    let plan = program.printed(&format!("{launch} --program /bin/sh -- -c true"));
    assert!(line(&plan, "a loss").ends_with("continues from its own checkpoints"), "{plan}");
    assert!(line(&plan, "command").ends_with(" rank /bin/sh -c true"), "{plan}");
}
