//! The limit on this process's descriptors: a connection to another rank takes one, and an MPI
//! that gets none for a connection waits for it for ever.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limit is raised to this much: the children of a launcher may close all descriptors that the
/// limit allows, one after the other.
const MOST: u64 = 1 << 16;

/// Raises the limit to what the system allows this process and the programs that it starts.
pub fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(MOST)
    {
        // Where it stays as it is, it may be enough.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(MOST), hard);
    }
}

/// Why this process, one of `ranks`, cannot have connections to the ranks next to it in the trees
/// of all ranks, of its row and of its column, if it cannot.
pub fn lack(ranks: usize) -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let open = match std::fs::read_dir("/proc/self/fd") {
        // The folder itself is one of them.
        Ok(entries) => entries.count() as u64 - 1,
        Err(why) if why.raw_os_error() == Some(libc::EMFILE) => limit,
        Err(_) => return None,
    };
    let least = open + 2 * u64::from(ranks.next_power_of_two().ilog2());
    (limit < least).then(|| {
        format!(
            "this process may have {limit} descriptors, of which {open} are in use: with {ranks} \
             ranks it needs at least {least}. Raise the limit (ulimit -n)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_raised_and_what_it_lacks_is_named() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("it is known");
        let set =
            |soft| setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("below the hard one");
        set(100);
        assert_eq!(lack(1), None);
        let why = lack(1 << 62).expect("100 are not enough");
        assert!(why.contains("may have 100 descriptors") && why.contains("ulimit -n"), "{why}");
        raise_limit();
        let soft = getrlimit(Resource::RLIMIT_NOFILE).expect("it is known").0;
        assert_eq!(soft, hard.min(MOST));
    }
}
