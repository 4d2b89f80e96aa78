//! Checks whether a node that answered can take part: version, program, store, memory.

use super::probe::{Answer, program_checksum};
use super::program::Program;
use skt_store::segments::node_store::NodeStore;
use skt_terms::units::bytes_unlike;

/// Why the node cannot run the user's `program`; `None` if it can.
pub(crate) fn program_fault(answer: &Answer, program: &Program) -> Option<String> {
    let file = program.file.display();
    match answer.program_of_user {
        None => Some(format!("has no {file} that it can start")),
        Some(checksum) if checksum != program.checksum => {
            Some(format!("has another {file} than the launching machine: copy it there"))
        }
        Some(_) => None,
    }
}

/// Why the node cannot take part with `ranks` ranks; `None` if it can. `need_bytes` is the size of
/// a rank's segments on the nodes that have some, `planned_bytes` their size by the configuration.
pub(crate) fn node_fault(
    answer: &Answer,
    ranks: u64,
    need_bytes: u64,
    planned_bytes: u64,
) -> Option<String> {
    if answer.version != env!("CARGO_PKG_VERSION") {
        let ours = env!("CARGO_PKG_VERSION");
        return Some(format!("has version {} of skt-hpl, not {ours}", answer.version));
    }
    if answer.program != program_checksum() {
        let why = "has another build of skt-hpl of the same version: copy this one's file there";
        return Some(why.to_owned());
    }
    if let Some(why) = &answer.no_store {
        return Some(format!("has no shared memory for us: {why}"));
    }
    if answer.immortal > 0 {
        return Some(format!("{} rank(s) of an earlier start cannot be ended", answer.immortal));
    }
    let store = NodeStore {
        run_bytes: answer.run_bytes,
        room: answer.store_room.clone(),
        sysv: answer.sysv,
        void: answer.void_store.clone(),
        ..NodeStore::default()
    };
    if let Some(why) = store.lack(ranks, planned_bytes.max(need_bytes)) {
        return Some(why);
    }
    let need_bytes = need_bytes.saturating_mul(ranks);
    let have = answer.available_bytes.saturating_add(answer.run_bytes);
    // The start waits for memory that ending processes give back.
    (answer.ending == 0 && have < need_bytes).then(|| {
        let (have, need) = (bytes_unlike(have, need_bytes), bytes_unlike(need_bytes, have));
        format!("{have} of {need} of memory are available")
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::probe::tests::answer;
    use skt_store::segments::node_store::StoreRoom;
    use skt_store::store::SysvLimits;

    #[test]
    fn node_needs_an_identical_program_file() {
        let program = Program { file: "/home/me/heat".into(), checksum: 7 };
        let fault = |program_of_user| {
            let why = program_fault(&Answer { program_of_user, ..answer() }, &program);
            why.unwrap_or_default()
        };
        assert_eq!(fault(None), "has no /home/me/heat that it can start");
        assert!(fault(Some(8)).starts_with("has another /home/me/heat than"));
        assert_eq!(fault(Some(7)), "");
    }

    #[test]
    fn store_needs_room_for_the_data_of_the_ranks() {
        let mebibytes = |count: u64| count << 20;
        let fault = |free: Option<u64>, run_bytes| {
            let room = |free| StoreRoom {
                folder: "/dev/shm/of me".into(),
                free_bytes: mebibytes(free),
                tmpfs: Some((mebibytes(500), "/dev/shm".into())),
            };
            let (store_room, run_bytes) = (free.map(room), mebibytes(run_bytes));
            node_fault(&Answer { store_room, run_bytes, ..answer() }, 2, 0, mebibytes(100))
        };
        assert_eq!(
            fault(Some(190), 0).unwrap(),
            "its store /dev/shm/of me has 190.0 MiB free, and the segments of 2 ranks need 200.0 \
             MiB: enlarge it (as root: mount -o remount,size=513M /dev/shm), or take another \
             store (--store sysv)"
        );
        for (free, held) in [(Some(200), 0), (Some(0), 200), (None, 0)] {
            assert_eq!(fault(free, held), None);
        }
    }

    #[test]
    fn volatile_store_is_a_fault_for_protected_runs_only() {
        let void_store = Some("forced".to_owned());
        let fault =
            |bytes| node_fault(&Answer { void_store: void_store.clone(), ..answer() }, 2, 0, bytes);
        assert_eq!(fault(0), None);
        assert_eq!(fault(1).as_deref(), Some("its store keeps nothing: forced"));
    }

    #[test]
    fn reclaimable_memory_is_no_fault() {
        let fault =
            |ending| node_fault(&Answer { available_bytes: 199, ending, ..answer() }, 2, 100, 100);
        let why = fault(0).unwrap();
        assert_eq!((why.as_str(), fault(1)), ("199 B of 200 B of memory are available", None));
    }

    #[test]
    fn system_v_limits_are_checked_before_the_start() {
        let limits = SysvLimits {
            shmmax_bytes: 100 * 4096,
            shmall_pages: 1000,
            shmmni: 4096,
            used_pages: 0,
            page_bytes: NonZeroU64::new(4096).unwrap(),
            segments: 0,
        };
        let low = |limits| node_fault(&Answer { sysv: Some(limits), ..answer() }, 2, 0, 98 * 4096);
        assert_eq!((low(limits), low(SysvLimits { used_pages: 800, ..limits })), (None, None));
        for (limits, said) in [
            (SysvLimits { shmmax_bytes: 99 * 4096, ..limits }, "kernel.shmmax = 405504, 409600 is"),
            (SysvLimits { used_pages: 801, ..limits }, "kernel.shmall = 1000, 1001 is"),
            (SysvLimits { segments: 4096 - 5, ..limits }, "kernel.shmmni = 4096, 4097 is"),
        ] {
            let why = low(limits).unwrap();
            assert!(why.contains(&format!("do not suffice: {said} needed")), "{why}");
        }
        // Each rank takes 7 of these pages, and 2 more.
        let large_pages = SysvLimits { page_bytes: NonZeroU64::new(65_536).unwrap(), ..limits };
        assert_eq!(low(SysvLimits { used_pages: 982, ..large_pages }), None);
        assert!(low(SysvLimits { used_pages: 983, ..large_pages }).is_some());
    }
}
