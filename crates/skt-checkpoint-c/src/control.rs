//! The agreement of the ranks on their calls, apart from the messages of the checkpoints.
//!
//! Before each collective call the ranks agree that all have made it, with legal arguments: a
//! barrier that does not block (`MPI_Iallreduce`), which finds the maxima over their words
//! ([`words`]). These show whether all have made the same call and nothing is wrong, or which rank
//! is the first with which something is wrong; that rank sends the others what it is.
//!
//! If nothing is wrong they meet once more: a rank that has given up the first barrier does not
//! come to the second, so that no rank begins without it.
//!
//! **The limit** of each barrier is the option `timeout_seconds`, or [`LATE`] times the longest
//! wait of any rank in an earlier agreement of this start, if that is more: the fourth word. Rank 0
//! gives up at the limit and notifies all. The others give up at twice the limit, when rank 0 has
//! not come itself, and notify rank 0, in case it comes. Time in which a rank stood still itself
//! does not count ([`WaitClock`]), so a job that is suspended and continues is not late.
//!
//! A step of a call that may fail on one rank alone, as a copy of a device's memory, ends with one
//! barrier without a limit: all ranks are known to be in the call. A rank that fails alone within a
//! call notifies all others at any time.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use skt_comm::mpi::MpiComm;
use skt_comm::{PageBuf, SendRequest, Tag, Transport as _};
use skt_host::wait_clock::WaitClock;

use crate::code::{Call, Code, Result, Stop, late, lost};
use crate::raw;

const TAG_FAILED: Tag = 1;
/// Messages of the first rank in an agreement with something wrong.
const TAG_STOP: Tag = 2;
/// Bytes of a message, few enough that every MPI sends it eagerly.
const MESSAGE_BYTES: usize = 512;
/// The most bytes of a text in a message, after its code and whether the run is over.
const TEXT_BYTES: usize = MESSAGE_BYTES - 8;
/// A rank is late after this many times the longest wait so far.
const LATE: u32 = 10;

type Words = [u64; 4];

/// The words of a rank: the first is larger the lower a rank is with which something `is_wrong`,
/// and else whether something `is_so`; the next two show the largest and the smallest number of a
/// call, each with the lowest rank that has made it; the last is how long it has ever `waited`.
fn words(rank: usize, call: Call, is_wrong: bool, is_so: bool, waited: Duration) -> Words {
    let (rank, call) = (u64::from(u32::MAX - rank as u32), u64::from(call as u8));
    let state = if is_wrong { rank << 1 } else { u64::from(is_so) };
    [state, call << 32 | rank, (0xff - call) << 32 | rank, waited.as_millis() as u64]
}

fn first_wrong([state, ..]: Words) -> Option<usize> {
    (state > 1).then(|| (u32::MAX - (state >> 1) as u32) as usize)
}

fn different_calls([_, largest, smallest, _]: Words) -> Option<Stop> {
    let calls = [(largest >> 32) as u8, 0xff - (smallest >> 32) as u8];
    let ranks = [largest, smallest].map(|word| u32::MAX - word as u32);
    if calls[0] == calls[1] {
        return None;
    }
    let names = calls.map(|call| Call::from_number(call).expect("a rank has made it").name());
    let (one, other) = if ranks[0] > ranks[1] { (0, 1) } else { (1, 0) };
    let [first, second] = [one, other].map(|at| (ranks[at], names[at]));
    let text = format!("rank {} has called {}, rank {} {}", first.0, first.1, second.0, second.1);
    Some(Stop::new(Code::Order, text))
}

fn is_right(all: Words) -> bool {
    first_wrong(all).is_none() && different_calls(all).is_none()
}

/// A message: the code, whether the run is over, and the text, cut between two characters.
fn encode(stop: &Stop) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(&(stop.code as i32).to_le_bytes());
    bytes[4] = u8::from(stop.is_over);
    let mut len = stop.text.len().min(TEXT_BYTES);
    while !stop.text.is_char_boundary(len) {
        len -= 1;
    }
    bytes[8..8 + len].copy_from_slice(&stop.text.as_bytes()[..len]);
    bytes
}

fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Stop> {
    let (code, rest) = bytes.split_first_chunk()?;
    let text = rest[4..].split(|&byte| byte == 0).next()?;
    let text = String::from_utf8_lossy(text).into_owned();
    Some(Stop { code: Code::from_number(i32::from_le_bytes(*code))?, text, is_over: rest[0] != 0 })
}

pub(crate) struct Control {
    comm: MpiComm,
    /// The least limit of a barrier.
    timeout: Duration,
    /// The longest wait of any rank in an agreement, as far as all ranks know, and of this rank.
    longest: Cell<Duration>,
    own_longest: Cell<Duration>,
    /// Messages that MPI has not taken yet; those left at the end keep their memory.
    sent: RefCell<Vec<Box<dyn SendRequest>>>,
}

impl Control {
    /// The ranks of `comm`, which serves nothing else.
    pub(crate) fn new(comm: MpiComm, timeout_seconds: f64) -> Self {
        let timeout = Duration::from_secs_f64(timeout_seconds);
        let (longest, own_longest, sent) = Default::default();
        Self { comm, timeout, longest, own_longest, sent }
    }

    pub(crate) fn comm(&self) -> &MpiComm {
        &self.comm
    }

    /// Returns when all ranks have made this call and none has anything wrong: whether something
    /// `is_so` on any rank. Collective, unless a rank makes a mistake. While this rank waits, it
    /// calls `while_waiting` repeatedly.
    ///
    /// Errors: the first rank with something wrong, by its name, on all ranks; a rank that does not
    /// come in time; ranks in different calls; that of a rank's `while_waiting`, on all ranks.
    pub(crate) fn agree(
        &self,
        call: Call,
        wrong: Option<&Stop>,
        is_so: bool,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let limit = self.timeout.max(LATE * self.longest.get());
        let limit = if self.comm.rank() == 0 { limit } else { 2 * limit };
        let mut clock = WaitClock::new(limit);
        let mut own = None;
        let mut each = || match while_waiting() {
            Err(stop) => {
                // This rank has entered the agreement, so the others wait for it.
                own = Some((stop.clone(), false));
                Err(stop)
            }
            Ok(()) if clock.is_over() => {
                let stop = late(call, limit);
                own = Some((stop.clone(), true));
                Err(stop)
            }
            Ok(()) => Ok(()),
        };
        let words = words(self.comm.rank(), call, wrong.is_some(), is_so, self.own_longest.get());
        let mut met = None;
        let agreed = self
            .meet(words, &mut each)
            .and_then(|all| if is_right(all) { self.meet(words, &mut each) } else { Ok(all) })
            .and_then(|all| {
                met = Some(all);
                self.settle(all, wrong, &mut each)
            });
        match own {
            Some((stop, true)) if self.comm.rank() > 0 => self.notify(0..1, &stop),
            Some((stop, _)) => self.notify_failure(&stop),
            None => {}
        }
        if let Some([.., longest]) = met {
            self.own_longest.set(self.own_longest.get().max(clock.waited()));
            self.longest.set(Duration::from_millis(longest));
        }
        agreed
    }

    /// Returns when all ranks have done a step of this call, on which they have agreed; or the
    /// first rank that has failed, by its name. Collective. The wait has no limit.
    pub(crate) fn conclude(&self, call: Call, wrong: Option<&Stop>) -> Result<()> {
        let words = words(self.comm.rank(), call, wrong.is_some(), false, Duration::ZERO);
        let all = self.meet(words, &mut || Ok(()))?;
        self.settle(all, wrong, &mut || Ok(())).map(drop)
    }

    /// Whether something is so on any rank, by the maxima that `all` ranks have found; or what is
    /// wrong. The first rank with which something is wrong sends that to the others.
    fn settle(
        &self,
        all: Words,
        wrong: Option<&Stop>,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        match first_wrong(all) {
            Some(rank) if rank == self.comm.rank() => {
                let stop = wrong.expect("something is wrong here").clone();
                let stop = Stop { text: format!("rank {rank}: {}", stop.text), ..stop };
                self.others().try_for_each(|other| self.send(&stop, other, TAG_STOP))?;
                Err(stop)
            }
            Some(rank) => {
                let mut spins = 0;
                while !self.comm.probe(rank, TAG_STOP).map_err(|why| lost(&why))? {
                    self.wait_once(&mut spins, while_waiting)?;
                }
                Err(self.take(rank, TAG_STOP)?)
            }
            None => different_calls(all).map_or(Ok(all[0] > 0), Err),
        }
    }

