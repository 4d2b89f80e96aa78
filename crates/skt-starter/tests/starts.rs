//! The starter in a separate package, with `cat` for the programs: it becomes the right one, under
//! the name that it was called by.

#[path = "../../../tests/executables/mod.rs"]
mod executables;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A package in a folder that is removed in the end.
struct Package(PathBuf);

impl Drop for Package {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("the package is removed");
    }
}

impl Package {
    /// A package, and the folder `mpi/lib` with these libraries, which are harmless ones.
    fn new(test: &str, libraries: &[&str]) -> Self {
        let root = std::env::temp_dir().join(format!("skt-starter-{test}-{}", std::process::id()));
        for mpi in ["openmpi", "mpich"] {
            let folder = root.join("libexec/skt-hpl").join(mpi);
            fs::create_dir_all(&folder).expect("a folder");
            symlink("/bin/cat", folder.join("skt-hpl")).expect("a program");
        }
        for folder in ["bin", "mpi/bin", "mpi/lib"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        let starter = Path::new(env!("CARGO_BIN_EXE_skt-starter"));
        executables::copy_program(starter, &root.join("bin/skt-hpl"));
        symlink("skt-hpl", root.join("bin/xhpl")).expect("its second name");
        fs::write(root.join("mpi/bin/mpirun"), "").expect("a launcher");
        // A file that can be loaded.
        let maps = fs::read_to_string("/proc/self/maps").expect("this process's libraries");
        let libc = maps.lines().find_map(|line| {
            let file = Path::new(line.split_whitespace().nth(5)?);
            file.file_name()?.to_str()?.starts_with("libc.so").then(|| file.to_owned())
        });
        for library in libraries {
            symlink(libc.as_ref().expect("libc"), root.join("mpi/lib").join(library))
                .expect("a link");
        }
        Package(root)
    }

    /// Calls `xhpl` with an environment of only these variables.
    fn call(&self, file: &str, environment: &[(&str, &str)]) -> Output {
        self.call_as("xhpl", file, environment)
    }

    fn call_as(&self, name: &str, file: &str, environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.0.join("bin").join(name));
        command.arg(file).env_clear().envs(environment.iter().copied());
        command.output().expect("the starter runs")
    }

    fn path(&self, inner: &str) -> String {
        self.0.join(inner).display().to_string()
    }
}

/// The environment that the program was started with.
fn environment(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn the_name_and_the_arguments_survive() {
    let package = Package::new("name", &["libmpi.so.12"]);
    let lib = package.path("mpi/lib");
    let output = package.call("/proc/self/cmdline", &[("LD_LIBRARY_PATH", &lib)]);
    let name = package.path("bin/xhpl");
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(words, format!("{name}\0/proc/self/cmdline\0"), "{output:?}");
}

#[test]
fn the_library_of_the_launcher_is_taken() {
    let package = Package::new("launcher", &["libmpi.so.12"]);
    let (bin, lib) = (package.path("mpi/bin"), package.path("mpi/lib"));
    let variables = environment(&package.call("/proc/self/environ", &[("PATH", &bin)]));
    assert!(variables.contains(&format!("LD_LIBRARY_PATH={lib}")), "{variables:?}");
    assert!(
        variables.contains(&format!("SKT_HPL_STARTER={}", package.path("bin/skt-hpl"))),
        "{variables:?}"
    );
    // A folder that the user names comes first, also where it has no MPI, and stays.
    let named = [("PATH", bin.as_str()), ("LD_LIBRARY_PATH", "/tmp/x")];
    let variables = environment(&package.call("/proc/self/environ", &named));
    assert!(variables.contains(&format!("LD_LIBRARY_PATH=/tmp/x:{lib}")), "{variables:?}");
    let named = [("PATH", bin.as_str()), ("LD_LIBRARY_PATH", &lib)];
    let variables = environment(&package.call("/proc/self/environ", &named));
    assert!(variables.contains(&format!("LD_LIBRARY_PATH={lib}")), "{variables:?}");
}

#[test]
fn what_is_missing_is_named() {
    let package = Package::new("missing", &["libmpi.so.40"]);
    let lib = package.path("mpi/lib");
    // It hides one that this machine may have.
    fs::write(format!("{lib}/libmpi.so.12"), "").expect("a file that is no library");
    let launched = [("MPI_LOCALRANKID", "0"), ("LD_LIBRARY_PATH", lib.as_str())];
    let output = package.call("/dev/null", &launched);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let of_own_name = package.call_as("skt-hpl", "/dev/null", &launched);
    assert_eq!((of_own_name.status.code(), of_own_name.stderr), (Some(2), output.stderr.clone()));
    // The other library is there, and would make each rank run alone.
    for words in ["libmpi.so.12", "MPI_LOCALRANKID", "remedy: "] {
        assert!(stderr.contains(words), "{stderr}");
    }
    let other = [("MPI_LOCALRANKID", "1"), launched[1]];
    let output = package.call("/dev/null", &other);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &b""[..]));
    let forced = [("SKT_HPL_MPI", "openmpi"), launched[0], launched[1]];
    assert!(package.call("/dev/null", &forced).status.success());
}
