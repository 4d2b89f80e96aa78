//! The CPUs that a thread may run on.

use std::io;

const WORD_BITS: usize = u64::BITS as usize;

/// The CPUs that the calling thread may run on.
pub fn current_mask() -> io::Result<Vec<usize>> {
    mask_of(0)
}

/// The CPUs that a thread of any process may run on, by the thread's id; 0 is the calling thread.
pub(crate) fn mask_of(thread: libc::pid_t) -> io::Result<Vec<usize>> {
    // The kernel refuses a buffer shorter than its own mask, and does not report how long that is.
    let mut words = vec![0u64; 16];
    loop {
        // SAFETY: the buffer has the length that is passed along.
        let result = unsafe {
            libc::sched_getaffinity(thread, size_of_val(&words[..]), words.as_mut_ptr().cast())
        };
        if result == 0 {
            return Ok(bits_set(&words));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() > 4096 {
            return Err(error);
        }
        words = vec![0; 2 * words.len()];
    }
}

fn bits_set(words: &[u64]) -> Vec<usize> {
    (0..words.len() * WORD_BITS)
        .filter(|bit| words[bit / WORD_BITS] >> (bit % WORD_BITS) & 1 == 1)
        .collect()
}

/// Pins the calling thread to the planned CPU, if there is one.
pub fn pin_as_planned(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        // A refusal costs speed, not correctness; the report has the plan.
        let _ = set_mask(&[cpu]);
    }
}

/// Restricts the calling thread to these CPUs.
pub fn set_mask(cpus: &[usize]) -> io::Result<()> {
    let highest = cpus.iter().max().copied().unwrap_or(0);
    let mut words = vec![0u64; (highest / WORD_BITS + 1).max(16)];
    for cpu in cpus {
        words[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
    }
    // SAFETY: the buffer has the length that is passed along.
    let result =
        unsafe { libc::sched_setaffinity(0, size_of_val(&words[..]), words.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_pinned_to_the_given_cpu() {
        let mask = current_mask().unwrap();
        let last = *mask.last().unwrap();
        std::thread::spawn(move || {
            set_mask(&[last]).unwrap();
            assert_eq!(current_mask().unwrap(), [last]);
            assert!(set_mask(&[100_000]).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(current_mask().unwrap(), mask, "other threads stay as they were");
    }
}
