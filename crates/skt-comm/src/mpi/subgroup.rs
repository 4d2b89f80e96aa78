//! Groups of some of a communicator's ranks, by messages alone.
//!
//! MPI creates a communicator in several rounds. If a rank dies during these, some ranks have the
//! new communicator and some do not: the latter could not revoke it for ranks that wait on it. So
//! if ranks survive losses there is one communicator, and a group within it is a list of its ranks
//! and a *context*, a number in the tags of its messages that distinguishes them from those of
//! other groups. Whatever fails, there is one communicator to revoke.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::{Comm, MpiComm, Result, Tag, Transport};
use crate::collect;

/// Bits of a tag below those of the context: the tags of a group are smaller.
const TAG_BITS: u32 = 15;
/// Contexts are below this number: Open MPI's tags have 31 bits.
const MAX_CONTEXTS: c_int = 1 << (31 - TAG_BITS);

/// The least context that no group of this process has; 0 is that of all ranks.
static NEXT: AtomicI32 = AtomicI32::new(1);

/// Starts with a new communicator: no group of it has a context.
pub(super) fn begin() {
    NEXT.store(1, Ordering::Relaxed);
}

pub(super) struct Subgroup {
    /// The members' numbers in the communicator, in the order of the group.
    ranks: Vec<c_int>,
    context: c_int,
}

impl Subgroup {
    pub(crate) fn peer(&self, rank: usize) -> c_int {
        self.ranks[rank]
    }

    pub(crate) fn tag(&self, tag: Tag) -> c_int {
        assert!(u32::from(tag) < 1 << TAG_BITS, "tag {tag}");
        self.context << TAG_BITS | c_int::from(tag)
    }
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct SplitArgs {
    /// `u64::MAX`: none.
    color: u64,
    key: u64,
    /// The first context that none of its groups has.
    next: u64,
}

/// [`Transport::split`] without a new communicator, at most 65535 times.
pub(super) fn split(comm: &MpiComm, color: Option<u32>, key: u32) -> Result<Option<MpiComm>> {
    let word = |color: Option<u32>| color.map_or(u64::MAX, u64::from);
    let next = NEXT.load(Ordering::Relaxed) as u64;
    let mine = SplitArgs { color: word(color), key: u64::from(key), next };
    let all = collect::all_gather(&Comm::new(comm.view()), &mine)?;
    // No group with any of these ranks has this context.
    let context = all.iter().map(|args| args.next).max().expect("a rank") as c_int;
    assert!(context < MAX_CONTEXTS, "{context} groups have been made");
    NEXT.store(context + 1, Ordering::Relaxed);
    if color.is_none() {
        return Ok(None);
    }
    let mut members: Vec<usize> =
        (0..all.len()).filter(|&rank| all[rank].color == word(color)).collect();
    members.sort_by_key(|&rank| (all[rank].key, rank));
    let rank = members.iter().position(|&rank| rank == comm.rank()).expect("its own colour");
    let ranks: Vec<c_int> = members.into_iter().map(|rank| comm.peer(rank)).collect();
    let (size, subgroup) = (ranks.len(), Some(Arc::new(Subgroup { ranks, context })));
    let _not_sync: PhantomData<Cell<()>> = PhantomData;
    Ok(Some(MpiComm { raw: comm.raw, rank, size, owned: false, subgroup, _not_sync }))
}

/// A barrier by a reduction: no rank has its result before all ranks have entered.
pub(super) fn barrier(comm: &Comm) -> Result<()> {
    collect::all_reduce(comm, &mut [0u8], u8::max)
}
