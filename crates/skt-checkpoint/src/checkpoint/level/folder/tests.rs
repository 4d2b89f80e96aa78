use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use tempfile::TempDir;

use super::super::SpacedRanks;
use super::*;

const SLOT_BYTES: u64 = 1 << 20;
const GENERATION: Generation =
    Generation { start: StartId { number: 0x18f2c, nonce: 0x77 }, epoch: 12 };

fn folder() -> (TempDir, ImageFolder) {
    let above = tempfile::tempdir().unwrap();
    let folder = ImageFolder::open(above.path(), "run", 0, None).unwrap();
    (above, folder)
}

fn slot(rank: usize) -> Slot {
    Slot { rank, ranks: "4-7".parse().unwrap(), bytes: SLOT_BYTES }
}

fn file() -> FileId {
    FileId { generation: GENERATION, ranks: slot(4).ranks }
}

fn path(folder: &ImageFolder) -> PathBuf {
    folder.path.join("t0.r4-7.a18f2c.77.e12")
}

#[test]
fn ranks_write_to_one_file_and_each_to_its_slot() {
    let (_above, folder) = folder();
    let mut slots: Vec<_> =
        (4..8).map(|rank| folder.create(GENERATION, &slot(rank)).unwrap()).collect();
    for (i, slot) in slots.iter_mut().enumerate() {
        slot.write_at(0, &vec![i as u8 + 1; SLOT_BYTES as usize]).unwrap();
        slot.sync().unwrap();
    }
    assert_eq!(folder.list().unwrap(), [file()]);
    let bytes = fs::read(path(&folder)).unwrap();
    assert_eq!(bytes.len() as u64, 4 * SLOT_BYTES);
    for (i, written) in bytes.chunks(SLOT_BYTES as usize).enumerate() {
        assert!(written.iter().all(|&byte| byte == i as u8 + 1));
        let mut slot = folder.open(file(), 4 + i).unwrap();
        let mut byte = [0];
        slot.read_at(SLOT_BYTES - 1, &mut byte).unwrap();
        assert_eq!((slot.bytes().unwrap(), byte), (SLOT_BYTES, [i as u8 + 1]));
        assert!(slot.read_at(SLOT_BYTES, &mut byte).is_err(), "it ends there");
    }
    let meta = fs::metadata(path(&folder)).unwrap();
    assert_eq!(meta.mode() & 0o777, 0o600);
    // One rank discards its image; the others keep theirs.
    slots[1].discard().unwrap();
    assert!(fs::metadata(path(&folder)).unwrap().blocks() < meta.blocks());
    let bytes = fs::read(path(&folder)).unwrap();
    let first = |slot: usize| bytes[slot * SLOT_BYTES as usize..][..SLOT_BYTES as usize].to_vec();
    assert!(first(1).iter().all(|&byte| byte == 0));
    assert!([0, 2, 3].iter().all(|&i| first(i).iter().all(|&byte| byte == i as u8 + 1)));
}

/// Aligned whole blocks bypass the page cache, and everything before, between and after them goes
/// through it. All of it must be there afterwards.
#[test]
fn direct_and_cached_writes_store_the_same_bytes() {
    const BLOCK: usize = 4096;
    let (_above, folder) = folder();
    let mut pages = vec![0u8; SLOT_BYTES as usize + BLOCK];
    let first = pages.as_ptr().align_offset(BLOCK);
    pages.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 251) as u8);
    let mut expected = vec![0; SLOT_BYTES as usize];
    let mut slot = folder.create(GENERATION, &slot(5)).unwrap();
    // Offset in the slot, offset in memory from a page on, and length.
    for (place, from, len) in [
        (0, 0, 8 * BLOCK),
        (8 * BLOCK, BLOCK, 3 * BLOCK + 100),
        (12 * BLOCK, 5, 2 * BLOCK),
        (20 * BLOCK + 8, BLOCK + 8, BLOCK),
        (2 * BLOCK, 9 * BLOCK, BLOCK),
        (30 * BLOCK, 40 * BLOCK, 100 * BLOCK),
        (200, 77, 60),
    ] {
        let bytes = &pages[first + from..][..len];
        slot.write_at(place as u64, bytes).unwrap();
        expected[place..place + len].copy_from_slice(bytes);
    }
    slot.sync().unwrap();
    let mut read = vec![0; SLOT_BYTES as usize];
    folder.open(file(), 5).unwrap().read_at(0, &mut read).unwrap();
    assert!(read == expected, "as it was written");
    assert!(fs::read(path(&folder)).unwrap()[SLOT_BYTES as usize..][..read.len()] == expected);
}

