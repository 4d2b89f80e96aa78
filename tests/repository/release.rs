//! All files name one version, each crate has what its package needs, and the recipes for other
//! packagers are complete and can be read.

use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn all_files_name_the_version_of_the_program() {
    let checked = Command::new(root().join("scripts/release")).arg("--check").output().unwrap();
    let printed = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert_eq!(printed.trim(), env!("CARGO_PKG_VERSION"));
}

/// A package that lacks its licence or its page is refused by no one but noticed by all.
#[test]
fn each_crate_has_what_its_package_needs() {
    for entry in fs::read_dir(root().join("crates")).unwrap().flatten() {
        let member = entry.path();
        let manifest: toml::Table =
            fs::read_to_string(member.join("Cargo.toml")).unwrap().parse().unwrap();
        let package = manifest["package"].as_table().unwrap();
        let name = package["name"].as_str().unwrap();
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
    }
}

/// Fedora and RHEL have the libraries of an MPI outside the loader's path, until its module is
/// loaded.
#[test]
fn the_rpm_builds_and_checks_with_the_module_of_its_mpi() {
    let spec = fs::read_to_string(root().join("packaging/rpm/skt-hpl.spec")).unwrap();
    for name in ["build", "install", "check"] {
        assert!(spec.contains(&format!("\n%{name}\n%{{?mpi_load}}\n")), "{name}");
    }
    assert_eq!(spec.matches("\n%{?mpi_unload}\n\n%").count(), 3);
    for mpi in ["openmpi", "mpich"] {
        assert!(spec.contains(&format!("%global mpi_load %{{?_{mpi}_load}}\n")), "{mpi}");
    }
}

#[test]
fn recipes_can_be_read() {
    let read = "import ast, sys\nfor name in sys.argv[1:]: ast.parse(open(name).read(), name)";
    let files =
        ["reframe/skt_hpl.py", "spack/package.py", "ramble/application.py", "easybuild/skt-hpl.eb"]
            .map(|name| root().join("packaging").join(name));
    let ended = Command::new("python3").args(["-c", read]).args(files).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    // Each folder is one of the page.
    let page = fs::read_to_string(root().join("packaging/README.md")).unwrap();
    for entry in fs::read_dir(root().join("packaging")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        assert!(name == "README.md" || page.contains(&format!("`{name}`")), "{name}");
    }
}
