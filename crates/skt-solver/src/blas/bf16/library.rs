//! Libraries that multiply matrices of bf16, found at run time.
//!
//! No BLAS has to have such products, so none is linked: the functions are looked up in the BLAS
//! that the process calls, and in AOCL-DLP, which is none.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use super::super::ffi::int;
use super::super::library::symbol;
use super::super::loader::file_of;
use super::super::{MatMut, MatRef};
use super::Bf16;

/// A library's product of matrices of bf16 with sums in single precision.
#[derive(Debug, Clone)]
pub struct Bf16Library {
    pub function: &'static str,
    pub path: Option<PathBuf>,
    call: Call,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Cblas(CblasGemm),
    Dlp(DlpGemm),
}

/// The CBLAS interface of `C := alpha op(A) op(B) + beta C`, with integers of 32 bits.
type CblasGemm = unsafe extern "C" fn(
    layout: c_int,
    trans_a: c_int,
    trans_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: f32,
    a: *const Bf16,
    lda: c_int,
    b: *const Bf16,
    ldb: c_int,
    beta: f32,
    c: *mut f32,
    ldc: c_int,
);

/// The interface of AOCL-DLP; `format` is n unless a matrix was reordered before.
type DlpGemm = unsafe extern "C" fn(
    layout: c_char,
    trans_a: c_char,
    trans_b: c_char,
    m: i64,
    n: i64,
    k: i64,
    alpha: f32,
    a: *const Bf16,
    lda: i64,
    format_a: c_char,
    b: *const Bf16,
    ldb: i64,
    format_b: c_char,
    beta: f32,
    c: *mut f32,
    ldc: i64,
    metadata: *mut c_void,
);

/// Functions with the CBLAS interface: OpenBLAS's and oneMKL's.
const CBLAS: [(&str, &CStr); 2] =
    [("cblas_sbgemm", c"cblas_sbgemm"), ("cblas_gemm_bf16bf16f32", c"cblas_gemm_bf16bf16f32")];
const DLP: (&str, &CStr) = ("aocl_gemm_bf16bf16f32of32", c"aocl_gemm_bf16bf16f32of32");
const DLP_FILE: &CStr = c"libaocl-dlp.so";

/// The libraries that this process can call, the BLAS first.
pub fn libraries() -> &'static [Bf16Library] {
    static FOUND: OnceLock<Vec<Bf16Library>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let cblas = CBLAS.into_iter().filter_map(|(function, name)| {
            let address = symbol(name)?;
            // SAFETY: both names are functions of this type in their libraries' headers.
            let call =
                Call::Cblas(unsafe { std::mem::transmute::<*mut c_void, CblasGemm>(address) });
            Some(Bf16Library { function, path: file_of(address), call })
        });
        let dlp = dlp_symbol(DLP.1).map(|address| {
            // SAFETY: the function has this type in the library's header.
            let call = Call::Dlp(unsafe { std::mem::transmute::<*mut c_void, DlpGemm>(address) });
            Bf16Library { function: DLP.0, path: file_of(address), call }
        });
        if dlp.is_some() {
            use_one_dlp_thread();
        }
        cblas.chain(dlp).collect()
    })
}

static SELECTED: OnceLock<&'static Bf16Library> = OnceLock::new();

/// Selects this process's library; the first selection counts: a run does not change it.
pub fn select(library: &'static Bf16Library) {
    SELECTED.get_or_init(|| library);
}

pub fn selected() -> Option<&'static Bf16Library> {
    SELECTED.get().copied()
}

