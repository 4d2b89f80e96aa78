//! The file of spare nodes, to which a user may add nodes while the run is on.

use std::fs::{self, Metadata};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::{Host, HostFile, HostsError};

/// The shortest time between two checks of the file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The file that `--spares` names, if it names one.
#[derive(Debug)]
pub(crate) struct SparesFile {
    path: Option<PathBuf>,
    polled: Instant,
    /// What the file looked like when it was last read: the time of its last change, and its bytes.
    read: Option<(SystemTime, u64)>,
}

impl SparesFile {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, polled: Instant::now(), read: None }
    }

    /// The nodes that the file lists, if it has changed since the last call, or why it cannot be
    /// read as it is now. A file that is gone lists what it did.
    pub(crate) fn poll(&mut self) -> Option<Result<Vec<Host>, HostsError>> {
        let path = self.path.as_ref()?;
        if self.polled.elapsed() < POLL_INTERVAL {
            return None;
        }
        self.polled = Instant::now();
        let look = |file: Metadata| Some((file.modified().ok()?, file.len()));
        let found = fs::metadata(path).ok().and_then(look)?;
        if self.read.replace(found) == Some(found) {
            return None;
        }
        Some(HostFile::read_spares(path).map(|file| file.hosts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spares");
        let mut file = SparesFile::new(Some(path.clone()));
        let mut poll = || {
            file.polled -= POLL_INTERVAL;
            let hosts = file.poll()?.map_err(|why| why.to_string());
            Some(hosts.map(|hosts| hosts.into_iter().map(|host| host.name).collect::<Vec<_>>()))
        };
        assert_eq!(poll(), None, "no file");
        fs::write(&path, "").unwrap();
        assert_eq!(poll(), Some(Ok(vec![])));
        assert_eq!(poll(), None, "the same");
        fs::write(&path, "n1\nn2 slots=").unwrap();
        assert!(poll().unwrap().unwrap_err().contains(":2: '' is no number of ranks"));
        fs::write(&path, "n1\nn2 slots=2\n").unwrap();
        assert_eq!(poll(), Some(Ok(vec!["n1".to_owned(), "n2".to_owned()])));
        fs::remove_file(&path).unwrap();
        assert_eq!(poll(), None);
    }
}
