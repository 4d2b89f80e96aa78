//! All files name one version, the crates of the client interface and no others are published and
//! have what a package needs, and the recipes for other
//! packagers are complete and can be read.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::skipped::lacks;

/// The interface of clients in Rust and C, and what it needs.
const CLIENT_CRATES: [&str; 6] =
    ["skt-checkpoint", "skt-checkpoint-c", "skt-comm", "skt-device", "skt-host", "skt-store"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn all_files_name_the_version_of_the_program() {
    if lacks(&["python3"]) {
        return;
    }
    let checked = Command::new(root().join("scripts/dev/release")).arg("--check").output().unwrap();
    let printed = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert_eq!(printed.trim(), env!("CARGO_PKG_VERSION"));
}

/// A package that lacks its licence or its page is refused by no one but noticed by all.
#[test]
fn client_crates_alone_are_published_with_what_a_package_needs() {
    let mut published = Vec::new();
    let crates = fs::read_dir(root().join("crates")).unwrap().flatten().map(|entry| entry.path());
    for member in crates.chain(["", "examples/node_loss"].map(|folder| root().join(folder))) {
        let manifest: toml::Table =
            fs::read_to_string(member.join("Cargo.toml")).unwrap().parse().unwrap();
        let package = manifest["package"].as_table().unwrap();
        let name = package["name"].as_str().unwrap();
        if package.get("publish") == Some(&toml::Value::Boolean(false)) {
            continue;
        }
        published.push(name.to_owned());
        for key in ["description", "repository", "license", "keywords", "categories"] {
            assert!(package.contains_key(key), "{name} lacks {key}");
        }
        assert_eq!(package["documentation"].as_str().unwrap(), format!("https://docs.rs/{name}"));
        let readme = fs::read_to_string(member.join("README.md")).unwrap();
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let same = fs::read(root().join(licence)).unwrap();
            assert!(fs::read(member.join(licence)).unwrap() == same, "{name}: {licence}");
        }
        // A dependency that is not published would make the package useless.
        for dependency in manifest["dependencies"].as_table().unwrap().keys() {
            if dependency.starts_with("skt-") {
                assert!(CLIENT_CRATES.contains(&dependency.as_str()), "{name}: {dependency}");
            }
        }
    }
    published.sort();
    assert_eq!(published, CLIENT_CRATES);
}
