//! Which BLAS is loaded, and setting its own threads.
//!
//! The libraries describe themselves by functions that only they have; these are looked up at run
//! time, in the library whose functions are called, so that one binary works with any library.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use skt_host::units;
use skt_host::vectors::Vectors;

pub use super::ffi::BUILT_IN;
use super::load::library;
use super::loader::{KNOWN, file_of, symbol_of};
use crate::team::Team;
use crate::tuning::TUNING;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlasInfo {
    /// `OpenBLAS`, `oneMKL`, `BLIS`, `built-in BLAS`, or the file's name.
    pub library: String,
    pub path: Option<PathBuf>,
    pub version: Option<String>,
    /// The kernel it picked for this processor, e.g. `SkylakeX`, `zen3`.
    pub kernel: Option<String>,
}

impl BlasInfo {
    pub fn words(&self) -> String {
        words(&self.library, self.version.as_deref(), self.kernel.as_deref())
    }
}

const BUILT_IN_LIBRARY: &str = "built-in BLAS";
/// The value of `--blas` that names the library called, or the one below a preloaded one.
pub fn name() -> &'static str {
    &library().name
}

pub fn is_built_in() -> bool {
    library().handle.is_none()
}

/// Names the library and the kernel once each, even where the version has them.
pub fn words(library: &str, version: Option<&str>, kernel: Option<&str>) -> String {
    // OpenBLAS's version begins with its name, BLIS's is only a number.
    let mut words = match version {
        Some(version) if version.contains(library) => version.to_owned(),
        Some(version) => format!("{library} {version}"),
        None => library.to_owned(),
    };
    if let Some(kernel) = kernel {
        let others: Vec<&str> = words.split(' ').filter(|word| *word != kernel).collect();
        words = format!("{}, kernel {kernel}", others.join(" "));
    }
    words
}

/// Describes the library whose `dgemm_` we call: an MPI or a profiler may have loaded its own.
pub fn loaded() -> BlasInfo {
    if is_built_in() {
        return BlasInfo {
            library: BUILT_IN_LIBRARY.to_owned(),
            path: None,
            version: Some(crate::built_in::VERSION.to_owned()),
            kernel: Some(Vectors::here().name().to_owned()),
        };
    }
    let path = dgemm_file();
    let known = known(path.as_deref());
    let handle = path.as_deref().and_then(handle_of).or(library().handle);
    let (version, kernel) = match known.zip(handle) {
        Some((("FlexiBLAS", _), handle)) => (flexiblas_backend(handle), backend_kernel()),
        Some((("OpenBLAS", _), handle)) => {
            (text_from(handle, c"openblas_get_config"), kernel_of(handle))
        }
        Some((("oneMKL", _), _)) => (mkl_version(), mkl_kernel()),
        Some((("BLIS", _), handle)) => {
            (text_from(handle, c"bli_info_get_version_str"), kernel_of(handle))
        }
        _ => (None, None),
    };
    let file = path.as_deref().and_then(Path::file_name);
    let library = match (known, file) {
        (Some((library, _)), _) => library.to_owned(),
        (None, Some(file)) => file.to_string_lossy().into_owned(),
        (None, None) => "unknown".to_owned(),
    };
    BlasInfo { library, path, version, kernel }
}

/// The library of which this file is a part, if it describes itself, and where its function is: in
/// the file, in one that it needs, as that of an interface does, or in another part of a library
/// whose parts are loaded by whoever needs them, as MKL's are.
fn known(file: Option<&Path>) -> Option<(&'static str, *mut c_void)> {
    let handle = file.and_then(handle_of);
    let is_part = |address: &*mut c_void| {
        let other = file_of(*address);
        file.zip(other.as_deref()).is_some_and(|(file, other)| is_of_family(file, other))
    };
    let address =
        |marker: &CStr| symbol_of(handle?, marker).or_else(|| symbol(marker).filter(is_part));
    KNOWN.into_iter().find_map(|(library, marker)| Some((library, address(marker)?)))
}

/// The file that has the `dgemm_` which this process calls; none if that is the built-in one.
fn dgemm_file() -> Option<PathBuf> {
    library().handle?;
    file_of(library().functions.dgemm as *mut c_void)
}

