//! What is reported to the user about wrong numbers in the matrix of a test with checksums.

use skt_host::choice::OnLoss;

use super::segments::store_flag;
use crate::error::{End, JobError};
use crate::heartbeat::{self, CorruptionReport};
use crate::record::{Protection, RepairedRank};
use skt_config::protection::Settings;
use skt_solver::pgesv::abft::CorrectedRank;
use skt_solver::pgesv::wrong::WrongNumbers;

/// The newest images that are complete on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Images {
    /// The level, as the user names it.
    pub level: String,
    /// The checkpoint's epoch.
    pub epoch: u64,
    /// Whether the run has resumed from these images, which then may have the wrong number, too.
    pub is_suspect: bool,
}

/// The error for `wrong` in a run whose ranks are on these `hosts`, with what to do about it.
/// `images` are the newest ones.
pub(super) fn error(
    wrong: &WrongNumbers,
    hosts: &[String],
    settings: &Settings,
    images: Option<&Images>,
) -> JobError {
    let found = wrong.describe(|rank| format!("rank {rank} ({})", hosts[rank]));
    let text = format!("{found}. {}", what_now(settings, images));
    let end = match images {
        _ if !wrong.is_known_to_all => End::Local { is_permanent: images.is_none() },
        Some(_) => End::INTERRUPTED,
        None => End::REFUSED,
    };
    JobError::new(end, text)
}

/// Explains what the user can do with this run.
fn what_now(settings: &Settings, images: Option<&Images>) -> String {
    let start_over = match settings.on_loss {
        OnLoss::Restart => "start over with --resume never".to_owned(),
        // Such a job needs its memory, so it cannot have `--resume never`.
        _ => format!(
            "`skt-hpl store clean --run {}{}` on each host removes its memory, to start over",
            settings.run_id,
            store_flag(&settings.store)
        ),
    };
    match images {
        Some(Images { level, epoch, is_suspect: false }) => {
            format!("The same command goes back to the images of checkpoint {epoch} in {level}")
        }
        Some(Images { level, epoch, .. }) => format!(
            "The same command goes back to images older than those of checkpoint {epoch} in \
             {level}, which may be wrong, too; if there are none, {start_over}"
        ),
        None => format!("No level has images to continue from: {start_over}"),
    }
}

/// Adds the ranks whose rows one check has recomputed to those of earlier checks.
pub(super) fn note_repaired(
    list: &mut Vec<RepairedRank>,
    ranks: &[CorrectedRank],
    hosts: &[String],
) {
    for &CorrectedRank { rank, process_row, process_column, rows, first_row, column, is_origin } in
        ranks
    {
        let is_same =
            |repaired: &&mut RepairedRank| (repaired.rank, repaired.is_origin) == (rank, is_origin);
        if let Some(repaired) = list.iter_mut().find(is_same) {
            repaired.rows += rows as u64;
            repaired.checks += 1;
            repaired.last_column = column;
            continue;
        }
        let repaired = RepairedRank {
            host: hosts[rank].clone(),
            rank,
            process_row,
            process_column,
            rows: rows as u64,
            first_row,
            first_column: column,
            last_column: column,
            checks: 1,
            is_origin,
        };
        if list.len() < Protection::REPAIRED_KEPT {
            list.push(repaired);
        } else if is_origin && let Some(other) = list.iter_mut().rfind(|other| !other.is_origin) {
            *other = repaired;
        }
    }
}

/// Reports to a supervisor the ranks that certainly gave the wrong numbers of a check.
pub(super) fn report_origins(ranks: &[CorrectedRank], hosts: &[String]) {
    for &CorrectedRank { rank, rows, column, .. } in ranks.iter().filter(|rank| rank.is_origin) {
        report(rank, rows, column, false, hosts);
    }
}

/// Reports to a supervisor the rank that gave wrong numbers which end the run, if it is certain.
pub(super) fn report_suspect(wrong: &WrongNumbers, hosts: &[String]) {
    if let ([rank], Some(_)) = (&wrong.suspects[..], wrong.process_column) {
        report(*rank, wrong.rows, wrong.column, true, hosts);
    }
}