fn cached_bytes(file: &File) -> u64 {
    let len = NonZeroUsize::new(file.metadata().unwrap().len() as usize).unwrap();
    let mut pages = vec![0u8; len.get().div_ceil(4096)];
    // SAFETY: nothing reads from the mapping, and `pages` has a byte for each of its pages.
    unsafe {
        let at = mmap(None, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, file, 0).unwrap();
        assert_eq!(libc::mincore(at.as_ptr(), len.get(), pages.as_mut_ptr()), 0);
        munmap(at, len.get()).unwrap();
    }
    pages.iter().filter(|&&page| page & 1 == 1).count() as u64 * 4096
}

/// With a file system that allows `O_DIRECT`, no page of the body is in memory, except what is not
/// a whole block.
#[test]
fn a_body_does_not_fill_the_page_cache() {
    let (above, folder) = folder();
    let probe = above.path().join("probe");
    let direct = OFlag::O_DIRECT | OFlag::O_CREAT | OFlag::O_WRONLY;
    if nix::fcntl::open(&probe, direct, Mode::S_IRUSR).is_err() {
        println!("skipped: no O_DIRECT in {}", above.path().display());
        return;
    }
    let mut slot = folder.create(GENERATION, &slot(4)).unwrap();
    let bytes = vec![1u8; SLOT_BYTES as usize + 4096];
    let first = bytes.as_ptr().align_offset(4096);
    slot.write_at(0, &bytes[first..][..SLOT_BYTES as usize - 100]).unwrap();
    let cached = cached_bytes(&File::open(path(&folder)).unwrap());
    assert!(cached < SLOT_BYTES / 8, "{cached} bytes in the page cache");
}

#[test]
#[should_panic(expected = "within the slot")]
fn a_rank_does_not_write_to_the_slot_of_another() {
    let (_above, folder) = folder();
    let mut slot = folder.create(GENERATION, &slot(5)).unwrap();
    slot.write_at(SLOT_BYTES - 1, &[1, 2]).unwrap();
}

#[test]
fn a_file_that_another_rank_removes_is_written_to_its_end() {
    let (_above, folder) = folder();
    let mut slot = folder.create(GENERATION, &slot(6)).unwrap();
    (0..2).for_each(|_| folder.remove(file()).unwrap());
    slot.write_at(0, &[1]).unwrap();
    slot.sync().unwrap();
    assert_eq!(folder.list().unwrap(), []);
    assert!(folder.open(file(), 6).is_err_and(|error| error.kind() == ErrorKind::NotFound));
}

/// If a different file exists where one would be created, it is not written to.
#[test]
fn files_planted_by_others_are_refused_and_kept() {
    let (above, folder) = folder();
    let victim = above.path().join("victim");
    let path = path(&folder);
    let plants: [(&str, &dyn Fn()); 6] = [
        ("a link", &|| symlink(&victim, &path).unwrap()),
        ("another name of a file", &|| fs::hard_link(&victim, &path).unwrap()),
        ("a folder", &|| fs::create_dir(&path).unwrap()),
        ("one that others may write to", &|| {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("one of another size", &|| {
            fs::copy(&victim, &path).unwrap();
        }),
        ("one of another user", &|| {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&path, Some(65534), None).unwrap();
        }),
    ];
    for (what, plant) in plants {
        if what == "one of another user" && !Uid::effective().is_root() {
            continue;
        }
        fs::write(&victim, "precious").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        plant();
        let before = fs::symlink_metadata(&path).unwrap();
        let refused = folder.create(GENERATION, &slot(4)).err().expect(what).to_string();
        assert!(refused.contains(&path.display().to_string()), "{what}: {refused}");
        let after = fs::symlink_metadata(&path).unwrap();
        assert_eq!((before.ino(), before.len()), (after.ino(), after.len()), "{what}");
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "{what}");
        if after.is_dir() {
            fs::remove_dir(&path).unwrap()
        } else {
            fs::remove_file(&path).unwrap()
        }
    }
}

