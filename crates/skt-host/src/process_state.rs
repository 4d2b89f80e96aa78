//! What a library that is loaded may change for the whole process, and is not to: its constructors
//! run in the thread that loads it.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use crate::affinity;

/// Room for an `fenv_t` of any processor.
#[repr(C, align(16))]
struct FloatEnvironment([u64; 16]);

unsafe extern "C" {
    fn fegetenv(environment: *mut FloatEnvironment) -> c_int;
    fn fesetenv(environment: *const FloatEnvironment) -> c_int;
}

/// Signal handlers, and the calling thread's signal mask, CPUs, rounding and traps.
pub struct ProcessState {
    actions: Vec<(c_int, libc::sigaction)>,
    mask: libc::sigset_t,
    cpus: Option<Vec<usize>>,
    floats: FloatEnvironment,
}

impl ProcessState {
    pub fn now() -> Self {
        let action = |signal| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: only writes to `action`, which is plain data for which zeros are a value.
            let got = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
            // SAFETY: as above.
            (got == 0).then(|| (signal, unsafe { action.assume_init() }))
        };
        let actions = (1..=libc::SIGRTMAX()).filter_map(action).collect();
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut floats = FloatEnvironment([0; 16]);
        // SAFETY: both only write to what they are given, which has room for what they write; the
        // mask is plain data for which zeros are a value.
        let mask = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), mask.as_mut_ptr());
            fegetenv(&raw mut floats);
            mask.assume_init()
        };
        Self { actions, mask, cpus: affinity::current_mask().ok(), floats }
    }

    pub fn restore(&self) {
        for (signal, action) in &self.actions {
            // SAFETY: this action was in use before.
            unsafe { libc::sigaction(*signal, action, ptr::null_mut()) };
        }
        // SAFETY: both values were in use before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut());
            fesetenv(&raw const self.floats);
        }
        // A refusal costs speed, not correctness.
        let _ = self.cpus.as_ref().map(|cpus| affinity::set_mask(cpus));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_set_again() {
        let usr1 = |of: &ProcessState| {
            let is_usr1 = |it: &&(c_int, libc::sigaction)| it.0 == libc::SIGUSR1;
            of.actions.iter().find(is_usr1).unwrap().1.sa_sigaction
        };
        // SAFETY: the set is only read.
        let blocks = |of: &ProcessState| unsafe { libc::sigismember(&of.mask, libc::SIGUSR1) };
        std::thread::spawn(move || {
            let before = ProcessState::now();
            // SAFETY: the action is a legal one, and the mask is a copy with one signal more.
            unsafe {
                libc::signal(libc::SIGUSR1, libc::SIG_IGN);
                let mut mask = before.mask;
                libc::sigaddset(&raw mut mask, libc::SIGUSR1);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut());
            }
            affinity::set_mask(&affinity::current_mask().unwrap()[..1]).unwrap();
            let changed = ProcessState::now();
            assert_eq!((blocks(&before), blocks(&changed)), (0, 1));
            assert_ne!(usr1(&before), usr1(&changed));
            before.restore();
            let after = ProcessState::now();
            assert_eq!((blocks(&after), usr1(&after)), (0, usr1(&before)));
            assert_eq!(after.cpus, before.cpus);
            assert_eq!(after.floats.0, before.floats.0);
        })
        .join()
        .unwrap();
    }
}
