use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::decide::{Refusal, StartPlan};
use super::super::error::Result;
use super::disk::{FileId, Slot};
use super::probe::Seen;
use super::ranks::SpacedRanks;
use super::{Level, Reach};
use skt_comm::Comm;
use skt_comm::collect::all_gather_json;

/// Images that a level needs room for besides those that it keeps: one that is being written, and
/// one that is sealed here and not known to be sealed everywhere.
const SPARE_IMAGES: usize = 2;

/// The space that a process needs on a level before anything is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Request {
    rank: usize,
    node: String,
    /// The rank's host, as messages name it.
    host: String,
    image_bytes: u64,
    /// Images of the rank that the process sees already.
    images: usize,
    free_bytes: u64,
}

/// For each level, the slot that this rank writes to, and a [`Refusal::NoRoom`] if the level has no
/// room for the images of all ranks; the refusals are the same on all processes. `seen` has what
/// this process has seen of the levels, and `plan` what stays there. Collective.
pub(crate) fn slots_with_room(
    comm: &Comm,
    levels: &[Level],
    seen: &[Seen],
    (rank, node, host): (usize, &str, &str),
    image_bytes: u64,
    align_bytes: u64,
    plan: &StartPlan,
) -> Result<(Vec<Slot>, Vec<Option<Refusal>>)> {
    let (mut slots, mut lacking) = (Vec::new(), Vec::new());
    let levels = levels.iter().zip(&plan.restorable);
    for ((level, restorable), &Seen { ref listed, free_bytes, .. }) in levels.zip(seen) {
        let is_image = |file: &&FileId| {
            file.ranks.contains(rank)
                && plan.note.as_ref().is_none_or(|note| note.name != file.generation)
        };
        let images = listed.iter().filter(is_image).count();
        let keep = match restorable.chosen {
            Some(_) => restorable.kept(level.keep).len().max(level.keep),
            None => level.keep,
        };
        let (node, host) = (node.to_owned(), host.to_owned());
        let request = Request { rank, node, host, image_bytes, images, free_bytes };
        let all = all_gather_json(comm, &request)?;
        let of_all = slots_of_all(level.reach, &all, align_bytes);
        lacking.push(too_little(level, keep, &all, &of_all));
        slots.push(of_all[comm.rank()]);
    }
    Ok((slots, lacking))
}

/// The slot of each process. On a file system that all see, the ranks of a node share a file:
/// otherwise as many files as ranks would be created and removed there at once. On a disk of the
/// node each rank has one file, because the kernel lets only one process at a time write to a file.
fn slots_of_all(reach: Reach, all: &[Request], align_bytes: u64) -> Vec<Slot> {
    let mut nodes: BTreeMap<&str, (Vec<usize>, u64)> = BTreeMap::new();
    for Request { rank, node, image_bytes, .. } in all {
        let (ranks, max_bytes) = nodes.entry(node).or_default();
        ranks.push(*rank);
        *max_bytes = (*max_bytes).max(*image_bytes);
    }
    let mut slots = BTreeMap::new();
    for (ranks, max_bytes) in nodes.values_mut() {
        ranks.sort_unstable();
        let files = match reach {
            Reach::Local => ranks.iter().map(|&rank| SpacedRanks::alone(rank)).collect(),
            Reach::Global => SpacedRanks::cut(ranks),
        };
        let bytes = max_bytes.next_multiple_of(align_bytes);
        for ranks in files {
            slots.extend(ranks.iter().map(|rank| (rank, Slot { rank, ranks, bytes })));
        }
    }
    all.iter().map(|request| slots[&request.rank]).collect()
}

/// The refusal of a level without room for the images of all ranks that share it, or `None`.
fn too_little(level: &Level, keep: usize, all: &[Request], slots: &[Slot]) -> Option<Refusal> {
    let images = keep + SPARE_IMAGES;
    let shared = |request: &Request| (level.reach == Reach::Local).then(|| request.node.clone());
    let mut need_bytes: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for (request, slot) in all.iter().zip(slots) {
        let missing = images.saturating_sub(request.images) as u64;
        *need_bytes.entry(shared(request)).or_default() += missing * slot.bytes;
    }
    for (process, request) in all.iter().enumerate() {
        let (need_bytes, free_bytes) = (need_bytes[&shared(request)], request.free_bytes);
        if need_bytes > free_bytes {
            let (level, host) = (level.name.clone(), request.host.clone());
            return Some(Refusal::NoRoom { process, host, level, images, need_bytes, free_bytes });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::super::config::Config;
    use super::*;
    use skt_comm::pages::system_page_bytes;
    use skt_store::codec::CodecKind;

    /// The request of a rank on each of these nodes, with an image of this many KiB.
    fn requests(nodes: &[(&str, u64)]) -> Vec<Request> {
        let request = |(rank, &(node, kib)): (usize, &(&str, u64))| Request {
            rank,
            node: node.to_owned(),
            host: node.to_owned(),
            image_bytes: kib << 10,
            images: 0,
            free_bytes: u64::MAX,
        };
        nodes.iter().enumerate().map(request).collect()
    }

    fn names(reach: Reach, nodes: &[(&str, u64)]) -> Vec<(String, u64)> {
        let slots = slots_of_all(reach, &requests(nodes), 1 << 20);
        assert!(slots.iter().enumerate().all(|(rank, slot)| slot.rank == rank));
        slots.iter().map(|slot| (slot.ranks.to_string(), slot.bytes >> 20)).collect()
    }

    /// Pages have 4 to 64 KiB, and whatever writes to a file over a network writes whole pages.
    #[test]
    fn slots_share_no_page_of_a_page_cache() {
        let page_bytes = (system_page_bytes() as u64).max(64 << 10);
        let align_bytes = Config::new("pages", CodecKind::Xor).image_align_bytes;
        for kib in [1, 63, 65, 1023, 1025, 70_001] {
            let all = requests(&[("a", kib), ("a", 1), ("b", kib)]);
            for reach in [Reach::Local, Reach::Global] {
                let slots = slots_of_all(reach, &all, align_bytes);
                assert!(
                    slots.iter().all(|slot| slot.bytes.is_multiple_of(page_bytes)),
                    "{slots:?}"
                );
            }
        }
    }

    #[test]
    fn ranks_of_a_node_share_a_file_with_slots_for_the_largest() {
        let expected = |all: [(&str, u64); 4]| all.map(|(ranks, mib)| (ranks.to_owned(), mib));
        let blocks = [("a", 1025), ("a", 1), ("b", 1024), ("b", 1)];
        let found = names(Reach::Global, &blocks);
        assert_eq!(found, expected([("0-1", 2), ("0-1", 2), ("2-3", 1), ("2-3", 1)]));
        let turns = [("a", 1), ("b", 1), ("a", 1), ("b", 2000)];
        let found = names(Reach::Global, &turns);
        assert_eq!(found, expected([("0-2by2", 1), ("1-3by2", 2), ("0-2by2", 1), ("1-3by2", 2)]));
        let found = names(Reach::Local, &blocks);
        assert_eq!(found, expected([("0", 2), ("1", 2), ("2", 1), ("3", 1)]));
    }
}
