//! The options that a program gives, in a TOML text or in a struct of C, as texts by their names.
//!
//! A program compiled with an older header has a shorter struct: the fields that it lacks have
//! their defaults. One with a newer header than this library has a longer struct, whose additional
//! fields must be zero.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::mem::offset_of;
use std::ptr;

use crate::code::{Code, Result, Stop};

/// The options that a program gives, as an environment variable would have them.
pub(crate) type GivenOptions = BTreeMap<&'static str, String>;

/// The error of an option.
pub(crate) fn bad(text: impl Into<String>) -> Stop {
    Stop::new(Code::Options, text)
}

/// A field of the struct: zero or null stands for the default.
trait Field {
    /// The text of the field's option `name`, if it is given.
    ///
    /// # Safety
    /// A pointer is null or to a text that ends with a zero.
    unsafe fn text(self, name: &str) -> Result<Option<String>>;
}

impl Field for *const c_char {
    unsafe fn text(self, name: &str) -> Result<Option<String>> {
        if self.is_null() {
            return Ok(None);
        }
        // SAFETY: by this function's contract.
        let text = unsafe { CStr::from_ptr(self) }.to_str();
        Ok(Some(text.map_err(|_| bad(format!("option {name} is not UTF-8")))?.to_owned()))
    }
}

impl Field for c_int {
    unsafe fn text(self, _: &str) -> Result<Option<String>> {
        Ok((self != 0).then(|| self.to_string()))
    }
}

impl Field for f64 {
    unsafe fn text(self, _: &str) -> Result<Option<String>> {
        Ok((self != 0.0).then(|| self.to_string()))
    }
}

/// An option that is on or off.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
struct Flag(c_int);

impl Field for Flag {
    unsafe fn text(self, _: &str) -> Result<Option<String>> {
        Ok((self.0 != 0).then(|| true.to_string()))
    }
}

/// Declares all options, in the order of the struct's fields.
macro_rules! options {
    ($($name:ident: $field:ty,)*) => {
        /// The names of all options. The environment variable of `run_id` is `SKT_RUN_ID`.
        pub const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

        /// `skt_options` of `skt.h`.
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct SktOptions {
            /// Bytes of the struct, as the program was compiled.
            size: usize,
            $($name: $field,)*
        }

        impl SktOptions {
            /// # Safety
            /// The texts end with a zero.
            unsafe fn given(&self) -> Result<GivenOptions> {
                let mut all = GivenOptions::new();
                $(
                    let name = stringify!($name);
                    // SAFETY: by this function's contract.
                    let text = unsafe { self.$name.text(name) }?;
                    all.extend(text.map(|text| (name, text)));
                )*
                Ok(all)
            }
        }
    };
}

options! {
    run_id: *const c_char,
    application: *const c_char,
    group_size: c_int,
    parities: c_int,
    codec: *const c_char,
    encoder: *const c_char,
    resume: *const c_char,
    store: *const c_char,
    domains: *const c_char,
    allow_shared_domains: Flag,
    mtbf_seconds: f64,
    timeout_seconds: f64,
    levels: *const c_char,
    time_limit: *const c_char,
}

/// Bytes of the struct in the first version of the header.
const MIN_BYTES: usize = offset_of!(SktOptions, time_limit) + size_of::<*const c_char>();
/// More than any header will have: what is larger was not filled by `skt_options_init`.
const MAX_BYTES: usize = 1 << 16;

pub(crate) fn read_toml(text: &str) -> Result<GivenOptions> {
    let table: toml::Table =
        text.parse().map_err(|why: toml::de::Error| bad(format!("the options: {why}")))?;
    let named = |(name, value): (&String, &toml::Value)| {
        let known = NAMES.iter().find(|known| *known == name);
        let unknown = || bad(format!("no option `{name}`; there are {}", NAMES.join(", ")));
        Ok((*known.ok_or_else(unknown)?, as_text(value)))
    };
    table.iter().map(named).collect()
}

