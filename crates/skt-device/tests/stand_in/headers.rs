//! The Rust types of all calls are those of the libraries' own headers.
//!
//! A declaration is taken from the header after the preprocessor, so that a name such as
//! `cuCtxPopCurrent`, which the header replaces, counts as what it stands for. Then the C compiler
//! compares each parameter, and the result, with the Rust type: pointer or integer, size, sign, and
//! the same of what a pointer points to. `c_void` stands for anything.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::skipped::skipped;

struct Header {
    include: &'static str,
    flags: Vec<String>,
    /// How the names of the library's calls begin.
    prefix: &'static str,
}

/// Where CUDA is installed, or else where scripts/needs.sh has put its headers and runtime.
pub fn cuda_home() -> PathBuf {
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../device-headers/nvidia/cu13");
    std::env::var_os("CUDA_HOME").map_or(installed, PathBuf::from)
}

fn cuda() -> Header {
    let flags = vec![format!("-I{}", cuda_home().join("include").display())];
    Header { include: "cuda.h", flags, prefix: "cu" }
}

fn hip() -> Header {
    let flags = vec!["-D__HIP_PLATFORM_AMD__".to_owned()];
    Header { include: "hip/hip_runtime_api.h", flags, prefix: "hip" }
}

fn opencl() -> Header {
    let flags = vec!["-DCL_TARGET_OPENCL_VERSION=300".to_owned()];
    Header { include: "CL/cl.h", flags, prefix: "cl" }
}

