//! The Fortran interface of the BLAS, and the table of the functions that are called through it.
//!
//! The table has the functions of one library: one that is loaded, or the built-in one
//! (`built_in`). The lengths of character arguments, at the end, are part of that interface;
//! libraries written in C ignore them.

use std::ffi::{CStr, c_int, c_void};

pub(crate) type BlasInt = c_int;

/// A dimension as the BLAS counts it; no local matrix of a real machine reaches 2^31.
pub(crate) fn int(n: usize) -> BlasInt {
    BlasInt::try_from(n).expect("a matrix dimension beyond what the BLAS can count")
}

pub(crate) type Gemm<T> = unsafe extern "C" fn(
    transa: *const u8,
    transb: *const u8,
    m: *const BlasInt,
    n: *const BlasInt,
    k: *const BlasInt,
    alpha: *const T,
    a: *const T,
    lda: *const BlasInt,
    b: *const T,
    ldb: *const BlasInt,
    beta: *const T,
    c: *mut T,
    ldc: *const BlasInt,
    transa_len: usize,
    transb_len: usize,
);

pub(crate) type Trsm<T> = unsafe extern "C" fn(
    side: *const u8,
    uplo: *const u8,
    transa: *const u8,
    diag: *const u8,
    m: *const BlasInt,
    n: *const BlasInt,
    alpha: *const T,
    a: *const T,
    lda: *const BlasInt,
    b: *mut T,
    ldb: *const BlasInt,
    side_len: usize,
    uplo_len: usize,
    transa_len: usize,
    diag_len: usize,
);

pub(crate) type Dtrsv = unsafe extern "C" fn(
    uplo: *const u8,
    trans: *const u8,
    diag: *const u8,
    n: *const BlasInt,
    a: *const f64,
    lda: *const BlasInt,
    x: *mut f64,
    incx: *const BlasInt,
    uplo_len: usize,
    trans_len: usize,
    diag_len: usize,
);

pub(crate) type Dgemv = unsafe extern "C" fn(
    trans: *const u8,
    m: *const BlasInt,
    n: *const BlasInt,
    alpha: *const f64,
    a: *const f64,
    lda: *const BlasInt,
    x: *const f64,
    incx: *const BlasInt,
    beta: *const f64,
    y: *mut f64,
    incy: *const BlasInt,
    trans_len: usize,
);

macro_rules! functions {
    ($($field:ident, $symbol:ident: $type:ty;)*) => {
        pub(crate) struct Functions {
            $(pub(crate) $field: $type,)*
        }

        impl Functions {
            pub(super) const SYMBOLS: &[&CStr] = &[$({
                const NAME: &str = concat!(stringify!($symbol), "\0");
                match CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("one NUL, at the end"),
                }
            }),*];

            fn built_in() -> Self {
                Self { $($field: crate::built_in::fortran::$field,)* }
            }

            /// The error is the name of a function that `address` does not find.
            pub(super) fn found_by(
                address: impl Fn(&CStr) -> Option<*mut c_void>,
            ) -> Result<Self, &'static str> {
                let mut names = Self::SYMBOLS.iter();
                Ok(Self {
                    $($field: {
                        let found = names.next().and_then(|name| address(name));
                        let found = found.ok_or(stringify!($symbol))?;
                        // SAFETY: the function has this type in the Fortran interface.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    dgemm, dgemm_: Gemm<f64>;
    dtrsm, dtrsm_: Trsm<f64>;
    dtrsv, dtrsv_: Dtrsv;
    dgemv, dgemv_: Dgemv;
    sgemm, sgemm_: Gemm<f32>;
    strsm, strsm_: Trsm<f32>;
}

/// The value of `--blas` for the BLAS that is a part of this program.
pub const BUILT_IN: &str = "built-in";

pub(super) struct Library {
    /// The value of `--blas` that names it, or the one below it if it is preloaded.
    pub(super) name: String,
    pub(super) functions: Functions,
    /// The handle of the library for `dlsym`; none if it is the built-in one, which has no others.
    pub(super) handle: Option<*mut c_void>,
}

impl Library {
    pub(super) fn built_in() -> Self {
        let name = BUILT_IN.to_owned();
        Self { name, functions: Functions::built_in(), handle: None }
    }
}