/// The files of the library called, of those `mapped`: that of its `dgemm_`, that by which it
/// describes itself, those that belong to it by name, as MKL's kernels do, and those to which
/// FlexiBLAS passes calls on; the program itself for the built-in one.
pub fn files(mapped: impl IntoIterator<Item = PathBuf>) -> BTreeSet<PathBuf> {
    let Some(called) = dgemm_file() else { return ["/proc/self/exe".into()].into() };
    let known = known(Some(&called));
    let passes_on = known.is_some_and(|(library, _)| library == "FlexiBLAS");
    let has_dgemm = |file: &Path| {
        let address = handle_of(file).and_then(|handle| symbol_of(handle, c"dgemm_"));
        address.and_then(file_of).is_some_and(|its| its == file)
    };
    let is_part = |file: &PathBuf| is_of_family(file, &called) || (passes_on && has_dgemm(file));
    let described = known.and_then(|(_, address)| file_of(address));
    mapped.into_iter().filter(is_part).chain(described).chain([called.clone()]).collect()
}

pub fn mapped_files() -> BTreeSet<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let code = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|p| p.contains('x')));
    // Linux writes a newline in a name so.
    let path = |line: &str| Some(PathBuf::from(line[line.find('/')?..].replace("\\012", "\n")));
    code.filter_map(path).collect()
}

/// Multiplies two numbers if the library is oneMKL, which loads its kernel at the first call.
pub fn load_parts() {
    if symbol(c"MKL_Get_Version_String").is_some() {
        let mut product = [0.0];
        let one = super::MatRef::row_major(&[1.0], 1, 1, 1);
        super::gemm(1.0, one, one, 1.0, super::MatMut::row_major(&mut product, 1, 1, 1));
    }
}

/// Whether the names of two files begin alike: with `libmkl` as `libmkl_avx512.so.2`.
fn is_of_family(one: &Path, other: &Path) -> bool {
    let family = |file: &Path| {
        let name = file.file_name()?.to_str()?.split(['_', '-', '.']).next()?;
        name.starts_with("lib").then(|| name.to_owned())
    };
    family(one).is_some_and(|name| Some(name) == family(other))
}

fn handle_of(file: &Path) -> Option<*mut c_void> {
    let name = CString::new(file.as_os_str().as_bytes()).ok()?;
    // SAFETY: the name is NUL-terminated, and nothing is loaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

/// Makes the BLAS use one thread in a call, as we call it from our own threads. OpenMP and some
/// builds of BLIS keep the number for each thread that calls them, so each thread that calls the
/// BLAS has to set it. Returns whether the library has such a number.
pub fn use_one_thread() -> bool {
    library().handle.is_some_and(set_one_thread)
}

fn set_one_thread(handle: *mut c_void) -> bool {
    let addresses = [
        c"openblas_set_num_threads",
        c"MKL_Set_Num_Threads",
        // A BLAS built with OpenMP asks it at each call.
        c"omp_set_num_threads",
    ]
    .map(|name| symbol_of(handle, name));
    addresses.into_iter().flatten().for_each(|address| call_with_int(address, 1));
    let blis = symbol_of(handle, c"bli_thread_set_num_threads");
    blis.into_iter().for_each(|address| call_with_blis_int(address, 1));
    addresses.into_iter().flatten().chain(blis).next().is_some()
}

/// [`Team::new`], on whose workers the BLAS uses one thread in a call; the caller is not changed.
pub fn start_team(
    threads: usize,
    on_start: impl Fn(usize) + Send + Clone + 'static,
) -> std::io::Result<Team> {
    Team::new(threads, move |id| {
        // Before the worker is pinned: a library of OpenMP that meets a new thread may move it.
        use_one_thread();
        on_start(id);
    })
}

/// Threads that OpenBLAS or oneMKL would use in a call, if one is loaded.
pub fn blas_threads() -> Option<usize> {
    let openblas = symbol(c"openblas_get_num_threads");
    let address = openblas.or_else(|| symbol(c"MKL_Get_Max_Threads"))?;
    // SAFETY: both are `int f(void)` in their libraries' headers.
    let count = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(address)() };
    usize::try_from(count).ok()
}

/// The address of a function of the library that this process calls, or of one that it needs.
pub(super) fn symbol(name: &CStr) -> Option<*mut c_void> {
    symbol_of(library().handle?, name)
}