impl Header {
    /// Gives the compiler a program that includes this header. Returns its output, or its errors.
    fn compile(&self, how: &[&str], text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("check.c");
        std::fs::write(&source, format!("#include <{}>\n{text}", self.include)).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-w"]).args(how).args(&self.flags).arg(source);
        let output = cc.output().expect("cc starts");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn parameters(&self, preprocessed: &str, name: &str) -> Result<Vec<String>, String> {
        let is_name = |place: &usize| {
            let before = preprocessed[..*place].chars().next_back().unwrap();
            let rest = preprocessed[place + name.len()..].trim_start();
            !before.is_alphanumeric() && before != '_' && rest.starts_with('(')
        };
        let place = preprocessed.match_indices(name).map(|found| found.0).find(is_name);
        let place = place.ok_or_else(|| format!("{} does not declare {name}", self.include))?;
        let rest = preprocessed[place + name.len()..].trim_start();
        let mut depth = 0;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let list = &rest[1..end.expect("a declaration ends")];
        assert!(!list.contains('('), "{name}: the types of callbacks are not compared: {list}");
        Ok(list.split(',').map(type_of_parameter).filter(|found| found != "void").collect())
    }

    fn compare(&self, functions: &[(&str, &str)]) -> Result<(), String> {
        let preprocessed = self.compile(&["-E", "-P"], "")?;
        let mut program = String::from("#define is_signed(type) ((type)-1 < (type)1)\n");
        for (name, signature) in functions {
            let signature = signature.replace("core::ffi::", "");
            let (parameters, result) = parse(&signature);
            let declared = self.parameters(&preprocessed, name)?;
            if parameters.len() != declared.len() {
                return Err(format!("{name} has {declared:?}, not {parameters:?}"));
            }
            for (rust, c) in parameters.iter().zip(&declared) {
                assertions(&mut program, name, rust, c);
            }
            let arguments: Vec<_> = declared.iter().map(|c| format!("({c})0")).collect();
            let c = format!("__typeof__({name}({}))", arguments.join(", "));
            assertions(&mut program, name, result, &c);
        }
        self.compile(&["-fsyntax-only", "-Werror"], &program).map(drop)
    }
}

fn type_of_parameter(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.trim_end_matches(is_name);
    let name = &text[before.len()..];
    let is_type = ["int", "char", "long", "void"].contains(&name) || before.trim().is_empty();
    let only_qualified = matches!(before.trim(), "const" | "struct" | "enum");
    if is_type || only_qualified { text.clone() } else { before.trim().to_owned() }
}

fn parse(signature: &str) -> (Vec<&str>, &str) {
    let (_, rest) = signature.split_once("fn").unwrap_or_else(|| panic!("{signature}"));
    let (list, result) = rest.split_once("->").unwrap_or((rest, "()"));
    let list = list.trim().trim_start_matches('(').trim_end_matches(')');
    let parameters = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    (parameters.collect(), result.trim())
}

/// Adds to the program that a Rust type and a C type have one representation.
fn assertions(program: &mut String, name: &str, rust: &str, c: &str) {
    // Of gcc and clang: 5 is a pointer, 1 an integer, 3 an enumeration.
    let class = format!("__builtin_classify_type(({c})0)");
    // An address of a device, which is an integer for Rust and in the same registers.
    let rust = if c == "hipDeviceptr_t" && rust == "usize" { "*mut c_void" } else { rust };
    let mut line = |condition: String| {
        writeln!(program, "_Static_assert({condition}, \"{name}: {rust} for {c}\");").unwrap();
    };
    if let Some(pointee) = rust.strip_prefix("*mut ").or(rust.strip_prefix("*const ")) {
        line(format!("{class} == 5"));
        if pointee != "c_void" {
            assertions(program, name, pointee, &format!("__typeof__(*({c})0)"));
        }
        return;
    }
    let (bytes, is_signed) = integer(rust);
    line(format!("({class} == 1 || {class} == 3) && sizeof({c}) == {bytes}"));
    // Results and codes are enumerations, whose sign is the compiler's choice.
    if !c.starts_with("__typeof__") && !["CUresult", "hipError_t"].contains(&c) {
        line(format!("is_signed({c}) == {}", i32::from(is_signed)));
    }
}

fn integer(rust: &str) -> (usize, bool) {
    match rust {
        "i8" => (1, true),
        "u8" => (1, false),
        "i32" => (4, true),
        "u32" => (4, false),
        "isize" | "i64" => (8, true),
        "usize" | "u64" => (8, false),
        _ => panic!("no integer: {rust}"),
    }
}

/// Compares with the header what is called of its library, and checks that a comparison with wrong
/// types fails.
fn compare(header: &Header, wrong: &[(&str, &str)]) {
    if let Err(why) = header.compile(&["-fsyntax-only"], "") {
        let why = why.lines().next().unwrap_or_default();
        return skipped(format!("no {}: {why}", header.include));
    }
    let mut calls = skt_device::signatures();
    calls.retain(|(name, _)| name.starts_with(header.prefix));
    assert!(calls.len() > 5, "{calls:?}");
    header.compare(&calls).unwrap_or_else(|why| panic!("{why}"));
    for (name, signature) in wrong {
        let why = header.compare(&[(name, signature)]).expect_err(signature);
        assert!(why.contains(name), "{why}");
    }
}

#[test]
fn the_types_of_cuda_are_those_of_its_header() {
    let wrong = [
        ("cuStreamSynchronize", "fn(*mut c_void, i32) -> i32"),
        ("cuStreamSynchronize", "fn(i32) -> i32"),
        ("cuMemHostAlloc", "fn(*mut *mut c_void, u32, u32) -> i32"),
        ("cuMemHostAlloc", "fn(*mut *mut c_void, usize, i32) -> i32"),
        ("cuEventCreate", "fn(*mut i32, u32) -> i32"),
        ("cuGetErrorName", "fn(i32, *mut *const i8) -> i64"),
        // The header replaces this name.
        ("cuCtxPopCurrent", "fn(*mut *mut c_void) -> i32"),
    ];
    compare(&cuda(), &wrong);
}

#[test]
fn the_types_of_hip_are_those_of_its_header() {
    let wrong = [
        ("hipMemcpyDtoHAsync", "fn(*mut c_void, u32, usize, *mut c_void) -> i32"),
        ("hipHostRegister", "fn(*mut c_void, usize, usize) -> i32"),
        ("hipGetErrorName", "fn(i32) -> i32"),
    ];
    compare(&hip(), &wrong);
}

#[test]
fn the_types_of_opencl_are_those_of_its_header() {
    let wrong = [
        ("clFinish", "fn(*mut c_void) -> *mut c_void"),
        ("clWaitForEvents", "fn(usize, *const *mut c_void) -> i32"),
    ];
    compare(&opencl(), &wrong);
}
