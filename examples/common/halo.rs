//! Exchanges the edges of blocks of a grid that is cut along its first dimension.

use bytemuck::Pod;
use skt_comm::{Comm, CommError, Tag};

use crate::common::Block;

const TAG_UP: Tag = 1;
const TAG_DOWN: Tag = 2;

/// Receives the neighbours' layers adjacent to this rank's `own` into `above` and `below`, one
/// layer each, where there are such neighbours.
pub fn exchange<T: Pod>(
    comm: &Comm,
    block: &Block,
    own: &[T],
    above: &mut [T],
    below: &mut [T],
) -> Result<(), CommError> {
    let (me, layer) = (comm.rank(), above.len());
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    if block.count > 0 && block.first > 0 {
        sends.push((bytemuck::cast_slice(&own[..layer]), me - 1, TAG_UP));
        recvs.push((bytemuck::cast_slice_mut(above), me - 1, TAG_DOWN));
    }
    if block.count > 0 && block.first + block.count < block.total {
        sends.push((bytemuck::cast_slice(&own[own.len() - layer..]), me + 1, TAG_DOWN));
        recvs.push((bytemuck::cast_slice_mut(below), me + 1, TAG_UP));
    }
    comm.exchange_bytes(&sends, &mut recvs)
}
