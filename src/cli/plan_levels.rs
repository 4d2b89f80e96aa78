//! Levels of images in `skt-hpl plan`: the flags, the lines of the answer, and the setting.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;

use super::plan_report::large;
use super::tool_error::ToolError;
use skt_model::levels::{PlannedLevel, Storage, StoredIn, Validity};
use skt_model::plan::{Plan, PlannedMachine};
use skt_model::{HOUR_SECONDS, ModelError};
use skt_run::protect::Levels;
use skt_terms::levels::IMAGES_MTBF_SECONDS;
use skt_terms::ranges::above_zero;

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
    pub(super) fn setting(&self, levels: &[PlannedLevel]) -> Result<Option<String>, ToolError> {
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
            _ => Err(ToolError::Usage(format!(
                "`{setting}` is no setting of levels: folders are absolute paths without commas, \
                 a different one for each level"
            ))),
        }
    }
}

/// Describes the levels, one per line.
pub(super) fn describe(levels: &[PlannedLevel]) -> String {
    if levels.is_empty() {
        return "Images: none, as the choice takes no checkpoints that they could be of\n".into();
    }
    levels.iter().map(line).collect()
}

fn line(planned: &PlannedLevel) -> String {
    let PlannedLevel { level, every, .. } = planned;
    let place = match planned.stored_in {
        StoredIn::Local => "on the nodes' disks",
        StoredIn::Global => "on the file system",
    };
    let mut words = format!(
        "Images {place}: {:.2} GiB a node, {:.1} s to write, each costs {:.2} s; needed once in \
         {} h; ",
        planned.node_bytes / f64::from(1u32 << 30),
        level.write_seconds,
        level.cost_seconds,
        large(level.mtbf_seconds / HOUR_SECONDS, 1),
    );
    let (with, without) = (100.0 * planned.loss_share, 100.0 * planned.loss_share_without);
    let hours = planned.interval_seconds / HOUR_SECONDS;
    let _ = if planned.pays() {
        write!(
            words,
            "one every {hours:.2} h ({every} checkpoints) loses {with:.3} % of the time, none \
             {without:.3} %"
        )
    } else {
        write!(
            words,
            "none is written: one every {} h would lose {with:.2e} % of the time, none \
             {without:.2e} %",
            large(hours, 2)
        )
    };
    if planned.validity != Validity::Valid {
        words += "; the interval is so long that more is lost than this counts, which leaves out two \
                  failures in one";
    }
    words + "\n"
}

pub(super) fn json(levels: &[PlannedLevel]) -> serde_json::Value {
    let one = |planned: &PlannedLevel| {
        let level = &planned.level;
        json!({
            "stored_in": match planned.stored_in {
                StoredIn::Local => "local",
                StoredIn::Global => "global",
            },
            "node_bytes": planned.node_bytes,
            "write_seconds": level.write_seconds,
            "cost_seconds": level.cost_seconds,
            "outage_seconds": level.outage_seconds,
            "mtbf_seconds": level.mtbf_seconds,
            "every_checkpoints": planned.every,
            "interval_seconds": planned.interval_seconds,
            "loss_share": planned.loss_share,
            "loss_share_without": planned.loss_share_without,
            "pays": planned.pays(),
            "is_first_order_valid": planned.validity == Validity::Valid,
        })
    };
    levels.iter().map(one).collect()
}
