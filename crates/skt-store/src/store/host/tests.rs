use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A machine that consists of these files.
fn machine(files: &[(&str, &str)]) -> (TempDir, Host) {
    let root = TempDir::new().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let host = Host::under(root.path(), 1000);
    (root, host)
}

#[test]
fn memory_is_the_least_of_machine_and_control_groups() {
    let meminfo = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    1000 kB\n");
    let (_root, host) = machine(&[meminfo]);
    assert_eq!(host.available_memory().0, 1_024_000);
    let (_root, host) = machine(&[
        meminfo,
        ("proc/self/cgroup", "0::/job\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/job/memory.max", "600000\n"),
        ("sys/fs/cgroup/job/memory.current", "100000\n"),
    ]);
    let limit = "/sys/fs/cgroup/job/memory.max".to_owned();
    assert_eq!(host.available_memory(), (500_000, limit));
}

#[test]
fn low_sysv_limits_are_named() {
    let page = system_page_bytes() as u64;
    let head = "       key      shmid perms       size\n";
    let table = format!("{head}  0  1  600  {}  x\n  0  2  600  1 x\n", 2 * page);
    let (_root, host) = machine(&[
        ("proc/sys/kernel/shmmax", "1000000\n"),
        ("proc/sys/kernel/shmall", "100\n"),
        ("proc/sysvipc/shm", &table),
    ]);
    let limits = SysvLimits { shmmni: 9, ..host.sysv_limits() };
    for (segments, pages, bytes, want) in [
        (7, 97, 1_000_000, None),
        (0, 0, 1_000_001, Some(("kernel.shmmax", 1_000_000, 1_000_001))),
        (0, 98, 0, Some(("kernel.shmall", 100, 101))),
        (8, 0, 0, Some(("kernel.shmmni", 9, 10))),
    ] {
        assert_eq!(limits.too_low(segments, pages, bytes), want);
    }
}

#[test]
fn private_ipc_namespace_is_detected() {
    let (root, host) = machine(&[("proc/self/ns/x", "")]);
    let link = root.path().join("proc/self/ns/ipc");
    symlink("ipc:[4026531839]", &link).unwrap();
    assert_eq!(host.sysv_hazards(), []);
    fs::remove_file(&link).unwrap();
    symlink("ipc:[4026532999]", &link).unwrap();
    assert_eq!(host.sysv_hazards(), [StoreHazard::warning(OWN_IPC_NAMESPACE)]);
}

#[test]
fn a_kernel_that_removes_segments_with_their_processes_is_seen() {
    let at = "proc/sys/kernel/shm_rmid_forced";
    assert_eq!(machine(&[(at, "0\n")]).1.sysv_hazards(), []);
    let (_root, host) = machine(&[(at, "1\n")]);
    let forced = StoreHazard { words: FORCED_REMOVAL.to_owned(), voids_store: true };
    assert_eq!(host.sysv_hazards(), [forced]);
}

#[test]
fn a_private_or_missing_folder_is_seen() {
    let shm = Path::new("/dev/shm");
    let (root, host) = machine(&[("proc/self/ns/x", ""), ("proc/1/ns/x", "")]);
    symlink("mnt:[1]", root.path().join("proc/self/ns/mnt")).unwrap();
    symlink("mnt:[1]", root.path().join("proc/1/ns/mnt")).unwrap();
    assert_eq!(host.folder_hazards(shm), []);
    fs::remove_file(root.path().join("proc/1/ns/mnt")).unwrap();
    symlink("mnt:[2]", root.path().join("proc/1/ns/mnt")).unwrap();
    let [private] = &host.folder_hazards(shm)[..] else { panic!("one") };
    assert!(private.words.starts_with("/dev/shm is another one"), "{private:?}");
    let [nowhere] = &host.folder_hazards(Path::new("/nowhere/at/all"))[..] else { panic!("one") };
    assert!(nowhere.words.starts_with("/nowhere/at/all: "), "{nowhere:?}");
}

#[test]
fn systemd_that_removes_segments_is_seen() {
    let systemd = ("run/systemd/system/x", "");
    let users = ("etc/passwd", "root:x:0:0::\nann:x:1000:1000::\nbob:x:10001:1::\n");
    let comment = ("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
    let off = ("etc/systemd/logind.conf", "[Login]\nRemoveIPC = no\n");
    let on_again = ("etc/systemd/logind.conf.d/50-x.conf", "RemoveIPC=yes\n");
    let off_again = ("etc/systemd/logind.conf.d/60-x.conf", "RemoveIPC=no\n");
    for (files, want) in [
        (&[comment][..], false),
        (&[systemd, comment], true),
        (&[systemd, off], false),
        (&[systemd, off, on_again], true),
        (&[systemd, off, on_again, off_again], false),
        (&[systemd, users, ("var/lib/systemd/linger/ann", "")], false),
        (&[systemd, users, ("var/lib/systemd/linger/bob", "")], true),
    ] {
        let (root, host) = machine(files);
        let found = host.sysv_hazards();
        assert_eq!(found.len(), usize::from(want), "{files:?}");
        let names_user = |it: &StoreHazard| it.words.contains("enable-linger 1000`");
        assert!(found.iter().all(names_user), "{found:?}");
        assert_eq!(Host::under(root.path(), 999).sysv_hazards(), [], "a user of the system");
    }
}
