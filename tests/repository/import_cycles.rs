//! No files of a crate import each other in a circle. A module and those inside it count as one
//! place here: a parent names its children, and they use what it defines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

use crate::comments::sources;
use crate::dependencies::items;

/// The paths that a tree of imports names: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    match tree.split_once('{') {
        None => vec![tree.trim().to_owned()],
        Some((prefix, group)) => {
            let inner = items(group).into_iter().filter(|item| !item.is_empty());
            inner.flat_map(leaves).map(|leaf| format!("{}{leaf}", prefix.trim())).collect()
        }
    }
}

/// The modules that file `module` imports, as absolute paths in its crate.
fn imported(module: &str, source: &str) -> Vec<String> {
    let import =
        Regex::new(r"(?m)^(?:pub(?:\([^)]*\))? )?use (crate|self|super(?:::super)*)::([^;]+);")
            .unwrap();
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let own: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
    let of_import = |found: regex::Captures| -> Vec<String> {
        let base = match &found[1] {
            "crate" => &own[..0],
            "self" => &own[..],
            above => &own[..own.len().saturating_sub(above.matches("super").count())],
        };
        let full = |leaf: String| {
            let inner = leaf.split("::").map(str::to_owned);
            base.iter().map(|name| (*name).to_owned()).chain(inner).collect::<Vec<_>>().join("::")
        };
        leaves(&found[2]).into_iter().map(full).collect()
    };
    import.captures_iter(code).flat_map(of_import).collect()
}

/// The imports of each file of a crate among its files; `modules` has their paths and sources.
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<_> = crates.chain([root.to_path_buf()]).map(|path| path.join("src")).collect();
    assert!(folders.len() > 10);
    for folder in folders {
        let found = on_circles(&modules(&folder));
        assert!(found.is_empty(), "{}: a circle of imports: {found:?}", folder.display());
    }
}

#[test]
fn circles_of_imports_are_found() {
    let files = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
        list.iter().map(|(name, source)| ((*name).into(), (*source).into())).collect()
    };
    let straight = files(&[
        ("", "pub use a::A;\n"),
        ("a", "use super::b::{self, c::{D, E}};\nuse crate::Root;\n"),
        ("b", "use self::c::D;\n"),
        ("b::c", "use super::B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
    ]);
    assert!(on_circles(&straight).is_empty(), "{:?}", edges(&straight));
    let mut circle = straight;
    circle.insert("b::c".into(), "use super::super::d::F;\n".into());
    circle.insert("d".into(), "use crate::{b::B, a};\n".into());
    assert_eq!(on_circles(&circle), ["a", "b::c", "d"]);
}
