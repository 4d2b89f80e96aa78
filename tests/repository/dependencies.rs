//! `docs/dependencies.md` explains every crate that the project needs, and no other. The members of
//! the workspace share one version of each. Modules import in the order of docs/architecture.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const DOCS: &str = include_str!("../../docs/dependencies.md");
const ARCHITECTURE: &str = include_str!("../../docs/architecture.md");

/// Names in the tables under a heading, without the backquotes.
fn documented(heading: &str) -> BTreeSet<String> {
    let section = DOCS.split(&format!("\n## {heading}\n")).nth(1).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    section.lines().filter_map(name).collect()
}

/// The manifests of all members, with that of the program first.
fn manifests() -> Vec<toml::Table> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let members = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders = [root.to_path_buf(), root.join("tests/ranks")].into_iter().chain(members);
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

/// The modules of the program's crate as docs/architecture.md lists them, the highest first:
/// folders (`src/run/`), and below each its contents (`  job/`), as `run::job`.
fn modules() -> Vec<String> {
    let name = |path: &str| path.split(['/', '.']).next().unwrap().to_owned();
    let list = ARCHITECTURE.split("\nsrc/main.rs").nth(1).expect("the list is there");
    let mut modules = Vec::<String>::new();
    let mut room = String::new();
    for line in list.split("\n```").next().unwrap().lines() {
        if let Some(path) = line.strip_prefix("src/") {
            room = name(path);
            modules.push(room.clone());
        } else if let Some(path) = line.strip_prefix("  ").filter(|path| !path.starts_with(' ')) {
            modules.push(format!("{room}::{}", name(path)));
        }
    }
    modules
}

/// The modules of a crate in `crates/` as docs/architecture.md lists them, the highest first.
fn modules_of(name: &str) -> Vec<String> {
    let heading = format!("\ncrates/{name}/");
    let list = ARCHITECTURE.split(&heading).nth(1).unwrap_or_else(|| panic!("{name}"));
    let listed = list.lines().skip(1).take_while(|line| line.starts_with("  "));
    let names = listed.filter(|line| !line.starts_with("   "));
    names.map(|line| line.trim().split(['/', '.']).next().unwrap().to_owned()).collect()
}

/// The crates whose modules are listed in the order in which they may import each other.
const ORDERED: [&str; 3] = ["skt-solver", "skt-run", "skt-health"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let deep = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    paths.flat_map(deep).collect()
}

/// The items of a group of imports, which begins after its brace.
pub fn items(group: &str) -> Vec<&str> {
    let (mut items, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                items.push(group[begin..at].trim());
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    items
}

/// The first `depth` names of each path in `tree`, joined.
fn paths(tree: &str, depth: usize) -> Vec<String> {
    if let Some(group) = tree.strip_prefix('{') {
        return items(group).into_iter().flat_map(|item| paths(item, depth)).collect();
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let end = tree.find(|c: char| !is_name(c)).unwrap_or(tree.len());
    let (name, rest) = tree.split_at(end);
    match rest.strip_prefix("::").filter(|_| depth > 1) {
        _ if name.is_empty() => Vec::new(),
        None => vec![name.to_owned()],
        Some(rest) => {
            paths(rest, depth - 1).iter().map(|inner| format!("{name}::{inner}")).collect()
        }
    }
}

/// The names after `crate::` in a source, two names deep, without comments.
fn imports(source: &str) -> BTreeSet<String> {
    let code: String = source.lines().map(|line| line.split("//").next().unwrap()).collect();
    code.split("crate::").skip(1).flat_map(|tree| paths(tree, 2)).collect()
}

#[test]
fn names_behind_crate_are_found() {
    let source = "use crate::a::{B, C::{D, E}}; // crate::no\n\
                  use crate::{b, c::{d::{E, F}, g}, h};\nx(crate::i::j::k(), l);";
    let found: Vec<_> = imports(source).into_iter().collect();
    assert_eq!(found, ["a::B", "a::C", "b", "c::d", "c::g", "h", "i::j"]);
}

#[test]
fn modules_import_only_those_below() {
    import_only_those_below("src", &modules());
    for name in ORDERED {
        import_only_those_below(&format!("crates/{name}/src"), &modules_of(name));
    }
}

fn import_only_those_below(folder: &str, modules: &[String]) {
    // A file that is not in the list itself has the position of its folder.
    let place = |path: &str| {
        let room = path.split("::").next().unwrap();
        let listed = |name: &str| modules.iter().position(|module| module == name);
        listed(path).or_else(|| listed(room)).unwrap_or_else(|| panic!("{room} is not in the list"))
    };
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let mut names = inside.iter().map(|name| name.to_str().unwrap().trim_end_matches(".rs"));
        let own: Vec<_> = names.by_ref().take(2).collect();
        if ["lib", "main"].contains(&own[0]) {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for import in imports(code) {
            let order = place(&own.join("::")) <= place(&import);
            assert!(order, "{} imports crate::{import}", inside.display());
        }
    }
}

#[test]
fn all_that_is_listed_is_there() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rooms: BTreeSet<_> = fs::read_dir(&src)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let listed = modules();
    let listed_rooms = listed.iter().filter(|name| !name.contains("::")).cloned().collect();
    assert_eq!(rooms, listed_rooms);
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let in_crates = ORDERED.iter().flat_map(|name| {
        let folder = crates.join(name).join("src");
        modules_of(name).into_iter().map(move |module| folder.join(module))
    });
    for module in listed.iter().map(|name| src.join(name.replace("::", "/"))).chain(in_crates) {
        assert!(module.is_dir() || module.with_extension("rs").is_file(), "{}", module.display());
    }
}
