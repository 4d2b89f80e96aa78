mod advance;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::config::Config;
use super::encode::{CellPosition, RegionView, Scratch};
use super::error::Result;
use super::hook::{Step, StepName};
use super::methods::Method;
use super::segment::{DamagedCell, OwnSegment};
use skt_comm::Comm;
use skt_comm::collect::{all_gather_slices, all_reduce};
use skt_store::codec::Codec;
use skt_store::layout::Active;

type Parts = (Vec<Active>, Option<Vec<Vec<Active>>>);

/// The damaged cells of a group: for each cell, the members on which it is damaged.
pub(super) type Damaged = BTreeMap<CellPosition, BTreeSet<usize>>;

pub(super) struct Encoding {
    group: Comm,
    code: Codec,
    method: Method,
    message_bytes: usize,
    in_flight_bytes: usize,
    cell_bytes: usize,
    scratch: Scratch,
}

impl Encoding {
    pub(crate) fn new(group: Comm, code: Codec, config: &Config) -> Self {
        Self {
            group,
            code,
            method: config.method,
            message_bytes: config.message_bytes,
            in_flight_bytes: config.in_flight_bytes,
            cell_bytes: config.cell_bytes,
            scratch: Scratch::default(),
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.group.rank()
    }

    /// The least active corners and stages of all members, rounded down to whole cells. Everything
    /// is active if there is no copy yet. Collective over the group.
    pub(crate) fn agree_on_parts(
        &self,
        segment: &OwnSegment,
        active: &[Active],
        stages: Option<&[Vec<Active>]>,
    ) -> Result<Parts> {
        let all = segment.record().stamped() == 0;
        let corners =
            active.iter().filter(|_| !all).chain(stages.iter().copied().flatten().flatten());
        let mut least: Vec<Active> = corners.copied().collect();
        if !least.is_empty() {
            let min =
                |a: Active, b: Active| Active { row: a.row.min(b.row), byte: a.byte.min(b.byte) };
            all_reduce(&self.group, &mut least, min)?;
        }
        let to_cell = |a: Active| Active { byte: a.byte / self.cell_bytes * self.cell_bytes, ..a };
        let mut least = least.into_iter().map(to_cell);
        let mut take = |count| least.by_ref().take(count).collect::<Vec<_>>();
        let active = if all { vec![Active::ALL; active.len()] } else { take(active.len()) };
        let of_regions = |stages: &[Vec<Active>]| stages.iter().map(|s| take(s.len())).collect();
        Ok((active, stages.map(of_regions)))
    }

    pub(crate) fn rebuild(
        &mut self,
        segment: &mut OwnSegment,
        epoch: u64,
        lost: &[usize],
    ) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let settled = self.method.settled(epoch);
        let (begun, mut bands) = (Instant::now(), 0);
        for region in 0..segment.layout.regions.len() {
            for band in 0..segment.layout.regions[region].stripes.bands() {
                let step = Step::new(StepName::RecoverRebuild, epoch).band(region, band);
                self.view(segment, region).rebuild(lost, settled, band, step)?;
                bands += 1;
                // Reports progress, because groups without lost members wait.
                segment.vault.passes(begun, bands);
            }
        }
        Ok(())
    }

    /// The damaged cells of all members. Collective over the group.
    pub(crate) fn agree_on_damage(&self, listed: &[DamagedCell]) -> Result<Damaged> {
        let places: Vec<CellPosition> = listed.iter().map(|cell| cell.place).collect();
        let mut damaged = Damaged::new();
        let of_all = all_gather_slices(&self.group, &places)?;
        for (member, places) in of_all.into_iter().enumerate() {
            for place in places {
                damaged.entry(place).or_default().insert(member);
            }
        }
        Ok(damaged)
    }

    /// Rebuilds all damaged cells, and the same cells of the lost members, which were rebuilt from
    /// damaged data. Returns how many cells of this rank were damaged. Collective over the group.
    pub(crate) fn repair(
        &mut self,
        segment: &mut OwnSegment,
        epoch: u64,
        damaged: &Damaged,
        lost: &[usize],
    ) -> Result<usize> {
        let settled = self.method.settled(epoch);
        let mut repaired = 0;
        for (place, members) in damaged {
            let step = Step::new(StepName::RecoverRepair, epoch).band(place.region, place.band);
            segment.step(step)?;
            let mut gone: Vec<usize> = members.iter().chain(lost).copied().collect();
            gone.sort_unstable();
            self.view(segment, place.region).rebuild_cell(&gone, settled, place, step)?;
            repaired += usize::from(members.contains(&self.group.rank()));
        }
        Ok(repaired)
    }

    fn view<'a>(&'a mut self, segment: &'a mut OwnSegment, region: usize) -> RegionView<'a> {
        let (vault, areas) = (&mut segment.vault, &segment.layout.regions[region]);
        RegionView {
            comm: &self.group,
            code: &self.code,
            vault,
            areas,
            message_bytes: self.message_bytes,
            scratch: &mut self.scratch,
        }
    }
}
