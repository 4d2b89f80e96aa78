//! Collective operations built from messages, the same with every [`Comm`]. Each fails when a rank
//! cannot be reached.

use bytemuck::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;
use skt_host::tree::Tree;
use skt_host::waits::Missing;

use super::{Comm, Result, Tag};

/// Tags from here to 0x7f7f belong to this file; `threads` has the ones above.
const TAG_BCAST: Tag = 0x7f00;
const TAG_REDUCE: Tag = 0x7f01;
const TAG_GATHER: Tag = 0x7f02;

/// Sends `data` of `root` to all ranks, along a binomial tree.
pub fn broadcast<T: Pod>(comm: &Comm, data: &mut [T], root: usize) -> Result<()> {
    let (parent, mut children) = tree(comm, root);
    parent.map_or(Ok(()), |parent| comm.recv(data, parent, TAG_BCAST))?;
    children.try_for_each(|child| comm.send(data, child, TAG_BCAST))
}

/// The rank that sends a broadcast of `root` to this one, and those to which this one sends it.
fn tree(comm: &Comm, root: usize) -> (Option<usize>, impl Iterator<Item = usize>) {
    let size = comm.size();
    let relative = (comm.rank() + size - root) % size;
    let rank = move |relative: usize| (relative + root) % size;
    let children = Tree::Binomial.children(relative, size).rev().map(rank);
    (Tree::Binomial.parent(relative).map(rank), children)
}

/// Returns when the next [`broadcast`] of `root`, another rank, has arrived here. Yields the
/// processor while it waits.
pub fn await_broadcast(comm: &Comm, root: usize) -> Result<()> {
    comm.await_message(tree(comm, root).0.expect("the root has it"), TAG_BCAST)
}

/// Combines `data` of all ranks, element by element, into that of `root`, in an order that depends
/// only on the size of the group: the result is the same every time. On other ranks `data` is left
/// partly combined.
pub fn reduce<T: Pod>(
    comm: &Comm,
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

/// [`reduce`], with the result on every rank, bit for bit the same.
pub fn all_reduce<T: Pod>(comm: &Comm, data: &mut [T], combine: impl Fn(T, T) -> T) -> Result<()> {
    reduce(comm, data, 0, combine)?;
    broadcast(comm, data, 0)
}

/// Returns the `value` of `root` on all ranks.
pub fn broadcast_one<T: Pod>(comm: &Comm, value: T, root: usize) -> Result<T> {
    let mut data = [value];
    broadcast(comm, &mut data, root)?;
    Ok(data[0])
}

/// Whether it is so on any rank, the same on all.
pub fn any(comm: &Comm, is_so: bool) -> Result<bool> {
    any_of(comm, [is_so]).map(|[any]| any)
}

/// Which of these are so on any rank, the same on all.
pub fn any_of<const N: usize>(comm: &Comm, are_so: [bool; N]) -> Result<[bool; N]> {
    const { assert!(N <= u64::BITS as usize, "a bit each") };
    let mut set = [are_so.iter().rev().fold(0_u64, |set, &is_so| set << 1 | u64::from(is_so))];
    all_reduce(comm, &mut set, |a, b| a | b)?;
    Ok(std::array::from_fn(|i| set[0] >> i & 1 != 0))
}

/// The largest `value` of any rank; a NaN on any rank wins.
pub fn max(comm: &Comm, value: f64) -> Result<f64> {
    let mut largest = [value];
    all_max(comm, &mut largest)?;
    Ok(largest[0])
}

/// The largest value of each element over all ranks; a NaN on any rank wins.
pub fn all_max(comm: &Comm, data: &mut [f64]) -> Result<()> {
    all_reduce(comm, data, |a, b| if a.is_nan() || a > b { a } else { b })
}

/// The sum of each element over all ranks.
pub fn all_sum(comm: &Comm, data: &mut [f64]) -> Result<()> {
    all_reduce(comm, data, |a, b| a + b)
}

/// Bytes of the first part of a message of any length: short ones are a single message.
const FIRST_BYTES: usize = 512;

/// Sends the length of `data` and its first bytes, and what is left in a second message.
fn send_sized(comm: &Comm, data: &[u8], dest: usize, tag: Tag) -> Result<()> {
    let mut first = [0; FIRST_BYTES];
    let (length, bytes) = first.split_at_mut(size_of::<u64>());
    length.copy_from_slice(&(data.len() as u64).to_le_bytes());
    let (short, rest) = data.split_at(data.len().min(bytes.len()));
    bytes[..short.len()].copy_from_slice(short);
    comm.send(&first, dest, tag)?;
    if rest.is_empty() { Ok(()) } else { comm.send(rest, dest, tag) }
}

fn recv_sized(comm: &Comm, source: usize, tag: Tag) -> Result<Vec<u8>> {
    let mut first = [0; FIRST_BYTES];
    comm.recv(&mut first, source, tag)?;
    let (length, bytes) = first.split_first_chunk().expect("a length");
    let length = u64::from_le_bytes(*length) as usize;
    let mut data = vec![0; length];
    let (short, rest) = data.split_at_mut(length.min(bytes.len()));
    short.copy_from_slice(&bytes[..short.len()]);
    if !rest.is_empty() {
        comm.recv(rest, source, tag)?;
    }
    Ok(data)
}

/// Collects each rank's bytes, of any length, on `root` (`None` elsewhere), along a binomial tree.
pub fn gather_bytes(comm: &Comm, data: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>> {
    let flat = gather_flat(comm, data, root)?;
    Ok((comm.rank() == root).then(|| split(&flat, comm.size())))
}

/// Collects the bytes of this rank and of those below it in the tree of `root`: those of each rank
/// that has some after its number and their length. A rank that waits is the parent of the one that
/// is missing.
fn gather_flat(comm: &Comm, data: &[u8], root: usize) -> Result<Vec<u8>> {
    let (size, rank) = (comm.size(), comm.rank());
    let relative = (rank + size - root) % size;
    let mut flat = Vec::new();
    if !data.is_empty() {
        let length = u32::try_from(data.len()).expect("few bytes");
        flat.extend(bytemuck::bytes_of(&[rank as u32, length]));
        flat.extend(data);
    }
    for child in Tree::Binomial.children(relative, size) {
        let source = (child + root) % size;
        let missing = Missing::rank(source);
        flat.extend(recv_sized(comm, source, TAG_GATHER)?);
        drop(missing);
    }
    if let Some(parent) = Tree::Binomial.parent(relative) {
        send_sized(comm, &flat, (parent + root) % size, TAG_GATHER)?;
    }
    Ok(flat)
}

/// The bytes of each of `size` ranks, from what [`gather_flat`] has collected.
fn split(mut flat: &[u8], size: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); size];
    while let Some((head, rest)) = flat.split_first_chunk::<8>() {
        let [rank, length]: [u32; 2] = bytemuck::cast(*head);
        let (bytes, rest) = rest.split_at(length as usize);
        all[rank as usize] = bytes.to_vec();
        flat = rest;
    }
    all
}

