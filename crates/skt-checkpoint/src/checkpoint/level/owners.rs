//! A job takes the folders of its levels, before it looks for images there.

use std::io::Result as IoResult;

use super::super::decide::{Obstacle, Refusal};
use super::Reach;
use super::folder::{FolderOwner, ImageFolder, ImageJob};
use super::settings::{LevelSettings, Levels};
use skt_comm::collect::{all_gather, all_gather_json};
use skt_comm::{Comm, Result};
use skt_store::segments::Process;

/// What a process contributes when its job takes the folders of levels.
pub struct Claimant<'a> {
    /// The job, alike on all its processes but for the host.
    pub job: ImageJob,
    /// Whether this process is the first of its node.
    pub is_first_on_node: bool,
    /// A job that had these folders and of which a process is known to have ended
    /// ([`RunLock::folder_owner`](skt_store::segments::lock::RunLock::folder_owner)).
    pub ended: Option<u64>,
    /// The process, which waits while it watches another job.
    pub process: &'a dyn Process,
}

impl Levels {
    /// Takes the folders of `run` on all levels for the job, whose processes are those of `comm`:
    /// process 0 those that all nodes see, and the first process of each node the local ones.
    /// Returns what this process has taken, which belongs to the job until it is dropped.
    /// Collective; the inner error is [`Refusal::Held`], on all processes, if another job is at
    /// work there.
    ///
    /// A folder that cannot be used is not taken: it fails when its images are looked for, and then
    /// all ranks decide.
    pub fn take_folders(
        &self,
        comm: &Comm,
        run: &str,
        claimant: &Claimant,
    ) -> Result<std::result::Result<Vec<FolderOwner>, Refusal>> {
        let mut ended = all_gather(comm, &claimant.ended.unwrap_or(0))?;
        ended.retain(|&job| job != 0);
        ended.dedup();
        let (mut owners, mut held) = (Vec::new(), None);
        for level in &self.0 {
            let leads = match level.reach {
                Reach::Global => comm.rank() == 0,
                Reach::Local => claimant.is_first_on_node,
            };
            if leads && held.is_none() {
                match level.take_folder(run, claimant, &ended) {
                    Ok(Ok(owner)) => owners.push(owner),
                    Ok(Err(why)) => held = Some(why),
                    Err(_fails) => {}
                }
            }
        }
        let refusal = Obstacle::refusal(all_gather_json(comm, &held)?);
        Ok(refusal.map_or(Ok(owners), Err))
    }
}

impl LevelSettings {
    fn take_folder(
        &self,
        run: &str,
        claimant: &Claimant,
        ended: &[u64],
    ) -> IoResult<std::result::Result<FolderOwner, Obstacle>> {
        let Claimant { job, process, .. } = claimant;
        let open = || ImageFolder::open(&self.folder, run, 0, Some(job.number));
        let taken = FolderOwner::take(&open, job, ended, *process)?;
        Ok(taken.map_err(|by| Obstacle { passes: by.is_own, why: by.to_string() }))
    }
}