    fn meet(&self, words: Words, while_waiting: &mut dyn FnMut() -> Result<()>) -> Result<Words> {
        let mut maxima = self.comm.maxima(words).map_err(|why| lost(&why))?;
        let mut spins = 0;
        loop {
            if let Some(all) = maxima.test().map_err(|why| lost(&why))? {
                return Ok(all);
            }
            self.wait_once(&mut spins, while_waiting)?;
        }
    }

    /// Waits a moment, the `spins`th time, unless a rank has failed.
    fn wait_once(
        &self,
        spins: &mut u32,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        if let Some(stop) = self.failed()? {
            return Err(stop);
        }
        while_waiting()?;
        *spins += 1;
        raw::rest(*spins);
        Ok(())
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.comm.rank();
        (0..self.comm.size()).filter(move |&rank| rank != me)
    }

    /// Sends without waiting for the receiver, which may never come.
    fn send(&self, stop: &Stop, rank: usize, tag: Tag) -> Result<()> {
        let doubles = MESSAGE_BYTES / size_of::<f64>();
        let mut buffer = PageBuf::for_messages(doubles).map_err(|why| lost(&why))?;
        bytemuck::cast_slice_mut(&mut buffer[..]).copy_from_slice(&encode(stop));
        let sent =
            self.comm.isend(buffer.into(), 0..doubles, rank, tag).map_err(|why| lost(&why))?;
        let mut all = self.sent.borrow_mut();
        all.push(sent);
        // Each is tested a few times at most, however many ranks are sent to at a time.
        if all.len().is_power_of_two() {
            keep_pending(&mut all);
        }
        Ok(())
    }

    fn take(&self, rank: usize, tag: Tag) -> Result<Stop> {
        let mut bytes = [0; MESSAGE_BYTES];
        self.comm.recv_bytes(&mut bytes, rank, tag).map_err(|why| lost(&why))?;
        let garbled = || Stop::over(Code::Internal, format!("a message of rank {rank} is garbled"));
        decode(&bytes).ok_or_else(garbled)
    }

    pub(crate) fn notify_failure(&self, stop: &Stop) {
        self.notify(self.others(), stop);
    }

    fn notify(&self, ranks: impl IntoIterator<Item = usize>, stop: &Stop) {
        let text = format!("rank {}: {}", self.comm.rank(), stop.text);
        for rank in ranks {
            // A rank that cannot be reached does not keep the others from being notified.
            let _ = self.send(&Stop::over(stop.code, &text), rank, TAG_FAILED);
        }
    }

    /// The failure that another rank has reported, if any.
    pub(crate) fn failed(&self) -> Result<Option<Stop>> {
        match self.comm.probe_any(TAG_FAILED).map_err(|why| lost(&why))? {
            Some(rank) => self.take(rank, TAG_FAILED).map(Some),
            None => Ok(None),
        }
    }
}

/// At the end of a run in order, messages that have arrived give their memory back.
impl Drop for Control {
    fn drop(&mut self) {
        keep_pending(self.sent.get_mut());
    }
}