/// Returns when all ranks have come, as a barrier does. Its parent in the tree knows of a rank that
/// has not: for the few barriers of a start.
pub fn roll_call(comm: &Comm) -> Result<()> {
    gather_bytes(comm, &[], 0)?;
    broadcast::<u8>(comm, &mut [], 0)
}

/// Sends bytes of any length from `root` to all; other ranks' `data` is replaced.
pub fn broadcast_bytes(comm: &Comm, data: &mut Vec<u8>, root: usize) -> Result<()> {
    let (parent, mut children) = tree(comm, root);
    if let Some(parent) = parent {
        *data = recv_sized(comm, parent, TAG_BCAST)?;
    }
    children.try_for_each(|child| send_sized(comm, data, child, TAG_BCAST))
}

/// Collects each rank's `value` on `root` (`None` elsewhere), as JSON, without infinities and NaN.
pub fn gather_json<T: Serialize + DeserializeOwned>(
    comm: &Comm,
    value: &T,
    root: usize,
) -> Result<Option<Vec<T>>> {
    let all = gather_bytes(comm, &to_json(value), root)?;
    Ok(all.map(|all| all.iter().map(|bytes| from_json(bytes)).collect()))
}

/// Collects each rank's `value` on every rank, as [`gather_json`] does.
pub fn all_gather_json<T: Serialize + DeserializeOwned>(comm: &Comm, value: &T) -> Result<Vec<T>> {
    let all = all_gather_bytes(comm, &to_json(value))?;
    Ok(all.iter().map(|bytes| from_json(bytes)).collect())
}

/// Collects on every rank, as [`gather_json`] does, the values of those ranks that have one, each
/// with its rank. Those without cost nothing.
pub fn all_gather_some_json<T: Serialize + DeserializeOwned>(
    comm: &Comm,
    value: Option<&T>,
) -> Result<Vec<(usize, T)>> {
    let all = all_gather_bytes(comm, &value.map(to_json).unwrap_or_default())?.into_iter();
    let some = all.enumerate().filter(|(_, bytes)| !bytes.is_empty());
    Ok(some.map(|(rank, bytes)| (rank, from_json(&bytes))).collect())
}

/// Returns the `value` of `root` on all ranks, sent as JSON.
pub fn broadcast_json<T: Serialize + DeserializeOwned>(
    comm: &Comm,
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
pub fn first_text(comm: &Comm, text: &str) -> Result<Option<String>> {
    let all = all_gather_bytes(comm, text.as_bytes())?;
    let first = all.into_iter().find(|bytes| !bytes.is_empty());
    Ok(first.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Collects each rank's bytes, of any length, on every rank.
pub fn all_gather_bytes(comm: &Comm, data: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut flat = gather_flat(comm, data, 0)?;
    broadcast_bytes(comm, &mut flat, 0)?;
    Ok(split(&flat, comm.size()))
}

/// Collects each rank's value on every rank.
pub fn all_gather<T: Pod>(comm: &Comm, mine: &T) -> Result<Vec<T>> {
    let all = all_gather_bytes(comm, bytemuck::bytes_of(mine))?;
    Ok(all.iter().map(|bytes| bytemuck::pod_read_unaligned(bytes)).collect())
}

/// Collects each rank's values, of any number, on every rank.
pub fn all_gather_slices<T: Pod>(comm: &Comm, mine: &[T]) -> Result<Vec<Vec<T>>> {
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
            let of = |rank: usize| vec![rank as u8; rank % 5 * 70];
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