/// The level of such a folder fails, with the reason.
#[test]
fn invalid_or_shared_folder_is_a_failing_disk() {
    let above = tempfile::tempdir().unwrap();
    let (run, other) = (ImageFolder::path_of(above.path(), "run"), above.path().join("other"));
    fs::create_dir(&other).unwrap();
    let made: [(&str, &dyn Fn()); 2] = [
        ("is a link", &|| symlink(&other, &run).unwrap()),
        ("can be used by others", &|| {
            fs::create_dir(&run).unwrap();
            fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        }),
    ];
    for (what, make) in made {
        make();
        let refused = ImageFolder::open(above.path(), "run", 0, None).expect_err(what).to_string();
        assert!(
            refused.contains(&run.display().to_string()) && refused.contains(what),
            "{refused}"
        );
        let is_folder = fs::symlink_metadata(&run).unwrap().is_dir();
        if is_folder { fs::remove_dir(&run).unwrap() } else { fs::remove_file(&run).unwrap() }
    }
    let file = other.join("file");
    fs::write(&file, "").unwrap();
    for parent in [above.path().join("nowhere"), file.clone(), file.join("below")] {
        let failed = ImageFolder::open(&parent, "run", 0, None).expect_err("it is no folder");
        assert!(failed.to_string().contains(&parent.display().to_string()), "{failed}");
    }
    let folder = ImageFolder::open(&other, "run", 0, None).unwrap();
    symlink(&file, path(&folder)).unwrap();
    let refused = folder.open(self::file(), 4).err().expect("a link").to_string();
    assert!(refused.contains("is a link"), "{refused}");
}

#[test]
fn name_taken_by_another_user_is_refused() {
    if !Uid::effective().is_root() {
        println!("skipped: only root can make folders of another user");
        return;
    }
    let above = tempfile::tempdir().unwrap();
    let victim = above.path().join("victim");
    fs::create_dir(&victim).unwrap();
    let run = ImageFolder::path_of(above.path(), "run");
    let plants: [&dyn Fn(); 3] =
        [&|| fs::create_dir(&run).unwrap(), &|| fs::write(&run, "").unwrap(), &|| {
            symlink(&victim, &run).unwrap()
        }];
    for plant in plants {
        plant();
        lchown(&run, Some(65534), None).unwrap();
        let refused = ImageFolder::open(above.path(), "run", 0, None).unwrap_err().to_string();
        assert_eq!(refused, format!("{} is another user's", run.display()));
        assert!(stored_images(above.path()).unwrap().is_empty());
        assert!(tests_with_images(above.path(), "run").unwrap().is_empty());
        close_folder(above.path(), "run").unwrap();
        let is_folder = fs::symlink_metadata(&run).unwrap().is_dir();
        if is_folder { fs::remove_dir(&run).unwrap() } else { fs::remove_file(&run).unwrap() }
    }
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

#[test]
fn a_file_of_one_rank_is_one_slot() {
    let (_above, folder) = folder();
    fs::write(folder.path.join("t0.r3.a1.2.e5"), [7; 5000]).unwrap();
    let [file] = folder.list().unwrap()[..] else { panic!("one file") };
    assert_eq!(file.ranks, SpacedRanks::alone(3));
    let mut bytes = [0; 5000];
    let mut slot = folder.open(file, 3).unwrap();
    slot.read_at(0, &mut bytes).unwrap();
    assert_eq!((slot.bytes().unwrap(), bytes), (5000, [7; 5000]));
}

#[test]
fn images_are_counted_by_their_slots() {
    let (above, folder) = folder();
    folder.create(GENERATION, &slot(5)).unwrap();
    let alone = Slot { ranks: SpacedRanks::alone(2), rank: 2, ..slot(4) };
    folder.create(GENERATION, &alone).unwrap();
    fs::write(folder.path.join("t0.r4-7.note"), "").unwrap();
    let [images] = &stored_images(above.path()).unwrap()[..] else { panic!("one generation") };
    assert_eq!((images.ranks, images.bytes), (5, 5 * SLOT_BYTES));
    let remove = |test: usize| {
        remove_images_of(above.path(), "run", Remover::User, |of| of == test).unwrap()
    };
    assert_eq!(remove(1), (0, 0));
    assert_eq!(remove(0), (5, 5 * SLOT_BYTES));
    assert!(folder.path.join("t0.r4-7.note").exists(), "it is no image");
}
