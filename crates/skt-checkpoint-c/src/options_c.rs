//! The options as a struct of C.
//!
//! A program compiled with an older header has a shorter struct: the fields that it lacks have
//! their defaults. One with a newer header than this library has a longer struct, whose additional
//! fields must be zero.

use std::ffi::{CStr, c_char, c_int};
use std::mem::offset_of;
use std::ptr;

use crate::code::{Code, Result, Stop};
use crate::options::GivenOptions;

/// `skt_options` of `skt.h`: zero or null stands for the default.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SktOptions {
    /// Bytes of the struct, as the program was compiled.
    size: usize,
    run_id: *const c_char,
    application: *const c_char,
    group_size: c_int,
    parities: c_int,
    codec: *const c_char,
    encoder: *const c_char,
    resume: *const c_char,
    store: *const c_char,
    domains: *const c_char,
    allow_shared_domains: c_int,
    mtbf_seconds: f64,
    timeout_seconds: f64,
    levels: *const c_char,
    time_limit: *const c_char,
}

/// Bytes of the struct in the first version of the header.
const MIN_BYTES: usize = offset_of!(SktOptions, time_limit) + size_of::<*const c_char>();
/// More than any header will have: what is larger was not filled by `skt_options_init`.
const MAX_BYTES: usize = 1 << 16;

fn wrong(text: String) -> Stop {
    Stop::new(Code::Options, text)
}

/// Fills the struct of a program, of `size` bytes, with the defaults.
///
/// # Errors
/// `options` is null, or `size` is not that of any header.
///
/// # Safety
/// `options` is null or a place of `size` bytes.
pub unsafe fn fill(options: *mut SktOptions, size: usize) -> Result<()> {
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

/// What a program gives in its struct.
///
/// # Errors
/// The struct was not filled by `skt_options_init`, or is of a newer header and uses what this
/// library does not know.
///
/// # Safety
/// `options` is null or was filled by [`fill`] and changed since; its texts end with a zero.
pub unsafe fn read_struct(options: *const SktOptions) -> Result<GivenOptions> {
    if options.is_null() {
        return Ok(GivenOptions::new());
    }
    // SAFETY: by this function's contract; the size is the first field of all versions.
    let size = unsafe { (*options).size };
    if !(MIN_BYTES..=MAX_BYTES).contains(&size) {
        let text = format!("the options: a struct of {size} bytes; call skt_options_init first");
        return Err(wrong(text));
    }
    let known = size_of::<SktOptions>();
    if size > known {
        // SAFETY: the struct has `size` bytes.
        let newer =
            unsafe { std::slice::from_raw_parts(options.cast::<u8>().add(known), size - known) };
        if newer.iter().any(|&byte| byte != 0) {
            let text = "the options: the program uses options of a newer skt.h than this library's";
            return Err(wrong(text.to_owned()));
        }
    }
    // SAFETY: it has all fields of this version, the first.
    unsafe { given(&*options) }
}

/// # Safety
/// The texts end with a zero.
unsafe fn given(options: &SktOptions) -> Result<GivenOptions> {
    let mut all = GivenOptions::new();
    let texts = [
        ("run_id", options.run_id),
        ("application", options.application),
        ("codec", options.codec),
        ("encoder", options.encoder),
        ("resume", options.resume),
        ("store", options.store),
        ("domains", options.domains),
        ("levels", options.levels),
        ("time_limit", options.time_limit),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_null()) {
        // SAFETY: by this function's contract.
        let text = unsafe { CStr::from_ptr(text) }.to_str();
        let text = text.map_err(|_| wrong(format!("option {name} is not UTF-8")))?;
        all.insert(name, text.to_owned());
    }
    let whole = [("group_size", options.group_size), ("parities", options.parities)];
    for (name, number) in whole.into_iter().filter(|&(_, number)| number != 0) {
        all.insert(name, number.to_string());
    }
    let reals =
        [("mtbf_seconds", options.mtbf_seconds), ("timeout_seconds", options.timeout_seconds)];
    for (name, number) in reals.into_iter().filter(|&(_, number)| number != 0.0) {
        all.insert(name, number.to_string());
    }
    if options.allow_shared_domains != 0 {
        all.insert("allow_shared_domains", "true".to_owned());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{NAMES, Options};

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
        let folder = tempfile::tempdir().expect("a folder");
        let racks = folder.path().join("racks");
        std::fs::write(&racks, "a b\n").expect("room");
        let racks = format!("{}\0", racks.display());
        options.run_id = c"a".as_ptr();
        options.application = c"b".as_ptr();
        (options.group_size, options.parities) = (8, 2);
        (options.codec, options.encoder) = (c"reed-solomon".as_ptr(), c"ring".as_ptr());
        (options.resume, options.store) = (c"require".as_ptr(), c"posix".as_ptr());
        options.domains = racks.as_ptr().cast();
        options.allow_shared_domains = 1;
        (options.mtbf_seconds, options.timeout_seconds) = (3600.0, 7.5);
        (options.levels, options.time_limit) = (c"local:/x,keep=1".as_ptr(), c"2h".as_ptr());
        // SAFETY: texts that end with a zero.
        let given = unsafe { read_struct(&options) }.expect("legal");
        let mut names = NAMES;
        names.sort_unstable();
        assert_eq!(given.keys().copied().collect::<Vec<_>>(), names);
        let text = format!(
            "run_id='a'\napplication='b'\ngroup_size=8\nparities=2\ncodec='reed-solomon'\n\
             encoder='ring'\nresume='require'\nstore='posix'\ndomains='{}'\n\
             allow_shared_domains=true\nmtbf_seconds=3600\ntimeout_seconds=7.5\n\
             levels=['local:/x','keep=1']\ntime_limit='2h'",
            racks.trim_end_matches('\0')
        );
        let none = |_: &str| None;
        assert_eq!(Options::resolve(&given, none), Options::read(&text, none));
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