/// The address of a function of AOCL-DLP, loaded for as long as the process runs.
fn dlp_symbol(name: &CStr) -> Option<*mut c_void> {
    symbol(name).or_else(|| {
        // SAFETY: the names are NUL-terminated; the library's constructors run, as in a program
        // that is linked to it.
        let address = unsafe {
            let library = libc::dlopen(DLP_FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if library.is_null() {
                return None;
            }
            libc::dlsym(library, name.as_ptr())
        };
        (!address.is_null()).then_some(address)
    })
}

/// Makes AOCL-DLP use one thread in a call on any thread, as we call it from our own threads.
fn use_one_dlp_thread() {
    if let Some(address) = dlp_symbol(c"dlp_thread_set_num_threads_library") {
        // SAFETY: `void dlp_thread_set_num_threads_library(md_t)`, with an integer of 64 bits.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(i64)>(address)(1) }
    }
}

impl Bf16Library {
    /// `C := C - A B`, with contiguous rows of all.
    pub fn subtract_product(&self, a: MatRef<Bf16>, b: MatRef<Bf16>, mut c: MatMut<f32>) {
        let (m, n, k) = (c.rows(), c.cols(), a.cols());
        assert_eq!((a.rows(), b.rows(), b.cols()), (m, k, n), "gemm shapes");
        let is_any_col_major = a.is_col_major() || b.is_col_major() || c.is_col_major();
        assert!(!is_any_col_major, "rows of all are contiguous");
        if m == 0 || n == 0 || k == 0 {
            return;
        }
        let [lda, ldb, ldc] = [a.ld(), b.ld(), c.ld()];
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        match self.call {
            Call::Cblas(gemm) => {
                const ROW_MAJOR: c_int = 101;
                const NO_TRANS: c_int = 111;
                let [lda, ldb, ldc] = [lda, ldb, ldc].map(int);
                let (m, n, k) = (int(m), int(n), int(k));
                // SAFETY: the views guarantee that every element that these shapes and leading
                // dimensions name is in borrowed memory, C's exclusively.
                unsafe {
                    gemm(ROW_MAJOR, NO_TRANS, NO_TRANS, m, n, k, -1.0, a, lda, b, ldb, 1.0, c, ldc);
                }
            }
            Call::Dlp(gemm) => {
                let [row_major, no] = [b'r', b'n'].map(|letter| letter as c_char);
                let [lda, ldb, ldc] = [lda, ldb, ldc].map(|ld| ld as i64);
                let (m, n, k) = (m as i64, n as i64, k as i64);
                // SAFETY: as above; no operation follows the product.
                unsafe {
                    gemm(
                        row_major,
                        no,
                        no,
                        m,
                        n,
                        k,
                        -1.0,
                        a,
                        lda,
                        no,
                        b,
                        ldb,
                        no,
                        1.0,
                        c,
                        ldc,
                        ptr::null_mut(),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::slice::from_raw_parts;

    use proptest::prelude::*;

    use super::*;

    /// `C := alpha A B + beta C`, row by row, as [`CblasGemm`].
    unsafe extern "C" fn cblas(
        layout: c_int,
        trans_a: c_int,
        trans_b: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: f32,
        a: *const Bf16,
        lda: c_int,
        b: *const Bf16,
        ldb: c_int,
        beta: f32,
        c: *mut f32,
        ldc: c_int,
    ) {
        assert_eq!((layout, trans_a, trans_b), (101, 111, 111));
        let [m, n, k, lda, ldb, ldc] = [m, n, k, lda, ldb, ldc].map(|it| it as usize);
        assert!(lda >= k && ldb >= n && ldc >= n);
        for i in 0..m {
            // SAFETY: the caller's promise: matrices of these shapes.
            let (row, c) = unsafe {
                (
                    from_raw_parts(a.add(i * lda), k),
                    std::slice::from_raw_parts_mut(c.add(i * ldc), n),
                )
            };
            for (j, c) in c.iter_mut().enumerate() {
                // SAFETY: as above.
                let term = |p: usize| f32::from(row[p]) * f32::from(unsafe { *b.add(p * ldb + j) });
                *c = beta * *c + alpha * (0..k).map(term).sum::<f32>();
            }
        }
    }

    /// [`cblas`], as [`DlpGemm`].
    unsafe extern "C" fn dlp(
        layout: c_char,
        trans_a: c_char,
        trans_b: c_char,
        m: i64,
        n: i64,
        k: i64,
        alpha: f32,
        a: *const Bf16,
        lda: i64,
        format_a: c_char,
        b: *const Bf16,
        ldb: i64,
        format_b: c_char,
        beta: f32,
        c: *mut f32,
        ldc: i64,
        metadata: *mut c_void,
    ) {
        let letters = [layout, trans_a, trans_b, format_a, format_b].map(|it| it as u8);
        assert!(letters == *b"rnnnn" && metadata.is_null());
        let [m, n, k, lda, ldb, ldc] = [m, n, k, lda, ldb, ldc].map(|it| it as c_int);
        // SAFETY: the caller's promise.
        unsafe { cblas(101, 111, 111, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) };
    }

    pub(crate) fn stand_ins() -> [Bf16Library; 2] {
        [("cblas", Call::Cblas(cblas)), ("dlp", Call::Dlp(dlp))]
            .map(|(function, call)| Bf16Library { function, path: None, call })
    }

    proptest! {
        #[test]
        fn a_product_is_subtracted_by_each_interface(
            m in 0usize..20, n in 0usize..20, k in 0usize..20, seed: u64,
        ) {
            let numbers = |len: usize, step: f64| -> Vec<f32> {
                let value = |i: usize| (i as f64 + (seed % 1000) as f64) * step;
                (0..len).map(|i| (value(i).fract() - 0.5) as f32).collect()
            };
            let packed = |rows: usize, cols: usize, step: f64| -> (Vec<f32>, Vec<Bf16>) {
                let packed: Vec<Bf16> =
                    numbers(rows * cols, step).into_iter().map(Bf16::from).collect();
                (packed.iter().map(|&number| number.into()).collect(), packed)
            };
            let ((a, a_packed), (b, b_packed)) =
                (packed(m, k, 2f64.sqrt()), packed(k, n, 3f64.sqrt()));
            let before = numbers(m * (n + 1), 5f64.sqrt());
            for library in stand_ins().iter().chain(libraries()) {
                let mut c = before.clone();
                library.subtract_product(
                    MatRef::row_major(&a_packed, m, k, k),
                    MatRef::row_major(&b_packed, k, n, n),
                    MatMut::row_major(&mut c, m, n, n + 1),
                );
                for (i, j) in (0..m).flat_map(|i| (0..=n).map(move |j| (i, j))) {
                    let at = i * (n + 1) + j;
                    let term = |p: usize| f64::from(a[i * k + p]) * f64::from(b[p * n + j]);
                    let product = if j < n { (0..k).map(term).sum() } else { 0.0 };
                    let off = f64::from(c[at]) - (f64::from(before[at]) - product);
                    prop_assert!(off.abs() < 1e-5, "{}: ({i}, {j}) is off by {off}", library.function);
                }
            }
        }
    }
}
