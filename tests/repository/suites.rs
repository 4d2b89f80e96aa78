//! Every suite is part of a test program, and what `scripts/test` lists of programs and suites
//! holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SCRIPT: &str = include_str!("../../scripts/test");

/// Names and paths in a folder.
fn entries(folder: &Path) -> BTreeMap<String, PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

/// The test programs of all members: their main files by name.
fn programs() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let members = entries(&root.join("crates")).into_values().chain([root.to_owned()]);
    let tests = members.flat_map(|member| entries(&member.join("tests")));
    let main = |(name, path): (String, PathBuf)| {
        // A folder that is a separate package has no main.rs, which Cargo would take for a
        // program of the package around it, too.
        let files = [path.join("main.rs"), path.join(&name).with_extension("rs"), path];
        let main = files.into_iter().find(|file| file.is_file())?;
        (main.extension()? == "rs").then_some((name, main))
    };
    tests.filter_map(main).collect()
}

/// Files next to the main file of a program that is a folder.
fn suites(main: &Path) -> BTreeMap<String, PathBuf> {
    let folder = main.parent().unwrap();
    let own = main.file_stem().unwrap().to_str().unwrap();
    if own != "main" && !folder.ends_with(own) {
        return BTreeMap::new();
    }
    let mut files = entries(folder);
    files.retain(|name, path| name != own && path.extension().is_some_and(|end| end == "rs"));
    files
}

/// The words of the array `name` in scripts/test, without comments.
fn words_of_script(name: &str) -> Vec<&'static str> {
    let (_, rest) = SCRIPT.split_once(&format!("\n{name}=(")).expect("the array");
    let mut words = Vec::new();
    for line in rest.lines().map(|line| line.split('#').next().unwrap()) {
        let (here, end) =
            line.split_once(')').map_or((line, None), |(here, end)| (here, Some(end)));
        words.extend(here.split_whitespace());
        if end.is_some() {
            break;
        }
    }
    words
}

#[test]
fn every_file_of_a_program_is_compiled() {
    let programs = programs();
    assert!(programs.len() > 10, "{programs:?}");
    for main in programs.values() {
        let text = fs::read_to_string(main).unwrap();
        for (suite, path) in suites(main) {
            let is_declared = text.lines().any(|line| line == format!("mod {suite};"));
            assert!(is_declared, "{}: add `mod {suite};` to {}", path.display(), main.display());
        }
    }
}

#[test]
fn the_quick_tier_is_made_of_what_there_is() {
    let programs = programs();
    let quick: Vec<&PathBuf> = words_of_script("quick_programs")
        .into_iter()
        .map(|name| programs.get(name).unwrap_or_else(|| panic!("no test program {name}")))
        .collect();
    assert!(quick.len() < programs.len(), "some are of the whole alone");
    for skipped in words_of_script("quick_skips") {
        let (suite, test) = skipped.split_once("::").expect("SUITE:: or SUITE::TEST");
        let path = quick.iter().find_map(|main| suites(main).remove(suite));
        let path = path.unwrap_or_else(|| panic!("{skipped}: no such suite in the quick tier"));
        let text = fs::read_to_string(path).unwrap();
        assert!(test.is_empty() || text.contains(&format!("fn {test}()")), "no test {skipped}");
    }
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/skt-model/src");
    for skipped in words_of_script("quick_unit_skips") {
        let (module, test) = skipped.split_once("::tests::").expect("MODULE::tests::TEST");
        let path = model.join(module.replace("::", "/")).with_extension("rs");
        let text = fs::read_to_string(&path).unwrap_or_else(|_| panic!("no module {skipped}"));
        assert!(test.is_empty() || text.contains(&format!("fn {test}()")), "no test {skipped}");
    }
}

/// `scripts/test` counts the lines of tests/skipped. A test that prints something else, or nothing
/// that is seen, would count as passed.
#[test]
fn skipped_tests_report_it_in_one_way() {
    let printed =
        ["println!(\"skipped", "println!(\"SKIPPED", "println!(\"not run", "println!(\"not tested"];
    let shared = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    let shared =
        shared.into_values().map(|folder| folder.join("mod.rs")).filter(|file| file.is_file());
    for main in programs().into_values().chain(shared) {
        for path in suites(&main).into_values().chain([main]) {
            let text = fs::read_to_string(&path).unwrap();
            let own = path.ends_with("repository/suites.rs");
            let found = printed.iter().find(|words| !own && text.contains(**words));
            assert_eq!(found, None, "{}: use tests/skipped", path.display());
        }
    }
    assert!(SCRIPT.contains("grep -o 'skipped: [^ ]*: .*'"), "how scripts/test counts them");
}

/// Jobs of Open MPI that share a folder of sessions fail at times: the first that ends removes it.
#[test]
fn programs_that_start_mpi_have_a_folder_for_their_sessions() {
    let started = ["env!(\"CARGO_BIN_EXE_skt-hpl\")", "PROGRAM", "\"mpirun\"", "\"mpiexec.hydra\""];
    let started = started.map(|program| format!("Command::new({program})"));
    for (_, main) in programs() {
        for path in suites(&main).into_values().chain([main]) {
            let text = fs::read_to_string(&path).unwrap();
            // What is asked for its version starts no MPI.
            let found = text.lines().find(|line| {
                started.iter().any(|words| line.contains(words)) && !line.contains("--version")
            });
            assert_eq!(found, None, "{}: use mpirun::mpi_program", path.display());
        }
    }
}
