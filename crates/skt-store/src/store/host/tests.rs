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

    let v2 = [
        meminfo,
        ("proc/self/cgroup", "0::/job/step\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/job/step/memory.max", "max\n"),
        ("sys/fs/cgroup/job/memory.max", "600000\n"),
        ("sys/fs/cgroup/job/memory.current", "150000\n"),
        ("sys/fs/cgroup/job/memory.stat", "anon 3\ninactive_file 50000\n"),
    ];
    let (_root, host) = machine(&v2);
    let limit = "/sys/fs/cgroup/job/memory.max".to_owned();
    assert_eq!(host.available_memory(), (500_000, limit));

    let v1 = [
        meminfo,
        ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n"),
        (
            "proc/self/mountinfo",
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        ),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n"),
        ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2000\n"),
    ];
    let (_root, host) = machine(&v1);
    assert_eq!(host.available_memory().0, 7000);
    let hazards = host.common_hazards(100);
    assert!(
        matches!(hazards[..], [StoreHazard::LowMemory { available_bytes: 7000, .. }]),
        "{hazards:?}"
    );
}

/// In a container the path of a group begins at the host's root, the mount at the container's.
#[test]
fn a_memory_limit_within_a_container_is_seen() {
    let mount = "/docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    let (_root, host) = machine(&[
        ("proc/meminfo", "MemAvailable:    1000 kB\n"),
        ("proc/self/cgroup", "4:memory:/docker/abc/job\n"),
        ("proc/self/mountinfo", &format!("35 31 0:32 {mount}\n")),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n"),
        ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2000\n"),
    ]);
    let limit = "/sys/fs/cgroup/memory/job/memory.limit_in_bytes".to_owned();
    assert_eq!(host.available_memory(), (7000, limit));
}

/// In hybrid mode, systemd mounts version 2 in a separate folder next to version 1.
#[test]
fn a_memory_limit_is_seen_where_its_hierarchy_is_mounted() {
    let (_root, host) = machine(&[
        ("proc/meminfo", "MemAvailable:    1000 kB\n"),
        ("proc/self/cgroup", "0::/job\n"),
        ("proc/self/mountinfo", "41 32 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/unified/job/memory.max", "9000\n"),
        ("sys/fs/cgroup/unified/job/memory.current", "2000\n"),
    ]);
    let limit = "/sys/fs/cgroup/unified/job/memory.max".to_owned();
    assert_eq!(host.available_memory(), (7000, limit));
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
    assert_eq!(host.sysv_hazards(97 * page, 900_000), []);
    let shmall = StoreHazard::LowLimit { limit: "kernel.shmall", value: 100, enough: 101 };
    assert_eq!(host.sysv_hazards(98 * page, 900_000), [shmall]);
    let shmmax =
        StoreHazard::LowLimit { limit: "kernel.shmmax", value: 1_000_000, enough: 1_008_192 };
    assert!(shmmax.to_string().contains("sysctl -w kernel.shmmax=1008192"), "{shmmax}");
    assert_eq!(host.sysv_hazards(page, 1_000_000), [shmmax]);
    let limits = SysvLimits { shmmni: 9, ..host.sysv_limits() };
    assert_eq!(limits.too_low(7, 0, 0), []);
    let shmmni = StoreHazard::LowLimit { limit: "kernel.shmmni", value: 9, enough: 10 };
    assert_eq!(limits.too_low(8, 0, 0), [shmmni]);
}

#[test]
fn private_ipc_namespace_is_detected() {
    let (root, host) = machine(&[("proc/self/ns/x", "")]);
    let link = root.path().join("proc/self/ns/ipc");
    symlink("ipc:[4026531839]", &link).unwrap();
    assert_eq!(host.sysv_hazards(0, 0), []);
    fs::remove_file(&link).unwrap();
    symlink("ipc:[4026532999]", &link).unwrap();
    assert_eq!(host.sysv_hazards(0, 0), [StoreHazard::OwnIpcNamespace]);
}

#[test]
fn a_kernel_that_removes_segments_with_their_processes_is_seen() {
    let at = "proc/sys/kernel/shm_rmid_forced";
    assert_eq!(machine(&[(at, "0\n")]).1.sysv_hazards(0, 0), []);
    let (_root, host) = machine(&[(at, "1\n")]);
    assert_eq!(host.sysv_hazards(0, 0), [StoreHazard::ForcedRemoval]);
    assert!(
        StoreHazard::ForcedRemoval.voids_store() && !StoreHazard::OwnIpcNamespace.voids_store()
    );
}

#[test]
fn a_private_or_small_folder_is_seen() {
    let shm = Path::new("/dev/shm");
    let (root, host) = machine(&[("proc/self/ns/x", ""), ("proc/1/ns/x", "")]);
    symlink("mnt:[1]", root.path().join("proc/self/ns/mnt")).unwrap();
    symlink("mnt:[1]", root.path().join("proc/1/ns/mnt")).unwrap();
    assert_eq!(host.folder_hazards(shm, 0), []);
    let hazards = host.folder_hazards(shm, u64::MAX);
    assert!(
        matches!(hazards[..], [StoreHazard::SmallFolder { wanted_bytes: u64::MAX, .. }]),
        "{hazards:?}"
    );
    fs::remove_file(root.path().join("proc/1/ns/mnt")).unwrap();
    symlink("mnt:[2]", root.path().join("proc/1/ns/mnt")).unwrap();
    assert_eq!(host.folder_hazards(shm, 0), [StoreHazard::PrivateFolder(shm.into())]);
    let nowhere = host.folder_hazards(Path::new("/nowhere/at/all"), 0);
    assert!(matches!(nowhere[..], [StoreHazard::NoFolder { .. }]), "{nowhere:?}");
}

#[test]
fn systemd_that_removes_segments_is_seen() {
    let systemd = ("run/systemd/system/x", "");
    let users = ("etc/passwd", "root:x:0:0::\nann:x:1000:1000::\nbob:x:10001:1::\n");
    let on_by = |host: &Host| match &host.common_hazards(0)[..] {
        [] => None,
        [StoreHazard::RemoveIpc { user: 1000, source_file }] => Some(source_file.clone()),
        other => panic!("{other:?}"),
    };
    let main = ("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
    assert_eq!(on_by(&machine(&[main]).1), None, "no systemd");
    let (root, host) = machine(&[systemd, main]);
    assert_eq!(on_by(&host), Some("systemd's default".into()));
    assert_eq!(Host::under(root.path(), 999).common_hazards(0), [], "a user of the system");
    let off = ("etc/systemd/logind.conf", "[Login]\nRemoveIPC = no\n");
    assert_eq!(on_by(&machine(&[systemd, off]).1), None);
    let drop_in = ("usr/lib/systemd/logind.conf.d/50-x.conf", "RemoveIPC=yes\n");
    let from = Some("/usr/lib/systemd/logind.conf.d/50-x.conf".to_owned());
    assert_eq!(on_by(&machine(&[systemd, off, drop_in]).1), from);
    let replaced = ("etc/systemd/logind.conf.d/50-x.conf", "\n");
    assert_eq!(on_by(&machine(&[systemd, off, drop_in, replaced]).1), None);
    let linger = |name| machine(&[systemd, main, users, (name, "")]);
    assert_eq!(on_by(&linger("var/lib/systemd/linger/ann").1), None);
    assert!(on_by(&linger("var/lib/systemd/linger/bob").1).is_some());
}
