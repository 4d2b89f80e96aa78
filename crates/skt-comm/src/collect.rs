//! Collective operations built from messages, the same with every [`Comm`]. Each fails when a rank
//! cannot be reached.

use bytemuck::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;
use skt_host::waits::Missing;
use skt_terms::tree::Tree;

use super::{Comm, Result, Tag};

/// Tags from here to 0x7f7f belong to this file; `threads` has the ones above.
const TAG_BCAST: Tag = 0x7f00;
const TAG_REDUCE: Tag = 0x7f01;
const TAG_GATHER: Tag = 0x7f02;

/// Sends `data` of `root` to all ranks, along a binomial tree.
pub fn broadcast<C: Comm, T: Pod>(comm: &C, data: &mut [T], root: usize) -> Result<()> {
    let (size, rank) = (comm.size(), comm.rank());
    let relative = (rank + size - root) % size;
    if let Some(parent) = Tree::Binomial.parent(relative) {
        comm.recv(data, (parent + root) % size, TAG_BCAST)?;
    }
    let mut children = Tree::Binomial.children(relative, size).rev();
    children.try_for_each(|child| comm.send(data, (child + root) % size, TAG_BCAST))
}

/// Returns when the next [`broadcast`] of `root` has reached this rank, which is not `root`. Yields
/// the processor while it waits.
///
/// # Panics
/// When this rank is `root`.
pub fn await_broadcast<C: Comm>(comm: &C, root: usize) -> Result<()> {
    let (size, rank) = (comm.size(), comm.rank());
    let relative = (rank + size - root) % size;
    let from = Tree::Binomial.parent(relative).expect("the root has it");
    comm.await_message((from + root) % size, TAG_BCAST)
}

/// Combines `data` of all ranks, element by element, into that of `root`, in an order that depends
/// only on the size of the group: the result is the same every time. On other ranks `data` is left
/// partly combined.
pub fn reduce<C: Comm, T: Pod>(
    comm: &C,
    data: &mut [T],
    root: usize,
    combine: impl Fn(T, T) -> T,
) -> Result<()> {
    let (size, rank) = (comm.size(), comm.rank());
    let relative = (rank + size - root) % size;
    let mut theirs = data.to_vec();
    for child in Tree::Binomial.children(relative, size) {
        comm.recv(&mut theirs, (child + root) % size, TAG_REDUCE)?;
        for (mine, other) in data.iter_mut().zip(&theirs) {
            *mine = combine(*mine, *other);
        }
    }
    let parent = Tree::Binomial.parent(relative);
    parent.map_or(Ok(()), |parent| comm.send(data, (parent + root) % size, TAG_REDUCE))
}

/// Combines `data` of all ranks as [`reduce`] does, with the result on every rank, bit for bit the
/// same.
pub fn all_reduce<C: Comm, T: Pod>(
    comm: &C,
    data: &mut [T],
    combine: impl Fn(T, T) -> T,
) -> Result<()> {
    reduce(comm, data, 0, combine)?;
    broadcast(comm, data, 0)
}

/// Returns the `value` of `root` on all ranks.
pub fn broadcast_one<C: Comm, T: Pod>(comm: &C, value: T, root: usize) -> Result<T> {
    let mut data = [value];
    broadcast(comm, &mut data, root)?;
    Ok(data[0])
}

/// Whether it is so on any rank, the same on all.
pub fn any<C: Comm>(comm: &C, is_so: bool) -> Result<bool> {
    any_of(comm, [is_so]).map(|[any]| any)
}

/// Which of these are so on any rank, the same on all.
pub fn any_of<C: Comm, const N: usize>(comm: &C, are_so: [bool; N]) -> Result<[bool; N]> {
    const { assert!(N <= u64::BITS as usize, "a bit each") };
    let mut set = [are_so.iter().rev().fold(0_u64, |set, &is_so| set << 1 | u64::from(is_so))];
    all_reduce(comm, &mut set, |a, b| a | b)?;
    Ok(std::array::from_fn(|i| set[0] >> i & 1 != 0))
}

/// The largest `value` of any rank; a NaN on any rank wins.
pub fn max<C: Comm>(comm: &C, value: f64) -> Result<f64> {
    let mut largest = [value];
    all_max(comm, &mut largest)?;
    Ok(largest[0])
}

/// The largest value of each element over all ranks; a NaN on any rank wins.
pub fn all_max<C: Comm>(comm: &C, data: &mut [f64]) -> Result<()> {
    all_reduce(comm, data, |a, b| if a.is_nan() || a > b { a } else { b })
}

/// The sum of each element over all ranks.
pub fn all_sum<C: Comm>(comm: &C, data: &mut [f64]) -> Result<()> {
    all_reduce(comm, data, |a, b| a + b)
}