fn text_from(handle: *mut c_void, name: &CStr) -> Option<String> {
    let address = symbol_of(handle, name)?;
    // SAFETY: all names passed here are functions of that type in their libraries' headers, and
    // return a static NUL-terminated text or NULL.
    unsafe {
        let function: extern "C" fn() -> *const c_char = std::mem::transmute(address);
        text_at(function())
    }
}

/// Safety: `text` is NULL or points to a NUL-terminated text.
unsafe fn text_at(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_string_lossy().trim().to_string();
    (!text.is_empty()).then_some(text)
}

fn mkl_version() -> Option<String> {
    let address = symbol(c"MKL_Get_Version_String")?;
    let mut buffer = [0u8; 256];
    // SAFETY: `void MKL_Get_Version_String(char *buffer, int length)`; the length is one byte less
    // than the buffer's, so that the text ends.
    unsafe {
        let function: extern "C" fn(*mut c_char, c_int) = std::mem::transmute(address);
        function(buffer.as_mut_ptr().cast(), buffer.len() as c_int - 1);
    }
    let text = CStr::from_bytes_until_nul(&buffer).ok()?.to_string_lossy().trim().to_string();
    (!text.is_empty()).then_some(text)
}

/// The kernel that an MKL has loaded, by its file; that for vector mathematics has another name.
fn mkl_kernel() -> Option<String> {
    const KERNELS: [&str; 8] = ["def", "mc", "mc3", "avx", "avx2", "avx512", "avx512_mic", "avx10"];
    let files = mapped_files();
    let names = files.iter().filter_map(|file| file.file_name()?.to_str()?.split('.').next());
    let mut parts = names.filter_map(|name| name.strip_prefix("libmkl_"));
    parts.find(|part| KERNELS.contains(part)).map(str::to_owned)
}

fn flexiblas_backend(handle: *mut c_void) -> Option<String> {
    let address = symbol_of(handle, c"flexiblas_current_backend")?;
    let mut buffer = [0u8; 256];
    // SAFETY: `int flexiblas_current_backend(char *name, size_t max_len)`; the length is one byte
    // less than the buffer's, so that the text ends.
    unsafe {
        let function: extern "C" fn(*mut c_char, usize) -> c_int = std::mem::transmute(address);
        function(buffer.as_mut_ptr().cast(), buffer.len() - 1);
    }
    let name = CStr::from_bytes_until_nul(&buffer).ok()?.to_string_lossy().trim().to_owned();
    (!name.is_empty()).then(|| format!("with {name}"))
}

fn backend_kernel() -> Option<String> {
    files(mapped_files()).iter().filter_map(|file| handle_of(file)).find_map(kernel_of)
}

fn kernel_of(handle: *mut c_void) -> Option<String> {
    text_from(handle, c"openblas_get_corename").or_else(|| blis_kernel(handle))
}

fn blis_kernel(handle: *mut c_void) -> Option<String> {
    let query = symbol_of(handle, c"bli_arch_query_id")?;
    let name = symbol_of(handle, c"bli_arch_string")?;
    // SAFETY: `arch_t bli_arch_query_id(void)` and
    // `const char *bli_arch_string(arch_t)`, where arch_t is a C enum.
    unsafe {
        let query: extern "C" fn() -> c_int = std::mem::transmute(query);
        let name: extern "C" fn(c_int) -> *const c_char = std::mem::transmute(name);
        text_at(name(query()))
    }
}

fn call_with_int(address: *mut c_void, value: c_int) {
    // SAFETY: `openblas_set_num_threads`, `MKL_Set_Num_Threads` and `omp_set_num_threads` take an
    // int and return nothing.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(address)(value) }
}

fn call_with_blis_int(address: *mut c_void, value: i64) {
    // SAFETY: `void bli_thread_set_num_threads(dim_t)`. dim_t has 64 bits unless BLIS was built for
    // 32; both are passed in one register, whose lower half is the narrow one.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(i64)>(address)(value) }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "no {} of address space for the work space of the BLAS in {threads} thread(s): {why}; raise \
     the limit (ulimit -v), or lower the number of threads",
    units::bytes(*bytes as u64)
)]
pub struct NoWorkSpace {
    pub threads: usize,
    pub bytes: usize,
    pub why: std::io::Error,
}

