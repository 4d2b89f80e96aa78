//! Libraries of drivers, loaded at run time.

use std::ffi::c_int;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::DeviceError;

/// A loaded library. It stays loaded until the process ends.
pub(crate) struct Loaded {
    pub name: &'static str,
    library: Library,
    remedy: &'static str,
}

impl Loaded {
    /// Loads the first of `files` that can be loaded, but rather one that the process has already:
    /// handles of one version mean nothing to another.
    pub(crate) fn open(files: &[&'static str], remedy: &'static str) -> Result<Self, DeviceError> {
        let open = |name: &'static str, flags: c_int| {
            // SAFETY: the library's constructors run, as in a program that is linked to it.
            let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | flags) };
            library.map(|library| Self { name, library, remedy })
        };
        let in_process = files.iter().find_map(|name| open(name, libc::RTLD_NOLOAD).ok());
        if let Some(loaded) = in_process {
            return Ok(loaded);
        }
        let mut why = Vec::new();
        for name in files {
            match open(name, 0) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => why.push(error.to_string()),
            }
        }
        Err(DeviceError::Library { library: files.join(", "), why: why.join("; "), remedy })
    }

    /// Safety: the library's function of this name has the type `F`, a pointer to a function.
    pub(crate) unsafe fn find<F: Copy>(&self, symbol: &'static str) -> Result<F, DeviceError> {
        // SAFETY: promised by the caller.
        let found = unsafe { self.library.get::<F>(symbol.as_bytes()) };
        found.map(|function| *function).map_err(|error| DeviceError::Symbol {
            library: self.name,
            symbol,
            why: error.to_string(),
            remedy: self.remedy,
        })
    }

    /// Leaves the library loaded for good, as its functions may be called at any time.
    pub(crate) fn keep(self) {
        std::mem::forget(self.library);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Call<F> {
    pub symbol: &'static str,
    pub function: F,
}

/// Defines a table of the functions of a library, by name, with their types.
macro_rules! symbols {
    ($(#[$doc:meta])* $table:ident {
        $($symbol:ident: fn($($argument:ty),* $(,)?) -> $result:ty;)*
    }) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $($symbol: $crate::library::Call<unsafe extern "C" fn($($argument),*) -> $result>,)*
        }

        impl $table {
            /// The symbols and their types, without any alias.
            pub(crate) fn signatures() -> Vec<(&'static str, &'static str)> {
                vec![$((
                    stringify!($symbol),
                    std::any::type_name::<unsafe extern "C" fn($($argument),*) -> $result>(),
                )),*]
            }

            /// Safety: the library's functions have these types.
            unsafe fn find(
                loaded: &$crate::library::Loaded,
            ) -> Result<Self, $crate::error::DeviceError> {
                // SAFETY: promised by the caller.
                Ok(unsafe {
                    Self {
                        $($symbol: $crate::library::Call {
                            symbol: stringify!($symbol),
                            function: loaded.find(stringify!($symbol))?,
                        },)*
                    }
                })
            }
        }
    };
}
pub(crate) use symbols;
