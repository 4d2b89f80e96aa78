//! No files of a crate import each other in a circle, and modules import in the order of
//! docs/architecture.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::words::sources;

const ARCHITECTURE: &str = include_str!("../../docs/architecture.md");
/// What the paths of imports follow: the crate, or a module relative to the file.
static IMPORT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\bcrate::|(?m:^(?:pub(?:\([^)]*\))? )?use )(self|super(?:::super)*)::").unwrap()
});
/// The crates whose modules are listed in the order in which they may import each other.
const ORDERED: [&str; 3] = ["skt-solver", "skt-run", "skt-health"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The items of a group of imports, which begins after its brace.
fn items(group: &str) -> Vec<&str> {
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

/// The paths that a tree of imports begins with: `a::{b, c::d};` gives `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    if let Some(group) = tree.strip_prefix('{') {
        return items(group).into_iter().flat_map(paths).collect();
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (name, rest) = tree.split_at(tree.find(|c: char| !is_name(c)).unwrap_or(tree.len()));
    match rest.strip_prefix("::") {
        _ if name.is_empty() => Vec::new(),
        None => vec![name.to_owned()],
        Some(rest) => paths(rest).iter().map(|inner| format!("{name}::{inner}")).collect(),
    }
}

/// The paths of its crate that the code of file `module` names, without its tests.
fn imported(module: &str, source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap()).collect();
    let code = code.join("\n");
    let own: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
    let of_import = |found: regex::Captures| -> Vec<String> {
        let base = match found.get(1).map(|relative| relative.as_str()) {
            None => &own[..0],
            Some("self") => &own[..],
            Some(above) => &own[..own.len().saturating_sub(above.matches("super").count())],
        };
        let full =
            |path: String| base.iter().copied().chain([&path[..]]).collect::<Vec<_>>().join("::");
        paths(&code[found.get(0).unwrap().end()..]).into_iter().map(full).collect()
    };
    IMPORT.captures_iter(&code).flat_map(of_import).collect()
}

/// The imports of each file of a crate among its files; `modules` has their paths and sources. A
/// module and those inside it count as one place: a parent names its children, and they use what it
/// defines.
fn edges(modules: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let file_of = |path: &str| {
        let mut path = path;
        loop {
            if let Some((file, _)) = modules.get_key_value(path) {
                return Some(file.as_str());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let is_inside = |inner: &str, outer: &str| inner.starts_with(&format!("{outer}::"));
    let of_file = |(module, source): (&'_ String, &String)| {
        imported(module, source)
            .iter()
            .filter_map(|path| file_of(path))
            .filter(|file| file != module && !is_inside(file, module) && !is_inside(module, file))
            .collect()
    };
    modules.iter().map(|(name, source)| (name.as_str(), of_file((name, source)))).collect()
}

/// The files on circles of imports: those that can reach themselves.
fn on_circles(modules: &BTreeMap<String, String>) -> Vec<String> {
    let edges = edges(modules);
    let reaches_itself = |start: &str| {
        let mut next: Vec<&str> = edges[start].iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(file) = next.pop() {
            if file == start {
                return true;
            }
            if seen.insert(file) {
                next.extend(&edges[file]);
            }
        }
        false
    };
    modules.keys().filter(|name| reaches_itself(name)).cloned().collect()
}

/// The sources of a crate by the path of their module; that of `lib.rs` is empty.
fn modules(src: &Path) -> BTreeMap<String, String> {
    let mut files = Vec::new();
    sources(src, &mut files);
    let name = |path: &Path| {
        let inside = path.strip_prefix(src).expect("below it").with_extension("");
        let names: Vec<_> = inside.iter().map(|name| name.to_str().expect("text")).collect();
        let own = names.iter().filter(|name| !["mod", "lib", "main"].contains(name));
        own.copied().collect::<Vec<_>>().join("::")
    };
    files.iter().map(|path| (name(path), fs::read_to_string(path).expect("a source"))).collect()
}

#[test]
fn no_files_import_each_other() {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<_> =
        crates.chain([root().to_path_buf()]).map(|path| path.join("src")).collect();
    assert!(folders.len() > 10);
    for folder in folders {
        let found = on_circles(&modules(&folder));
        assert!(found.is_empty(), "{}: a circle of imports: {found:?}", folder.display());
    }
}

/// The modules that docs/architecture.md lists below a line, the highest first: folders of `src`
/// (`src/run/`), and the contents of a folder (`  job/`), as `run::job`.
fn listed(heading: &str) -> Vec<String> {
    let name = |path: &str| path.trim().split(['/', '.']).next().unwrap().to_owned();
    let list = ARCHITECTURE.split(heading).nth(1).unwrap_or_else(|| panic!("{heading}"));
    let (mut modules, mut room) = (Vec::new(), String::new());
    for line in list.lines().skip(1) {
        if let Some(path) = line.strip_prefix("src/") {
            room = name(path) + "::";
            modules.push(name(path));
        } else if !line.starts_with("  ") {
            break;
        } else if !line.starts_with("   ") {
            modules.push(format!("{room}{}", name(line)));
        }
    }
    modules
}

/// The folders of sources whose modules are listed, with their modules.
fn ordered() -> impl Iterator<Item = (String, Vec<String>)> {
    let of_crate = |name| (format!("crates/{name}/src"), listed(&format!("\ncrates/{name}/")));
    [("src".to_owned(), listed("\nsrc/main.rs"))].into_iter().chain(ORDERED.map(of_crate))
}

#[test]
fn modules_import_only_those_below() {
    for (folder, listed) in ordered() {
        // A file that is not in the list itself has the position of its folder.
        let place = |path: &str| {
            let mut names = path.split("::");
            let room = names.next().unwrap();
            let inner = names.next().map(|name| format!("{room}::{name}"));
            let find = |name: &str| listed.iter().position(|module| module == name);
            let place = inner.and_then(|inner| find(&inner)).or_else(|| find(room));
            place.unwrap_or_else(|| panic!("{room} is not in the list"))
        };
        for (module, source) in modules(&root().join(&folder)) {
            if module.is_empty() {
                continue;
            }
            for import in imported(&module, &source) {
                assert!(place(&module) <= place(&import), "{folder}: {module} imports {import}");
            }
        }
    }
}

#[test]
fn all_that_is_listed_is_there() {
    for (folder, listed) in ordered() {
        let folder = root().join(folder);
        for module in &listed {
            let path = folder.join(module.replace("::", "/"));
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "{}", path.display());
        }
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(!path.is_dir() || listed.iter().any(|listed| listed == name), "{name}");
        }
    }
}