/// Drops what MPI has taken. A failure is reported by the call that waits for the answer.
fn keep_pending(sent: &mut Vec<Box<dyn SendRequest>>) {
    sent.retain_mut(|sent| matches!(sent.test(), Ok(false)));
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::process::Command;

    use mpi::ffi;
    use skt_comm::mpi::MpiWorld;

    use super::*;

    #[test]
    fn messages_survive_and_are_cut_between_characters() {
        let short = Stop::over(Code::Space, "region 3, for instance");
        assert_eq!(decode(&encode(&short)), Some(short));
        let long = Stop::new(Code::System, "x".to_owned() + &"\u{fc}".repeat(MESSAGE_BYTES));
        let read = decode(&encode(&long)).expect("a message");
        assert_eq!(
            (read.code, read.is_over, read.text.len()),
            (Code::System, false, TEXT_BYTES - 1)
        );
        assert!(long.text.starts_with(&read.text));
        assert_eq!(decode(&[0x55; MESSAGE_BYTES]), None);
    }

    /// Where the ranks of the test below write the messages that they get.
    const FOLDER: &str = "SKT_TEST_CONTROL_FOLDER";
    const RANKS: usize = 3;

    /// What the ranks of the test below run; alone it does nothing. Rank 1 fails while it waits for
    /// the others, which come after that.
    #[test]
    fn as_a_rank() {
        let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
        let _world = MpiWorld::init().expect("MPI");
        // SAFETY: a constant of the library.
        let all = unsafe { ffi::RSMPI_COMM_WORLD };
        let comm = raw::duplicate(all, Duration::from_secs(60)).expect("a communicator");
        let control = Control::new(comm, 600.0);
        let rank = control.comm.rank();
        let file = |rank: usize| folder.join(rank.to_string());
        let is_there = |rank: usize| file(rank).exists();
        let wait_for = |ranks: Range<usize>| {
            while !ranks.clone().all(is_there) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let mut while_waiting = || {
            let stop = Stop::over(Code::System, "no memory");
            if rank == 1 { Err(stop) } else { Ok(()) }
        };
        if rank != 1 {
            wait_for(1..2);
        }
        let stop =
            control.agree(Call::Wait, None, false, &mut while_waiting).expect_err("rank 1 fails");
        std::fs::write(file(rank), stop.text).expect("our folder");
        // A rank that ends takes the others with it.
        wait_for(0..RANKS);
        std::process::exit(0);
    }

    #[test]
    fn rank_that_fails_while_waiting_notifies_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut job = Command::new("mpirun");
        job.args(["-np", &RANKS.to_string()]).arg(std::env::current_exe().expect("this test"));
        job.args(["--exact", "control::tests::as_a_rank", "--nocapture"]);
        job.env(FOLDER, folder.path()).env("MPIEXEC_TIMEOUT", "60");
        // As root, on fewer cores than ranks, and with a separate folder: see tests/mpirun.
        job.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        job.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        job.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        job.env("OMPI_MCA_orte_tmpdir_base", folder.path());
        job.env("PRTE_MCA_prte_tmpdir_base", folder.path());
        let output = job.output().expect("mpirun");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let received = |rank: usize| std::fs::read_to_string(folder.path().join(rank.to_string()));
        for rank in 0..RANKS {
            let want = if rank == 1 { "no memory" } else { "rank 1: no memory" };
            assert_eq!(received(rank).unwrap_or_default(), want, "rank {rank}: {stderr}");
        }
    }

    /// The maxima over ranks in these calls, with something wrong on some.
    fn maxima(calls: &[(Call, bool)]) -> Words {
        let of_rank =
            |(rank, &(call, is_wrong))| words(rank, call, is_wrong, false, Duration::ZERO);
        let all: Vec<Words> = calls.iter().enumerate().map(of_rank).collect();
        [0, 1, 2, 3].map(|at| all.iter().map(|words| words[at]).max().expect("ranks"))
    }

    #[test]
    fn the_first_fault_counts_before_other_calls() {
        let [due, checkpoint, done] = [Call::Due, Call::Checkpoint, Call::Done];
        assert!(is_right(maxima(&[(due, false); 3])));
        let both = maxima(&[(checkpoint, false), (done, false), (due, true), (due, true)]);
        assert_eq!(first_wrong(both), Some(2));
        for (first, second) in [(checkpoint, done), (done, checkpoint)] {
            let all = maxima(&[(first, false), (first, false), (second, false), (second, false)]);
            let order = different_calls(all).filter(|_| first_wrong(all).is_none());
            let order = order.expect("a fault");
            let text = format!("rank 2 has called {second}, rank 0 {first}");
            assert_eq!((order.code, order.text), (Code::Order, text));
        }
        assert_eq!(words(0, due, false, true, Duration::ZERO)[0], 1);
    }
}
