//! `docs/dependencies.md` explains every crate that the project needs, and no other. The members of
//! the workspace share one version of each.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const DOCS: &str = include_str!("../../docs/dependencies.md");

/// Names in the tables under a heading, without the backquotes.
fn documented(heading: &str) -> BTreeSet<String> {
    let section = DOCS.split(&format!("\n## {heading}\n")).nth(1).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("|`")?.split('`').next()?.to_owned());
    section.lines().filter_map(name).collect()
}

/// The manifests of all members, with that of the program first.
fn manifests() -> Vec<toml::Table> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let members = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders =
        ["", "examples/node_loss"].map(|folder| root.join(folder)).into_iter().chain(members);
    folders
        .map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap())
        .collect()
}

/// The external crates in a table of any of the manifests.
fn needed<'a>(
    manifests: impl IntoIterator<Item = &'a toml::Table>,
    table: &str,
) -> BTreeSet<String> {
    let tables = manifests.into_iter().filter_map(|manifest| manifest.get(table)?.as_table());
    let names = tables.flat_map(|table| table.keys().cloned());
    names.filter(|name| !name.starts_with("skt-")).collect()
}

#[test]
fn each_dependency_is_explained() {
    let manifests = manifests();
    // Only tests and benches need skt-sim.
    let of_tests =
        |manifest: &&toml::Table| manifest["package"]["name"].as_str() == Some("skt-sim");
    let in_program = needed(manifests.iter().filter(|m| !of_tests(m)), "dependencies");
    let mut in_tests = needed(&manifests, "dev-dependencies");
    in_tests.extend(needed(manifests.iter().filter(of_tests), "dependencies"));
    let in_tests: BTreeSet<String> = in_tests.difference(&in_program).cloned().collect();
    assert_eq!(needed(&manifests, "build-dependencies"), BTreeSet::new());
    for (needed, heading) in [(in_program, "In the program"), (in_tests, "In tests and benches")] {
        assert!(!needed.is_empty());
        assert_eq!(documented(heading), needed, "{heading} in docs/dependencies.md");
    }
}
