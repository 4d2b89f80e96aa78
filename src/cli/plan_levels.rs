//! Levels of images in `skt-hpl plan`: the flags, the columns of the answer, and the setting.

use clap::Args;
use serde_json::json;

use super::failed::Failed;
use skt_host::levels::IMAGES_MTBF_SECONDS;
use skt_host::ranges::above_zero;
use skt_model::levels::{PlannedLevel, Storage, StoredIn, Validity};
use skt_model::plan::{Plan, PlannedMachine};
use skt_model::table::Fields;
use skt_model::{HOUR_SECONDS, ModelError};
use skt_run::protect::Levels;

/// Flags of `plan` on images of checkpoints.
#[derive(Debug, Args)]
pub(crate) struct LevelArgs {
    /// Plan images of checkpoints on the nodes' own disks, with this bandwidth per node, in GB/s
    #[arg(long, value_parser = above_zero, value_name = "GB/S")]
    pub(crate) local_gbs: Option<f64>,
    /// Plan images on a file system that all nodes share, with this total bandwidth, in GB/s
    #[arg(long, value_parser = above_zero, value_name = "GB/S")]
    pub(crate) global_gbs: Option<f64>,
    /// Mean time between events that destroy the memory of all nodes, such as power cuts, in hours
    #[arg(long, value_parser = above_zero, value_name = "HOURS", default_value_t = IMAGES_MTBF_SECONDS / HOUR_SECONDS)]
    pub(crate) machine_mtbf_hours: f64,
    /// Folder of the images on the nodes' own disks, for the configuration
    #[arg(long, value_name = "FOLDER", requires = "local_gbs")]
    pub(crate) local_folder: Option<String>,
    /// Folder of the images on the shared file system, for the configuration
    #[arg(long, value_name = "FOLDER", requires = "global_gbs")]
    pub(crate) global_folder: Option<String>,
}

impl LevelArgs {
    /// The levels of the chosen candidate; `None` if no flag asks for levels.
    pub(super) fn plan(
        &self,
        machine: &PlannedMachine,
        plan: &Plan,
    ) -> Result<Option<Vec<PlannedLevel>>, ModelError> {
        if self.local_gbs.is_none() && self.global_gbs.is_none() {
            return Ok(None);
        }
        let storage = Storage {
            local_bytes_per_second: self.local_gbs.map(|rate| rate * 1e9),
            global_bytes_per_second: self.global_gbs.map(|rate| rate * 1e9),
            machine_mtbf_seconds: self.machine_mtbf_hours * HOUR_SECONDS,
            // Without any folder, both levels are planned as if they were written.
            writes_local: self.local_folder.is_some() || self.global_folder.is_none(),
        };
        storage.plan(machine, plan.choice()).map(Some)
    }

    /// The setting for the levels that pay and have a folder; `None` if there are none.
    pub(super) fn setting(&self, levels: &[PlannedLevel]) -> Result<Option<String>, Failed> {
        let mut words = Vec::new();
        for level in levels.iter().filter(|level| level.pays()) {
            let (name, folder) = match level.stored_in {
                StoredIn::Local => ("local", &self.local_folder),
                StoredIn::Global => ("global", &self.global_folder),
            };
            let Some(folder) = folder else { continue };
            words.push(format!("{name}:{folder},every={:.0}s", level.interval_seconds.max(1.0)));
        }
        let setting = words.join(",");
        match setting.parse::<Levels>() {
            _ if words.is_empty() => Ok(None),
            Ok(levels) if levels.0.len() == words.len() => Ok(Some(setting)),
            _ => Err(Failed::new(format!(
                "`{setting}` is no setting of levels: folders are absolute paths without commas, \
                 a different one for each level"
            ))),
        }
    }
}

pub(super) fn fields(planned: &PlannedLevel) -> Fields {
    let level = &planned.level;
    Fields(vec![
        (
            "stored_in",
            json!(match planned.stored_in {
                StoredIn::Local => "local",
                StoredIn::Global => "global",
            }),
        ),
        ("node_bytes", json!(planned.node_bytes)),
        ("write_seconds", json!(level.write_seconds)),
        ("cost_seconds", json!(level.cost_seconds)),
        ("outage_seconds", json!(level.outage_seconds)),
        ("mtbf_seconds", json!(level.mtbf_seconds)),
        ("every_checkpoints", json!(planned.every)),
        ("interval_seconds", json!(planned.interval_seconds)),
        ("loss_share", json!(planned.loss_share)),
        ("loss_share_without", json!(planned.loss_share_without)),
        ("pays", json!(planned.pays())),
        ("is_first_order_valid", json!(planned.validity == Validity::Valid)),
    ])
}
