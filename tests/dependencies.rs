//! `docs/dependencies.md` says of every crate that the project needs what it is
//! for, and of no other. The members of the workspace share one version of each. Modules
//! import in the order of docs/architecture.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const DOCS: &str = include_str!("../docs/dependencies.md");
const ARCHITECTURE: &str = include_str!("../docs/architecture.md");

/// Names in the tables under a heading, without the backquotes.
fn documented(heading: &str) -> BTreeSet<String> {
    let section = DOCS.split(&format!("\n## {heading}\n")).nth(1).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    section.lines().filter_map(name).collect()
}

/// The manifests of all members, that of the program first.
fn manifests() -> Vec<toml::Table> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let members = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders = [root.to_path_buf()].into_iter().chain(members);
    folders
        .map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap())
        .collect()
}

/// The crates of others in a table of any of the manifests.
fn needed(manifests: &[toml::Table], table: &str) -> BTreeSet<String> {
    let tables = manifests.iter().filter_map(|manifest| manifest.get(table)?.as_table());
    let names = tables.flat_map(|table| table.keys().cloned());
    names.filter(|name| !name.starts_with("skt-")).collect()
}

#[test]
fn each_dependency_is_explained() {
    let manifests = manifests();
    let in_program = needed(&manifests, "dependencies");
    let in_tests = needed(&manifests, "dev-dependencies");
    let in_tests: BTreeSet<String> = in_tests.difference(&in_program).cloned().collect();
    let to_build = needed(&manifests, "build-dependencies");
    for (needed, heading) in
        [(in_program, "In the program"), (to_build, "To build"), (in_tests, "In tests and benches")]
    {
        assert!(!needed.is_empty());
        assert_eq!(documented(heading), needed, "{heading} in docs/dependencies.md");
    }
}

#[test]
fn members_take_the_version_of_the_workspace() {
    let manifests = manifests();
    let mut used = BTreeSet::new();
    for manifest in &manifests {
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(table) = manifest.get(table) else { continue };
            for (name, dependency) in table.as_table().unwrap() {
                let shared = dependency.get("workspace").and_then(toml::Value::as_bool);
                assert_eq!(shared, Some(true), "{name} of {}", manifest["package"]["name"]);
                used.insert(name);
            }
        }
    }
    let shared = manifests[0]["workspace"]["dependencies"].as_table().unwrap();
    assert_eq!(shared.keys().collect::<BTreeSet<_>>(), used, "what no member needs is there");
}

/// The modules of the solver's crate as docs/architecture.md lists them, the highest first.
fn modules() -> Vec<&'static str> {
    let paths = ARCHITECTURE.lines().filter_map(|line| line.strip_prefix("src/"));
    paths.map(|path| path.split(['/', '.']).next().unwrap()).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let deep = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    paths.flat_map(deep).collect()
}

/// The modules that a source names behind `crate::`, comments left out.
fn imports(source: &str) -> BTreeSet<String> {
    let code: String = source.lines().map(|line| line.split("//").next().unwrap()).collect();
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let rest = rest.split(';').next().unwrap();
        let group = rest.strip_prefix('{');
        let mut depth = 0;
        let is_outermost = |c: &char| {
            let before = depth;
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            before == 0 && depth == 0
        };
        let outermost: String = group.unwrap_or(rest).chars().filter(is_outermost).collect();
        let items = outermost.split(',').take(if group.is_some() { usize::MAX } else { 1 });
        let name = |item: &str| {
            let item = item.trim();
            let end = item.find(|c: char| !c.is_alphanumeric() && c != '_');
            item[..end.unwrap_or(item.len())].to_owned()
        };
        found.extend(items.map(name).filter(|name| !name.is_empty()));
    }
    found
}

#[test]
fn names_behind_crate_are_found() {
    let source =
        "use crate::a::{B, C}; // crate::no\nuse crate::{b, c::{D, E}, f};\nx(crate::g::h, i);";
    let found: Vec<_> = imports(source).into_iter().collect();
    assert_eq!(found, ["a", "b", "c", "f", "g"]);
}

#[test]
fn modules_import_only_those_below() {
    // What src/lib.rs has of the crates below.
    const CRATES: [&str; 3] = ["checkpoint", "model", "pages"];
    let modules = modules();
    let place = |name: &str| modules.iter().position(|module| *module == name);
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let own = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if own == "lib" {
            continue;
        }
        let own_place = place(own).unwrap_or_else(|| panic!("{own} is not in the list"));
        let source = fs::read_to_string(&path).unwrap();
        let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for import in imports(code).iter().filter(|name| !CRATES.contains(&name.as_str())) {
            let other = place(import).unwrap_or_else(|| panic!("{import} is not in the list"));
            assert!(own_place <= other, "{} imports crate::{import}", inside.display());
        }
    }
}
