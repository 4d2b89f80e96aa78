//! `docs/dependencies.md` says of every crate that the project needs what it is
//! for, and of no other.

use std::collections::BTreeSet;

const CARGO: &str = include_str!("../Cargo.toml");
const DOCS: &str = include_str!("../docs/dependencies.md");

/// Names in the tables under a heading, without the backquotes.
fn documented(heading: &str) -> BTreeSet<&'static str> {
    let section = DOCS.split(&format!("\n## {heading}\n")).nth(1).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap();
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn each_dependency_is_explained() {
    let cargo: toml::Table = CARGO.parse().unwrap();
    for (table, heading) in [
        ("dependencies", "In the program"),
        ("build-dependencies", "To build"),
        ("dev-dependencies", "In tests and benches"),
    ] {
        let needed = cargo[table].as_table().unwrap();
        let needed: BTreeSet<&str> = needed.keys().map(String::as_str).collect();
        assert!(!needed.is_empty());
        assert_eq!(documented(heading), needed, "{table} and its section in docs/dependencies.md");
    }
}
