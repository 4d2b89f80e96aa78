//! The Fortran interface of the BLAS, and the table of the functions that are called through it.
//!
//! The table is filled once, so that all calls of a process go to one library: the linked one, one
//! that is loaded, or the built-in one (crate `skt-kernel`). The lengths of
//! character arguments, at the end, are part of that interface; libraries written in C ignore them.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{LazyLock, OnceLock};

/// Integers of the BLAS (LP64).
pub(crate) type BlasInt = c_int;

/// A dimension as the BLAS counts it.
///
/// # Panics
/// Beyond 2^31 - 1, which no local matrix of a real machine reaches.
pub(crate) fn int(n: usize) -> BlasInt {
    BlasInt::try_from(n).expect("a matrix dimension beyond what the BLAS can count")
}

/// xGEMM for one type of numbers.
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

/// xTRSM for one type of numbers.
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

/// DTRSV.
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

/// DGEMV.
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

/// Defines [`Functions`] with a field for each function: `field, symbol: type`.
macro_rules! functions {
    ($($field:ident, $symbol:ident: $type:ty;)*) => {
        /// The functions of one library.
        pub(crate) struct Functions {
            $(pub(crate) $field: $type,)*
        }

        /// The library that the program is linked with, or what is preloaded in its place.
        #[cfg(not(built_in_blas))]
        mod linked {
            unsafe extern "C" {
                $(pub(crate) fn $symbol();)*
            }
        }

        impl Functions {
            #[cfg(not(built_in_blas))]
            fn linked() -> Self {
                Self {
                    // SAFETY: the function has this type in the Fortran interface.
                    $($field: unsafe {
                        std::mem::transmute::<*const (), $type>(linked::$symbol as *const ())
                    },)*
                }
            }

            fn built_in() -> Self {
                Self { $($field: skt_kernel::fortran::$field,)* }
            }

            /// The functions that `address` finds by their names. The error is the name of one that
            /// it does not find.
            pub(super) fn found_by(
                address: impl Fn(&CStr) -> Option<*mut c_void>,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        const NAME: &str = concat!(stringify!($symbol), "\0");
                        let name = CStr::from_bytes_with_nul(NAME.as_bytes());
                        let found = address(name.expect("one NUL, at the end"));
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

/// A library, and where else its functions are looked up.
pub(super) struct Library {
    pub(super) functions: Functions,
    /// The handle of the library for `dlsym`; none if it is the built-in one, which has no others.
    pub(super) handle: Option<*mut c_void>,
}

// SAFETY: functions and handles of libraries are the same on all threads, and neither is written
// to.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The linked library. Its other functions are looked up in all that is loaded at the start, as
    /// it may consist of several files.
    #[cfg(not(built_in_blas))]
    fn preset() -> Self {
        Self { functions: Functions::linked(), handle: Some(libc::RTLD_DEFAULT) }
    }

    /// The built-in library, as none is linked.
    #[cfg(built_in_blas)]
    fn preset() -> Self {
        Self::built_in()
    }

    pub(super) fn built_in() -> Self {
        Self { functions: Functions::built_in(), handle: None }
    }
}

static PRESET: LazyLock<Library> = LazyLock::new(Library::preset);

/// The library that this process calls, from its first call on.
static CALLED: OnceLock<&'static Library> = OnceLock::new();

#[cfg(test)]
thread_local! {
    /// Functions that a test calls in place of the library's, on its thread.
    pub(super) static PLANTED: std::cell::Cell<Option<&'static Functions>> =
        const { std::cell::Cell::new(None) };
}

/// The functions that a process calls unless it loads another library.
#[cfg(test)]
pub(super) fn preset() -> &'static Functions {
    &PRESET.functions
}

/// The functions that this process calls.
#[inline]
pub(super) fn functions() -> &'static Functions {
    #[cfg(test)]
    if let Some(planted) = PLANTED.get() {
        return planted;
    }
    &CALLED.get_or_init(|| &PRESET).functions
}

/// The library that this process calls, or will call unless it loads another one.
pub(super) fn library() -> &'static Library {
    CALLED.get().copied().unwrap_or(&PRESET)
}

/// Makes `library` the one that this process calls. Returns whether it is: a process that has
/// called another one keeps that.
pub(super) fn set_library(library: Library) -> bool {
    CALLED.set(Box::leak(Box::new(library))).is_ok()
}
