//! `scripts/release` sets one version everywhere, or changes nothing. Recipes for other packagers
//! are complete and can be read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::executables;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files that have the version, and the script.
const FILES: [&str; 12] = [
    "scripts/release",
    "Cargo.toml",
    "CHANGELOG.md",
    "CITATION.cff",
    "crates/skt-checkpoint-c/include/skt.h",
    "packaging/rpm/skt-hpl.spec",
    "packaging/debian/changelog",
    "packaging/spack/package.py",
    "packaging/easybuild/skt-hpl.eb",
    "packaging/oci/Containerfile",
    "packaging/apptainer/skt-hpl.def",
    "Cargo.lock",
];

/// A repository with these files and a `cargo` that logs how it was called, and ends with the code
/// in `code`.
struct Checkout(TempDir);

impl Checkout {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for name in FILES {
            let to = folder.path().join("repository").join(name);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            executables::copy_program(&root().join(name), &to);
        }
        let checkout = Self(folder);
        let log =
            "#!/bin/sh\necho \"$*\" >> \"$LOG\"\n[ \"$1\" = update ] || exit $(cat \"$CODE\")\n";
        fs::create_dir(checkout.0.path().join("bin")).unwrap();
        executables::write_script(&checkout.0.path().join("bin/cargo"), log);
        fs::write(checkout.0.path().join("code"), "0").unwrap();
        checkout.git("init --quiet");
        checkout.git("add .");
        checkout.git("commit --quiet --message first");
        checkout
    }

    fn repository(&self) -> PathBuf {
        self.0.path().join("repository")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.repository().join(name)).unwrap()
    }

    fn run(&self, program: &Path, words: &str) -> (Option<i32>, String) {
        let at = |name: &str| self.0.path().join(name);
        let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
        let ended = Command::new(program)
            .args(words.split_whitespace())
            .current_dir(self.repository())
            .env("PATH", path)
            .env("LOG", at("log"))
            .env("CODE", at("code"))
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")])
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "a test")))
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "a@test")))
            .output()
            .unwrap();
        let printed = [ended.stdout, ended.stderr].concat();
        (ended.status.code(), String::from_utf8(printed).unwrap())
    }

    fn git(&self, words: &str) -> String {
        let (code, printed) = self.run(Path::new("git"), words);
        assert_eq!(code, Some(0), "git {words}: {printed}");
        printed
    }

    fn release(&self, words: &str) -> (Option<i32>, String) {
        self.run(&self.repository().join("scripts/release"), words)
    }

    /// The script refuses, prints why, and leaves everything as it was.
    #[track_caller]
    fn refuses(&self, words: &str, why: &str) {
        let before = self.git("status --porcelain");
        let (code, printed) = self.release(words);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains(why), "{printed}");
        assert_eq!(self.git("status --porcelain"), before);
        assert_eq!(self.git("rev-list --count HEAD").trim(), "1");
    }
}

#[test]
fn all_files_name_the_version_of_the_program() {
    let checked = Command::new(root().join("scripts/release")).arg("--check").output().unwrap();
    let printed = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert_eq!(printed.trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_release_sets_the_version_commits_and_tags() {
    let checkout = Checkout::new();
    let changes = checkout.read("CHANGELOG.md");
    let changes = changes.replacen("\n## ", "\n## 7.8.9 (unreleased)\n\n- New words.\n\n## ", 1);
    fs::write(checkout.repository().join("CHANGELOG.md"), changes).unwrap();
    checkout.git("commit --quiet --all --amend --message first");

    let (code, printed) = checkout.release("7.8.9 --dry-run");
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("+version = \"7.8.9\"") && printed.contains("- New words."),
        "{printed}"
    );
    assert!(!printed.contains("-1.8.9"), "{printed}");
    assert_eq!(checkout.git("status --porcelain"), "");
    assert_eq!(checkout.git("tag --list"), "");

    let (code, printed) = checkout.release("7.8.9");
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(checkout.git("status --porcelain"), "");
    assert_eq!(checkout.git("log -1 --format=%s"), "Release 7.8.9\n");
    let tag = checkout.git("tag --list --format=%(contents) v7.8.9");
    assert_eq!(tag.trim(), "skt-hpl 7.8.9\n\n- New words.");
    let log = fs::read_to_string(checkout.0.path().join("log")).unwrap();
    assert!(log.ends_with("package --workspace --locked --allow-dirty\n"), "{log}");
    assert_eq!(checkout.release("--check").1, "7.8.9\n");
    for name in FILES.iter().filter(|name| !["scripts/release", "Cargo.lock"].contains(name)) {
        assert!(checkout.read(name).contains("7.8.9"), "{name}");
    }
    let manifest = checkout.read("Cargo.toml");
    for line in manifest.lines().filter(|line| line.starts_with("skt-") && line.contains("path")) {
        assert!(line.contains("version = \"7.8.9\""), "{line}");
    }
    assert!(!checkout.read("CHANGELOG.md").contains("7.8.9 (unreleased)"));
    let dates = checkout.read("CITATION.cff");
    assert_eq!(dates.matches("\ndate-released: 2").count(), 1, "{dates}");
    // What is released is not released again.
    let (code, printed) = checkout.release("7.8.9");
    assert!(code == Some(1) && printed.contains("the tag v7.8.9 is there"), "{printed}");
}

#[test]
fn what_cannot_be_released_changes_nothing() {
    let checkout = Checkout::new();
    checkout.refuses("1.2.3-rc.1", "is not a version of a release");
    checkout.refuses("9.9.9", "CHANGELOG.md has no section '## 9.9.9'");
    let version = env!("CARGO_PKG_VERSION");
    fs::write(checkout.0.path().join("code"), "101").unwrap();
    checkout.refuses(version, "cargo package --workspace --locked --allow-dirty failed");
    let stray = checkout.repository().join("stray");
    fs::write(&stray, "").unwrap();
    checkout.refuses(version, "stray");
    fs::remove_file(stray).unwrap();
    let header = "crates/skt-checkpoint-c/include/skt.h";
    let text = checkout.read(header).replace(&format!("\"{version}\""), "\"0.0.7\"");
    fs::write(checkout.repository().join(header), text).unwrap();
    checkout.refuses(version, "skt.h has ['0.0.7']");
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