/// Checks that `threads` threads that call the BLAS can have their work space, which each allocates
/// in its first call. Called right before that call, when all other memory is allocated.
pub fn check_work_space(threads: usize) -> Result<(), NoWorkSpace> {
    check_bytes(work_space_bytes(), threads)
}

/// The bytes of a thread's work space, if the library never returns without: OpenBLAS retries
/// forever, and the built-in BLAS ends the process. Other libraries need no more than products do.
fn work_space_bytes() -> usize {
    if is_built_in() {
        return crate::built_in::work_space_bytes();
    }
    symbol(c"openblas_get_config").map_or(0, |_| TUNING.blas_work_space_bytes)
}

fn check_bytes(bytes: usize, threads: usize) -> Result<(), NoWorkSpace> {
    let bytes = bytes.saturating_mul(threads);
    // Mapped, never touched: clearing these pages takes longer than the self-test.
    let mut mapped = Vec::<u8>::new();
    let reserved = std::hint::black_box(&mut mapped).try_reserve_exact(bytes);
    reserved.map_err(|_| NoWorkSpace { threads, bytes, why: ErrorKind::OutOfMemory.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_blas_is_found() {
        let mut x = [2.0];
        crate::blas::solve_triangle(
            crate::blas::Triangle::Upper,
            crate::blas::MatRef::row_major(&[4.0], 1, 1, 1),
            &mut x,
        );
        assert_eq!(x, [0.5]);
        let blas = loaded();
        if name() == BUILT_IN {
            assert_eq!((&*blas.library, blas.path), (BUILT_IN_LIBRARY, None));
            assert_eq!((blas_threads(), use_one_thread()), (None, false));
            return;
        }
        assert!(blas.path.is_some_and(|path| path.is_absolute()), "a file");
        if blas.library == "OpenBLAS" {
            assert!(blas.version.unwrap().contains("OpenBLAS"));
            assert!(!blas.kernel.unwrap().is_empty());
            assert!(use_one_thread());
            assert_eq!(blas_threads(), Some(1));
        }
    }

    #[test]
    fn the_check_of_the_work_space_touches_no_page() {
        fn page_faults() -> u64 {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let after_name = &stat[stat.rfind(')').unwrap() + 1..];
            // proc(5): minflt, the tenth field, the eighth after the name.
            after_name.split_whitespace().nth(7).unwrap().parse().unwrap()
        }
        let before = page_faults();
        check_bytes(TUNING.blas_work_space_bytes, 1).unwrap();
        // A page is touched by a fault, the largest has 2 MiB.
        assert!(page_faults() - before < 16);
        assert!(check_bytes(TUNING.blas_work_space_bytes, usize::MAX).is_err());
    }

    #[test]
    fn libraries_that_never_return_without_work_space_need_it() {
        assert!(check_bytes(0, usize::MAX).is_ok());
        let needs_it = is_built_in() || symbol(c"openblas_get_config").is_some();
        assert_eq!(check_work_space(usize::MAX).is_err(), needs_it);
    }

    /// OpenMP keeps its number of threads for each calling thread, so it must be set on each.
    #[test]
    fn openmp_opens_no_team_in_a_thread() {
        // A BLAS with OpenMP loads it; where compilers bring none, there is none to set.
        let how = libc::RTLD_NOW | libc::RTLD_GLOBAL;
        // SAFETY: the name is NUL-terminated; to load the library starts nothing.
        let openmp = unsafe { libc::dlopen(c"libgomp.so.1".as_ptr(), how) };
        if openmp.is_null() {
            // Past the capture of a passing test's output, as tests/skipped does it.
            let why = b"skipped: blas::library: no libgomp.so.1 here\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), why);
            return;
        }
        let openmp = openmp as usize;
        let set_and_ask = move || {
            let openmp = openmp as *mut c_void;
            assert!(set_one_thread(openmp));
            let address = symbol_of(openmp, c"omp_get_max_threads").expect("a function of OpenMP");
            // SAFETY: `int omp_get_max_threads(void)`.
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(address)() }
        };
        assert_eq!(std::thread::spawn(set_and_ask).join().expect("a thread"), 1);
    }

    #[test]
    fn unloaded_library_is_not_found() {
        assert_eq!(symbol(c"no_such_function_anywhere"), None);
    }
}
