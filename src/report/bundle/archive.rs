//! Packs files into a compressed tar archive, and unpacks them in memory.

use std::io::{self, Read as _};
use std::path::{Component, Path};

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use skt_terms::shown::{shown, shown_message};
use tar::{Archive, Builder, Entry, EntryType, Header};

use super::{BundleError, Member};

/// The bytes that an archive of any size may hold.
const MIN_LIMIT: u64 = 256 << 20;
/// The largest ratio of unpacked to packed bytes: a report has about 10, and a file that is made to
/// fill the memory has 1000.
const MAX_RATIO: u64 = 100;
/// The modification time of each file, as the same report is to give the same archive: 1980, which
/// no tool takes for a mistake.
const TIME: u64 = 315_532_800;

/// The most bytes that an archive of this size may hold.
fn max_bytes(packed: usize) -> u64 {
    MIN_LIMIT.max(MAX_RATIO * packed as u64)
}

/// Whether these bytes are compressed as an archive is; JSON never begins so.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

pub fn pack(folder: &str, members: &[Member]) -> Vec<u8> {
    let pack = || {
        let out = GzBuilder::new().write(Vec::new(), Compression::best());
        let mut archive = Builder::new(out);
        for Member { name, bytes } in members {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(0o644);
            header.set_mtime(TIME);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, format!("{folder}/{name}"), &bytes[..])?;
        }
        archive.into_inner()?.finish()
    };
    let packed: io::Result<Vec<u8>> = pack();
    packed.expect("short names, in memory")
}

/// The files of an archive. They are all in one folder.
///
/// # Errors
/// It is damaged, holds more than a report of its size, or has anything but plain files, each once.
pub fn unpack(bytes: &[u8]) -> Result<Vec<Member>, BundleError> {
    let (mut tar, most) = (Vec::new(), max_bytes(bytes.len()));
    let mut unzipped = GzDecoder::new(bytes).take(most + 1);
    unzipped.read_to_end(&mut tar).map_err(damaged)?;
    if tar.len() as u64 > most {
        return Err(BundleError::TooLarge(most >> 20));
    }
    let (mut folder, mut members) = (None, Vec::<Member>::new());
    for entry in Archive::new(&tar[..]).entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let unexpected = || BundleError::Unexpected(shown(&path));
        let (inside, name) = names(&path, &entry).ok_or_else(unexpected)?;
        let is_second = members.iter().any(|member| Some(&member.name) == name.as_ref());
        if is_second || *folder.get_or_insert_with(|| inside.clone()) != inside {
            return Err(unexpected());
        }
        let Some(name) = name else { continue };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(damaged)?;
        if bytes.len() as u64 != entry.size() {
            return Err(BundleError::Damaged(format!("{name} is cut off")));
        }
        members.push(Member { name, bytes });
    }
    Ok(members)
}

/// The folder and the name of a plain file in it, or the folder itself; `None` for anything else.
fn names(path: &str, entry: &Entry<impl io::Read>) -> Option<(String, Option<String>)> {
    let parts: Vec<_> =
        Path::new(path).components().skip_while(|part| *part == Component::CurDir).collect();
    match (&parts[..], entry.header().entry_type()) {
        (&[Component::Normal(folder), Component::Normal(name)], EntryType::Regular) => {
            Some((folder.to_str()?.to_owned(), Some(name.to_str()?.to_owned())))
        }
        (&[Component::Normal(folder)], EntryType::Directory) => {
            Some((folder.to_str()?.to_owned(), None))
        }
        _ => None,
    }
}

fn damaged(error: io::Error) -> BundleError {
    BundleError::Damaged(shown_message(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, bytes: &[u8]) -> Member {
        Member { name: name.to_owned(), bytes: bytes.to_owned() }
    }

    /// An archive with an entry of this kind, whose path is taken as it is.
    fn archive(kind: EntryType, paths: &[&str]) -> Vec<u8> {
        let mut archive = Builder::new(GzBuilder::new().write(Vec::new(), Compression::fast()));
        for path in paths {
            let mut header = Header::new_ustar();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(kind);
            header.set_size(3);
            header.set_cksum();
            archive.append(&header, &b"bad"[..]).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn files_come_back_and_the_archive_depends_on_nothing_else() {
        let members = [member("a", b"text\n"), member("b", &[0; 5000]), member("c", b"")];
        let packed = pack("folder", &members);
        assert!(is_archive(&packed));
        assert_eq!(unpack(&packed).unwrap(), members);
        assert_eq!(pack("folder", &members), packed);
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        assert_eq!(unpack(&archive(EntryType::Regular, &["./f/x"])).unwrap().len(), 1);
        for paths in [
            &["../x"][..],
            &["f/../x"],
            &["f/../../x"],
            &["/f/x"],
            &["x"],
            &["f/x/y"],
            &["f"],
            // A second folder, and the same file twice.
            &["f/x", "g/y"],
            &["f/x", "f/x"],
        ] {
            let refused = unpack(&archive(EntryType::Regular, paths)).unwrap_err();
            let named =
                matches!(&refused, BundleError::Unexpected(path) if path == paths[paths.len() - 1]);
            assert!(named, "{paths:?}: {refused}");
        }
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo, EntryType::Char] {
            assert!(matches!(
                unpack(&archive(kind, &["f/x"])),
                Err(BundleError::Unexpected(path)) if path == "f/x"
            ));
        }
    }

    #[test]
    fn what_is_cut_off_or_too_large_is_refused() {
        let whole = pack("f", &[member("a", &[7; 2000])]);
        for end in [2, 12, whole.len() / 2, whole.len() - 1] {
            assert!(matches!(unpack(&whole[..end]), Err(BundleError::Damaged(_))), "{end}");
        }
        let zeros = io::repeat(0).take(MIN_LIMIT + 1);
        let mut bomb = Vec::new();
        flate2::read::GzEncoder::new(zeros, Compression::fast()).read_to_end(&mut bomb).unwrap();
        assert!(max_bytes(bomb.len()) == MIN_LIMIT, "{}", bomb.len());
        assert!(matches!(unpack(&bomb), Err(BundleError::TooLarge(256))));
        // A report of 300 MiB takes about 30.
        assert!(max_bytes(30 << 20) > 300 << 20);
    }
}