/// Collects each rank's bytes, of any length, on `root` (`None` elsewhere), along a binomial tree.
pub fn gather_bytes<C: Comm>(comm: &C, data: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>> {
    let flat = gather_flat(comm, data, root)?;
    if comm.rank() != root {
        return Ok(None);
    }
    let mut all = split(&flat);
    all.rotate_right(root);
    Ok(Some(all))
}

/// Collects the bytes of this rank and of those below it in the tree of `root`, each after its
/// length, in the order of the tree. A rank that waits is the parent of the one that is missing.
fn gather_flat<C: Comm>(comm: &C, data: &[u8], root: usize) -> Result<Vec<u8>> {
    let (size, rank) = (comm.size(), comm.rank());
    let relative = (rank + size - root) % size;
    let mut flat = [&(data.len() as u64).to_le_bytes(), data].concat();
    for child in Tree::Binomial.children(relative, size) {
        let source = (child + root) % size;
        let mut len = [0u64];
        let missing = Missing::rank(source);
        comm.recv(&mut len, source, TAG_GATHER)?;
        drop(missing);
        let begin = flat.len();
        flat.resize(begin + len[0] as usize, 0);
        comm.recv(&mut flat[begin..], source, TAG_GATHER)?;
    }
    if let Some(parent) = Tree::Binomial.parent(relative) {
        let dest = (parent + root) % size;
        comm.send(&[flat.len() as u64], dest, TAG_GATHER)?;
        comm.send(&flat, dest, TAG_GATHER)?;
    }
    Ok(flat)
}

/// The parts of what [`gather_flat`] has collected.
fn split(mut flat: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((len, rest)) = flat.split_first_chunk::<8>() {
        let (bytes, rest) = rest.split_at(u64::from_le_bytes(*len) as usize);
        all.push(bytes.to_vec());
        flat = rest;
    }
    all
}

/// Returns when all ranks have come, as a barrier does. Its parent in the tree knows of a rank that
/// has not: for the few barriers of a start.
pub fn roll_call<C: Comm>(comm: &C) -> Result<()> {
    gather_bytes(comm, &[], 0)?;
    broadcast::<_, u8>(comm, &mut [], 0)
}

/// Sends bytes of any length from `root` to all; other ranks' `data` is replaced.
pub fn broadcast_bytes<C: Comm>(comm: &C, data: &mut Vec<u8>, root: usize) -> Result<()> {
    let mut len = [data.len() as u64];
    broadcast(comm, &mut len, root)?;
    data.resize(len[0] as usize, 0);
    broadcast(comm, data, root)
}

/// Collects each rank's `value` on `root`, as JSON (`None` elsewhere). JSON has no infinity and no
/// NaN.
pub fn gather_json<C: Comm, T: Serialize + DeserializeOwned>(
    comm: &C,
    value: &T,
    root: usize,
) -> Result<Option<Vec<T>>> {
    let all = gather_bytes(comm, &to_json(value), root)?;
    Ok(all.map(|all| all.iter().map(|bytes| from_json(bytes)).collect()))
}

/// Collects each rank's `value` on every rank, as [`gather_json`] does.
pub fn all_gather_json<C: Comm, T: Serialize + DeserializeOwned>(
    comm: &C,
    value: &T,
) -> Result<Vec<T>> {
    let all = all_gather_bytes(comm, &to_json(value))?;
    Ok(all.iter().map(|bytes| from_json(bytes)).collect())
}

/// Returns the `value` of `root` on all ranks, sent as JSON.
pub fn broadcast_json<C: Comm, T: Serialize + DeserializeOwned>(
    comm: &C,
    value: &T,
    root: usize,
) -> Result<T> {
    let mut bytes = if comm.rank() == root { to_json(value) } else { Vec::new() };
    broadcast_bytes(comm, &mut bytes, root)?;
    Ok(from_json(&bytes))
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data")
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes).expect("what a rank of this program sent")
}

/// The text of the first rank that has one, the same on all.
pub fn first_text<C: Comm>(comm: &C, text: &str) -> Result<Option<String>> {
    let all = all_gather_bytes(comm, text.as_bytes())?;
    let first = all.into_iter().find(|bytes| !bytes.is_empty());
    Ok(first.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Collects each rank's bytes, of any length, on every rank.
pub fn all_gather_bytes<C: Comm>(comm: &C, data: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut flat = gather_flat(comm, data, 0)?;
    broadcast_bytes(comm, &mut flat, 0)?;
    Ok(split(&flat))
}

/// Collects each rank's value on every rank.
pub fn all_gather<C: Comm, T: Pod>(comm: &C, mine: &T) -> Result<Vec<T>> {
    let all = all_gather_bytes(comm, bytemuck::bytes_of(mine))?;
    Ok(all.iter().map(|bytes| bytemuck::pod_read_unaligned(bytes)).collect())
}

/// Collects each rank's values, of any number, on every rank.
pub fn all_gather_slices<C: Comm, T: Pod>(comm: &C, mine: &[T]) -> Result<Vec<Vec<T>>> {
    let all = all_gather_bytes(comm, bytemuck::cast_slice(mine))?;
    Ok(all.iter().map(|bytes| bytemuck::allocation::pod_collect_to_vec(bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;

    #[test]
    fn bytes_of_all_ranks_come_in_order_on_any_root() {
        for size in 1..=19 {
            let of = |rank: usize| vec![rank as u8; rank % 5 * 3];
            let wanted: Vec<_> = (0..size).map(of).collect();
            let ranks = threads::run(size, |comm| {
                assert_eq!(all_gather_bytes(&comm, &of(comm.rank()))?, wanted);
                for root in 0..size {
                    let all = gather_bytes(&comm, &of(comm.rank()), root)?;
                    assert_eq!(all.as_ref(), (comm.rank() == root).then_some(&wanted));
                }
                roll_call(&comm)
            });
            ranks.into_iter().for_each(|rank: Result<()>| rank.expect("all come"));
        }
    }
}
