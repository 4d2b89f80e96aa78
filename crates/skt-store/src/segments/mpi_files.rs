//! Files of Open MPI in /dev/shm for the ranks of a node, which stay when these are killed:
//! `vader_segment.HOST.USER.JOB.RANK` of Open MPI 4, `sm_segment` of Open MPI 5. Each process
//! writes the number of its MPI job into its hold on the run, so that the next start removes the
//! files of that job, and of no other.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The folder of the files, unless Open MPI was configured to use another one.
const FOLDER: &str = "/dev/shm";

fn user_and_job(name: &str) -> Option<(u32, u64)> {
    if !name.starts_with("vader_segment.") && !name.starts_with("sm_segment.") {
        return None;
    }
    // A host's name may have dots, too.
    let mut words = name.rsplit('.').skip(1);
    let job = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((words.next()?.parse().ok()?, job))
}

/// The job whose files this process has mapped; 0 if it has none.
pub(crate) fn own_job() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let names = maps.lines().filter_map(|line| line.rsplit_once(&format!("{FOLDER}/")));
    names.filter_map(|(_, name)| user_and_job(name)).map(|(_, job)| job).next().unwrap_or(0)
}

/// Removes the files of job `job` of this user, whose ranks on this node have ended.
pub(crate) fn remove_of(job: u64) {
    if job > 0 {
        remove_in(Path::new(FOLDER), job);
    }
}

fn remove_in(folder: &Path, job: u64) {
    let user = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let of = entry.file_name().to_str().and_then(user_and_job);
        let is_own = |meta: fs::Metadata| meta.is_file() && meta.uid() == user;
        if of == Some((user, job)) && entry.metadata().is_ok_and(is_own) {
            // Another rank may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_job_of_this_user_go_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let user = nix::unistd::geteuid().as_raw();
        let other = user + 1;
        let gone = [
            format!("vader_segment.n1.{user}.45c50001.0"),
            format!("sm_segment.n1.example.org.{user}.45c50001.17"),
        ];
        let kept = [
            format!("vader_segment.n1.{user}.45c50002.0"),
            format!("vader_segment.n1.{other}.45c50001.0"),
            format!("another_segment.n1.{user}.45c50001.0"),
            "vader_segment.45c50001".to_owned(),
        ];
        for name in gone.iter().chain(&kept) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let link = format!("vader_segment.n1.{user}.45c50001.1");
        std::os::unix::fs::symlink(folder.path().join(&kept[0]), folder.path().join(&link))
            .unwrap();
        remove_in(folder.path(), 0x45c5_0001);
        let is_there = |name: &String| fs::symlink_metadata(folder.path().join(name)).is_ok();
        assert!(!gone.iter().any(is_there));
        assert!(kept.iter().chain([&link]).all(is_there));
    }
}