fn report(rank: usize, rows: usize, first_column: usize, ends_job: bool, hosts: &[String]) {
    let (host, rows) = (hosts[rank].clone(), rows as u64);
    let checks = 1;
    let report = CorruptionReport { host, rank, checks, rows, first_column, ends_job };
    heartbeat::report_corruption(report);
}

#[cfg(test)]
mod tests {
    use super::*;
    use skt_checkpoint::checkpoint::methods::Method;
    use skt_solver::pgesv::wrong::NotCorrected;

    fn advice(settings: &Settings, images: Option<&Images>) -> String {
        let hosts = ["n0", "n1", "n2", "n3"].map(str::to_owned);
        let wrong = WrongNumbers {
            column: 640,
            row: 1500,
            units: 1.5e9,
            process_row: 0,
            rows: 1,
            process_column: Some(1),
            suspects: vec![1],
            noticed_by: 2,
            why: NotCorrected::Again,
            is_known_to_all: true,
        };
        error(&wrong, &hosts, settings, images).to_string()
    }

    #[test]
    fn hosts_are_named_and_the_same_command_where_it_can_continue() {
        let run_id = "r".to_owned();
        let plain = Settings { method: Method::Abft, run_id, ..Settings::none() };
        let none = advice(&plain, None);
        assert!(none.contains("; rank 2 (n2) noticed. The wrong number comes from rank 1 (n1) of"));
        assert!(none.ends_with("to continue from: start over with --resume never"), "{none}");
        let images = Images { level: "local:/l".into(), epoch: 3, is_suspect: false };
        let back = advice(&plain, Some(&images));
        assert!(
            back.ends_with("The same command goes back to the images of checkpoint 3 in local:/l")
        );
        let suspect = Images { is_suspect: true, ..images };
        let maybe = advice(&plain, Some(&suspect));
        assert!(maybe.ends_with("if there are none, start over with --resume never"), "{maybe}");
        let outlived = Settings { on_loss: OnLoss::Recover, ..plain.clone() };
        let cleans = advice(&outlived, None);
        assert!(cleans.contains("`skt-hpl store clean --run r` on each host"), "{cleans}");
        assert!(!cleans.contains("--resume never") && !cleans.contains("same command"));
    }

    #[test]
    fn rows_of_a_rank_are_summed_up_and_ranks_are_bounded() {
        let hosts: Vec<String> = (0..20).map(|rank| format!("n{rank}")).collect();
        let rank = |rank, rows, column| CorrectedRank {
            rank,
            process_row: 0,
            process_column: rank,
            rows,
            first_row: 100 + column,
            column,
            is_origin: rank == 3,
        };
        let mut list = Vec::new();
        note_repaired(&mut list, &[rank(3, 2, 64), rank(5, 1, 64)], &hosts);
        note_repaired(&mut list, &[rank(3, 4, 128)], &hosts);
        let of = |repaired: &RepairedRank| (repaired.rank, repaired.rows, repaired.first_row);
        assert_eq!(list.iter().map(of).collect::<Vec<_>>(), [(3, 6, 164), (5, 1, 164)]);
        assert_eq!(
            (list[0].host.as_str(), list[0].first_column, list[0].last_column),
            ("n3", 64, 128)
        );
        let many: Vec<CorrectedRank> = (0..20).map(|number| rank(number, 1, 192)).collect();
        note_repaired(&mut list, &many, &hosts);
        assert_eq!((list.len(), list[0].rows), (Protection::REPAIRED_KEPT, 7));
        let late = CorrectedRank { is_origin: true, ..rank(19, 1, 256) };
        note_repaired(&mut list, &[late], &hosts);
        let last = list.last().expect("some");
        assert_eq!(
            (list.len(), last.rank),
            (Protection::REPAIRED_KEPT, 19),
            "an origin takes a place"
        );
    }
}