fn as_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        // Levels may be in a list.
        toml::Value::Array(all) => all.iter().map(as_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Fills the struct of a program, of `size` bytes, with the defaults.
///
/// # Safety
/// `options` is null or a place of `size` bytes.
pub(crate) unsafe fn fill(options: *mut SktOptions, size: usize) -> Result<()> {
    if options.is_null() {
        let text = "skt_options_init: the place for the options is null";
        return Err(Stop::new(Code::Argument, text));
    }
    if !(MIN_BYTES..=MAX_BYTES).contains(&size) {
        let text = format!("skt_options_init: {size} bytes; pass sizeof(skt_options)");
        return Err(Stop::new(Code::Argument, text));
    }
    // SAFETY: by this function's contract; zero is a value of each field.
    unsafe {
        ptr::write_bytes(options.cast::<u8>(), 0, size);
        (*options).size = size;
    }
    Ok(())
}

/// The options in a program's struct.
///
/// # Safety
/// `options` is null or was filled by [`fill`] and changed since; its texts end with a zero.
pub(crate) unsafe fn read_struct(options: *const SktOptions) -> Result<GivenOptions> {
    if options.is_null() {
        return Ok(GivenOptions::new());
    }
    // SAFETY: by this function's contract; the size is the first field of all versions.
    let size = unsafe { (*options).size };
    if !(MIN_BYTES..=MAX_BYTES).contains(&size) {
        let text = format!("the options: a struct of {size} bytes; call skt_options_init first");
        return Err(bad(text));
    }
    let known = size_of::<SktOptions>();
    if size > known {
        // SAFETY: the struct has `size` bytes.
        let newer =
            unsafe { std::slice::from_raw_parts(options.cast::<u8>().add(known), size - known) };
        if newer.iter().any(|&byte| byte != 0) {
            let text = "the options: the program uses options of a newer skt.h than this library's";
            return Err(bad(text));
        }
    }
    // SAFETY: it has all fields of this version, the first.
    unsafe { (*options).given() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> SktOptions {
        let mut options = std::mem::MaybeUninit::<SktOptions>::uninit();
        // SAFETY: a place of this size, which is filled.
        unsafe {
            fill(options.as_mut_ptr(), size_of::<SktOptions>()).expect("a place");
            options.assume_init()
        }
    }

    #[test]
    fn the_defaults_are_those_of_an_empty_text() {
        // SAFETY: no texts.
        let given = unsafe { read_struct(&filled()) }.expect("legal");
        assert_eq!(given, GivenOptions::new());
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read_struct(ptr::null()) }, Ok(GivenOptions::new()));
    }

    #[test]
    fn each_option_has_a_field_and_means_what_the_text_means() {
        let mut options = filled();
        options.run_id = c"a".as_ptr();
        options.application = c"b".as_ptr();
        (options.group_size, options.parities) = (8, 2);
        (options.codec, options.encoder) = (c"reed-solomon".as_ptr(), c"ring".as_ptr());
        (options.resume, options.store) = (c"require".as_ptr(), c"posix".as_ptr());
        options.domains = c"/racks".as_ptr();
        options.allow_shared_domains = Flag(1);
        (options.mtbf_seconds, options.timeout_seconds) = (3600.0, 7.5);
        (options.levels, options.time_limit) = (c"local:/x,keep=1".as_ptr(), c"2h".as_ptr());
        // SAFETY: texts that end with a zero.
        let given = unsafe { read_struct(&options) }.expect("legal");
        let mut names = NAMES;
        names.sort_unstable();
        assert_eq!(given.keys().copied().collect::<Vec<_>>(), names);
        let text = "run_id='a'\napplication='b'\ngroup_size=8\nparities=2\n\
                    codec='reed-solomon'\nencoder='ring'\nresume='require'\nstore='posix'\n\
                    domains='/racks'\nallow_shared_domains=true\nmtbf_seconds=3600\n\
                    timeout_seconds=7.5\nlevels=['local:/x','keep=1']\ntime_limit='2h'";
        assert_eq!(Ok(given), read_toml(text));
    }

    #[test]
    fn structs_of_other_headers_are_distinguished() {
        let bad = |size| {
            let options = SktOptions { size, ..filled() };
            // SAFETY: its size is refused before anything else is read.
            unsafe { read_struct(&options) }.expect_err("not filled").text
        };
        for size in [0, MIN_BYTES - 1, usize::MAX] {
            assert!(bad(size).contains("call skt_options_init first"), "{size}");
        }
        #[repr(C)]
        struct Newer(SktOptions, u64);
        let size = size_of::<Newer>();
        let newer = |field| Newer(SktOptions { size, ..filled() }, field);
        let read = |newer: &Newer| {
            // SAFETY: the struct has `size` bytes, by its first field.
            unsafe { read_struct(ptr::from_ref(newer).cast()) }
        };
        assert_eq!(read(&newer(0)), Ok(GivenOptions::new()));
        let stop = read(&newer(1)).expect_err("unknown");
        assert!(stop.text.contains("a newer skt.h"), "{}", stop.text);
    }
}
