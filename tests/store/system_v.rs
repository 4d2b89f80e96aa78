//! System V segments that tests make, find and change with plain system calls.

use std::ptr;

/// The lines of the system's table of segments.
pub fn table() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/sysvipc/shm");
    table.unwrap().lines().skip(1).map(str::to_owned).collect()
}

/// Key, number, mode in octal digits and bytes of the only segment.
pub fn only() -> (i32, i32, String, usize) {
    let table = table();
    let [row] = &table[..] else { panic!("{table:?}") };
    let fields: Vec<&str> = row.split_whitespace().collect();
    let number = |at: usize| fields[at].parse().unwrap();
    (number(0), number(1), fields[2].to_owned(), fields[3].parse().unwrap())
}

/// Makes a segment in a process of `user` that has ended, who gives it to this user. Returns its
/// number.
pub fn plant(user: u32, key: i32, bytes: usize, mode: u16, content: &[u8]) -> i32 {
    let owner = nix::unistd::geteuid().as_raw();
    // SAFETY: system calls; the segment is mapped where the system chooses and written to within
    // its size. The child ends at once and calls nothing that is not safe after a fork.
    unsafe {
        match libc::fork() {
            0 => {
                libc::syscall(libc::SYS_setresuid, user, user, user);
                let id = libc::shmget(key, bytes, libc::IPC_CREAT | libc::IPC_EXCL | 0o600);
                let base: *mut u8 = libc::shmat(id, ptr::null(), 0).cast();
                if base as isize == -1 {
                    libc::_exit(1);
                }
                ptr::copy_nonoverlapping(content.as_ptr(), base, content.len());
                libc::shmdt(base.cast());
                let mut stat: libc::shmid_ds = std::mem::zeroed();
                libc::shmctl(id, libc::IPC_STAT, &raw mut stat);
                (stat.shm_perm.uid, stat.shm_perm.mode) = (owner, mode);
                libc::_exit(libc::shmctl(id, libc::IPC_SET, &raw mut stat))
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert_eq!(status, 0);
                libc::shmget(key, 0, 0)
            }
        }
    }
}

/// Calls `act` with the bytes of a segment.
pub fn with_bytes<T>(shmid: i32, bytes: usize, act: impl FnOnce(&mut [u8]) -> T) -> T {
    // SAFETY: the segment is mapped, used within its size, then detached.
    unsafe {
        let base: *mut u8 = libc::shmat(shmid, ptr::null(), 0).cast();
        assert_ne!(base as isize, -1);
        let done = act(std::slice::from_raw_parts_mut(base, bytes));
        libc::shmdt(base.cast());
        done
    }
}

pub fn set_mode(shmid: i32, mode: u16) {
    // SAFETY: the system fills in and reads plain numbers.
    unsafe {
        let mut stat: libc::shmid_ds = std::mem::zeroed();
        assert_eq!(libc::shmctl(shmid, libc::IPC_STAT, &raw mut stat), 0);
        stat.shm_perm.mode = mode;
        assert_eq!(libc::shmctl(shmid, libc::IPC_SET, &raw mut stat), 0);
    }
}

pub fn remove(shmid: i32) {
    // SAFETY: a system call that uses no memory of ours.
    assert_eq!(unsafe { libc::shmctl(shmid, libc::IPC_RMID, ptr::null_mut()) }, 0);
}
