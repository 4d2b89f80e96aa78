//! The agreement of the ranks on their calls, by messages apart from those of the checkpoints.
//!
//! Before each collective call the ranks agree that all have made it, with legal arguments. So a
//! rank that does not call, or makes another call, is reported instead of waited for:
//!
//! 1. Within the time limit all ranks find the maxima over their words ([`words`]), which show
//!    whether all have made the same call and nothing is wrong, or which rank is the first that
//!    something is wrong with. MPI does it by a tree.
//! 2. They do so once more, if nothing is wrong. A rank that has given up in 1 does not take part
//!    in 2, so that no rank begins without it. A rank that takes part in 2 does not give up, so 2
//!    needs no limit.
//!
//! Only what the maxima cannot show needs messages:
//!
//! | | a rank | rank 0 |
//! |---|---|---|
//! | something is wrong | the first such rank sends `Stop` to all, with what is wrong | |
//! | half of the time limit has passed in 1 | at `Roll`: `Enter` | `Roll`, also to those that call later |
//! | all of the limit has passed in 1 | | `Failed`: names those that have not entered |
//! | twice the limit without rank 0, or since its `Roll` | `GaveUp` | if it comes: `Failed`, names who gave up |
//!
//! A step of a call that may fail on one rank alone, as a copy of a device's memory, ends with 1
//! without its time limit: all ranks are known to be in the call.
//!
//! The time limit is that of a [`WaitClock`]: time in which a rank stood still itself does not
//! count, so a job that is suspended and continues is not late. Rank 0 alone can be late without
//! knowing it: the others have given it up then, and report that.
//!
//! A rank that fails alone within a call notifies all others at any time (`Failed`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use skt_comm::mpi::MpiComm;
use skt_comm::{PageBuf, SendRequest, Tag, Transport as _};
use skt_host::wait_clock::WaitClock;
use skt_terms::named;

use crate::code::{Code, Result, Stop, lost};
use crate::raw;

/// Messages to rank 0.
const TAG_UP: Tag = 1;
/// Messages of rank 0.
const TAG_DOWN: Tag = 2;
/// Messages of a rank that has failed.
const TAG_FAILED: Tag = 3;
/// Messages of the first rank in an agreement with something wrong.
const TAG_STOP: Tag = 4;
/// Bytes of a message, few enough that every MPI sends it eagerly.
const WORD_BYTES: usize = 512;
/// The most bytes of a text in a message.
const TEXT_BYTES: usize = WORD_BYTES - 16;
/// The most ranks that a text names.
const NAMED: usize = 8;

/// What ranks find the maxima of.
type Words = [u64; 3];

/// The words of a rank: the first is larger the lower a rank is with which something `is_wrong`,
/// and else whether something `is_so`; the others show the largest and the smallest number of a
/// call, each with the lowest rank that has made it.
fn words(rank: usize, call: Call, is_wrong: bool, is_so: bool) -> Words {
    let (rank, call) = (u64::from(u32::MAX - rank as u32), u64::from(call as u8));
    let state = if is_wrong { rank << 1 } else { u64::from(is_so) };
    [state, call << 32 | rank, (0xff - call) << 32 | rank]
}

/// The first rank with which something is wrong, by the maxima over all ranks.
fn first_wrong([state, ..]: Words) -> Option<usize> {
    (state > 1).then(|| (u32::MAX - (state >> 1) as u32) as usize)
}

/// The error if the ranks are in different calls, by the maxima over all ranks.
fn different_calls([_, largest, smallest]: Words) -> Option<Stop> {
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

/// Whether nothing is wrong and all ranks are in one call, by the maxima over all ranks.
fn is_right(all: Words) -> bool {
    first_wrong(all).is_none() && different_calls(all).is_none()
}

/// The collective calls, as messages name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Call {
    Init = 1,
    /// The end of `skt_init`, when the run is open.
    Opened = 2,
    Restore = 3,
    Checkpoint = 4,
    Due = 5,
    Done = 6,
    Later = 7,
    Begin = 8,
    Wait = 9,
    Images = 10,
}

named!(Call {
    Init: "skt_init",
    Opened: "skt_init",
    Restore: "skt_restore",
    Checkpoint: "skt_checkpoint",
    Due: "skt_due",
    Done: "skt_finalize(1)",
    Later: "skt_finalize(0)",
    Begin: "skt_checkpoint_begin",
    Wait: "skt_checkpoint_wait",
    Images: "skt_images_wait",
});

impl Call {
    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&call| call as u8 == number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum WordKind {
    Enter = 1,
    Roll = 2,
    GaveUp = 3,
    Stop = 4,
    Failed = 5,
}

impl WordKind {
    const ALL: [Self; 5] = [Self::Enter, Self::Roll, Self::GaveUp, Self::Stop, Self::Failed];
}

/// A message: which call it is about, and what is wrong if anything is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    kind: WordKind,
    call: Call,
    /// The number of the agreement; messages of an earlier one are late and ignored.
    number: u32,
    stop: Option<Stop>,
}

impl Word {
    fn new(kind: WordKind, call: Call, number: u32, stop: Option<&Stop>) -> Self {
        Self { kind, call, number, stop: stop.cloned() }
    }

    /// Layout: kind, call, whether it is over, 0, code (i32), bytes of the text (u32), number
    /// (u32), text.
    fn encode(&self) -> [u8; WORD_BYTES] {
        let mut bytes = [0; WORD_BYTES];
        (bytes[0], bytes[1]) = (self.kind as u8, self.call as u8);
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        if let Some(stop) = &self.stop {
            let text = cut(&stop.text, TEXT_BYTES).as_bytes();
            bytes[2] = u8::from(stop.is_over);
            bytes[4..8].copy_from_slice(&(stop.code as i32).to_le_bytes());
            bytes[8..12].copy_from_slice(&(text.len() as u32).to_le_bytes());
            bytes[16..16 + text.len()].copy_from_slice(text);
        }
        bytes
    }

    fn decode(bytes: &[u8; WORD_BYTES]) -> Option<Self> {
        let kind = WordKind::ALL.into_iter().find(|&kind| kind as u8 == bytes[0])?;
        let number = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).expect("four bytes");
        let code = Code::from_number(i32::from_le_bytes(number(4)))?;
        let len = u32::from_le_bytes(number(8)) as usize;
        let text = String::from_utf8_lossy(bytes.get(16..16 + len)?).into_owned();
        let stop = (code != Code::Success).then_some(Stop { code, text, is_over: bytes[2] != 0 });
        let number = u32::from_le_bytes(number(12));
        Some(Self { kind, call: Call::from_number(bytes[1])?, number, stop })
    }
}

/// The beginning of a text, up to `bytes` bytes of whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The ranks of a job, as they notify each other of their calls.
pub(crate) struct Control {
    comm: MpiComm,
    timeout: Duration,
    /// The number of the last agreement.
    number: Cell<u32>,
    /// Messages that MPI has not taken yet; those left at the end keep their memory.
    sent: RefCell<Vec<Box<dyn SendRequest>>>,
}

impl Control {
    /// The ranks of `comm`, which serves nothing else.
    pub(crate) fn new(comm: MpiComm, timeout_seconds: f64) -> Self {
        let timeout = Duration::from_secs_f64(timeout_seconds);
        Self { comm, timeout, number: Cell::new(0), sent: RefCell::default() }
    }

    pub(crate) fn comm(&self) -> &MpiComm {
        &self.comm
    }

    /// Returns when all ranks have made this call and none has anything wrong: whether something
    /// `is_so` on any rank. Collective, unless a rank makes a mistake. While this rank waits, it
    /// calls `while_waiting` repeatedly.
    ///
    /// # Errors
    /// The first rank with something wrong, in words that name it, on all ranks; a rank that does
    /// not come in time; ranks in different calls; the error of a rank's `while_waiting`, on all
    /// ranks.
    pub(crate) fn agree(
        &self,
        call: Call,
        wrong: Option<&Stop>,
        is_so: bool,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let mut failed = None;
        let mut noted = || while_waiting().inspect_err(|stop| failed = Some(stop.clone()));
        let agreed = self.agree_while(call, wrong, is_so, &mut noted);
        if let Some(stop) = failed {
            // This rank has entered the agreement, so the others wait for it without a limit.
            self.notify_failure(call, &stop);
        }
        agreed
    }

    fn agree_while(
        &self,
        call: Call,
        wrong: Option<&Stop>,
        is_so: bool,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let mine = self.enter(call, wrong);
        let words = words(self.comm.rank(), call, wrong.is_some(), is_so);
        // A rank other than 0 gives rank 0 up after twice the limit: rank 0 may call late and then
        // wait for others, but has reported by then who is missing.
        let patience = if self.comm.rank() == 0 { self.timeout } else { 2 * self.timeout };
        let mut roll =
            Roll { clock: WaitClock::new(patience), is_called: false, entered: BTreeSet::new() };
        let all = self.meet(words, &mine, Some(&mut roll), while_waiting)?;
        if is_right(all) {
            self.meet(words, &mine, None, while_waiting)?;
        }
        self.settle(all, mine, while_waiting)
    }

    /// Returns when all ranks have done a step of this call, on which they have agreed, and none
    /// has failed. Collective. The wait has no limit.
    ///
    /// # Errors
    /// The first rank that has failed, in words that name it, on all ranks.
    pub(crate) fn conclude(&self, call: Call, wrong: Option<&Stop>) -> Result<()> {
        let mine = self.enter(call, wrong);
        let words = words(self.comm.rank(), call, wrong.is_some(), false);
        let all = self.meet(words, &mine, None, &mut || Ok(()))?;
        self.settle(all, mine, &mut || Ok(())).map(drop)
    }

    /// Begins a new agreement. Returns the message of this rank in it.
    fn enter(&self, call: Call, wrong: Option<&Stop>) -> Word {
        self.number.set(self.number.get() + 1);
        Word::new(WordKind::Enter, call, self.number.get(), wrong)
    }

    /// Whether something is so on any rank, by the maxima that `all` ranks have found; or what is
    /// wrong. The first rank with which something is wrong sends that to the others.
    fn settle(
        &self,
        all: Words,
        mine: Word,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        match first_wrong(all) {
            Some(rank) if rank == self.comm.rank() => {
                let stop = mine.stop.expect("something is wrong here");
                let stop = Stop { text: format!("rank {rank}: {}", stop.text), ..stop };
                let word = Word::new(WordKind::Stop, mine.call, mine.number, Some(&stop));
                self.send_all(&word, TAG_STOP)?;
                Err(stop)
            }
            Some(rank) => Err(self.receive_stop(rank, &mine, while_waiting)?),
            None => different_calls(all).map_or(Ok(all[0] > 0), Err),
        }
    }

    /// Returns the maxima of the words of all ranks, when all have come; with `roll`, within its
    /// limit.
    fn meet(
        &self,
        words: Words,
        mine: &Word,
        mut roll: Option<&mut Roll>,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Words> {
        let mut maxima = self.comm.maxima(words).map_err(|why| lost(&why))?;
        let mut spins = 0;
        loop {
            if let Some(all) = maxima.test().map_err(|why| lost(&why))? {
                return Ok(all);
            }
            self.wait_once(&mut spins, while_waiting)?;
            match (self.comm.rank(), &mut roll) {
                (0, roll) => self.call_roll(mine, roll.as_deref_mut())?,
                (_, Some(roll)) => self.answer_roll(mine, roll)?,
                (_, None) => {}
            }
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

    /// Rank 0 asks who is there at half of the limit, and at the limit names those who are not.
    fn call_roll(&self, mine: &Word, roll: Option<&mut Roll>) -> Result<()> {
        let (mut entered, mut gave_up) = (BTreeSet::new(), BTreeSet::new());
        while let Some(rank) = self.comm.probe_any(TAG_UP).map_err(|why| lost(&why))? {
            let word = self.take(rank, TAG_UP)?;
            match word.kind {
                WordKind::GaveUp => _ = gave_up.insert(rank),
                _ if word.number == mine.number => _ = entered.insert(rank),
                _ => {}
            }
        }
        if !gave_up.is_empty() {
            let (ranks, call) = (names(gave_up), mine.call.name());
            let text = format!("rank 0 was late: {ranks} had given up waiting for its {call}");
            return Err(self.fail_all(mine, Stop::over(Code::Timeout, text))?);
        }
        let Some(roll) = roll else { return Ok(()) };
        roll.entered.append(&mut entered);
        let waited = roll.clock.poll();
        if !roll.is_called && waited > self.timeout / 2 {
            roll.is_called = true;
            self.send_all(&Word { kind: WordKind::Roll, stop: None, ..mine.clone() }, TAG_DOWN)?;
        }
        if waited >= self.timeout {
            let is_absent = |rank: &usize| !roll.entered.contains(rank);
            let absent: BTreeSet<usize> = self.others().filter(is_absent).collect();
            if !absent.is_empty() {
                return Err(self.fail_all(mine, late(mine.call, absent, self.timeout))?);
            }
        }
        Ok(())
    }

    /// A rank other than 0 answers when rank 0 asks, and gives rank 0 up when it has been silent
    /// for too long.
    fn answer_roll(&self, mine: &Word, roll: &mut Roll) -> Result<()> {
        if self.comm.probe(0, TAG_DOWN).map_err(|why| lost(&why))?
            && self.take(0, TAG_DOWN)?.number == mine.number
        {
            self.send(mine, 0, TAG_UP)?;
            roll.is_called = true;
            roll.clock.restart();
        }
        if !roll.clock.is_over() {
            return Ok(());
        }
        self.send(&Word { kind: WordKind::GaveUp, stop: None, ..mine.clone() }, 0, TAG_UP)?;
        Err(if roll.is_called {
            silent(mine.call, roll.clock.limit())
        } else {
            late(mine.call, BTreeSet::from([0]), roll.clock.limit())
        })
    }

    /// Returns what is wrong, as the first `rank` with which something is reports it.
    fn receive_stop(
        &self,
        rank: usize,
        mine: &Word,
        while_waiting: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Stop> {
        let mut spins = 0;
        loop {
            if self.comm.probe(rank, TAG_STOP).map_err(|why| lost(&why))? {
                return Ok(self.take(rank, TAG_STOP)?.stop.expect("it has sent what is wrong"));
            }
            self.wait_once(&mut spins, while_waiting)?;
            if self.comm.rank() == 0 {
                // That rank may have given up before it saw that all had come.
                self.call_roll(mine, None)?;
            }
        }
    }

    /// Ends the session of all ranks. Returns the error.
    fn fail_all(&self, mine: &Word, stop: Stop) -> Result<Stop> {
        let word = Word { kind: WordKind::Failed, stop: Some(stop.clone()), ..mine.clone() };
        self.send_all(&word, TAG_FAILED)?;
        Ok(stop)
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.comm.rank();
        (0..self.comm.size()).filter(move |&rank| rank != me)
    }

    fn send_all(&self, word: &Word, tag: Tag) -> Result<()> {
        self.others().try_for_each(|rank| self.send(word, rank, tag))
    }

    /// Sends without waiting for the receiver, which may never come.
    fn send(&self, word: &Word, rank: usize, tag: Tag) -> Result<()> {
        let doubles = WORD_BYTES / size_of::<f64>();
        let mut buffer = PageBuf::for_messages(doubles).map_err(|why| lost(&why))?;
        bytemuck::cast_slice_mut(&mut buffer[..]).copy_from_slice(&word.encode());
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

    fn take(&self, rank: usize, tag: Tag) -> Result<Word> {
        let mut bytes = [0; WORD_BYTES];
        self.comm.recv_bytes(&mut bytes, rank, tag).map_err(|why| lost(&why))?;
        let garbled = || Stop::over(Code::Internal, format!("a message of rank {rank} is garbled"));
        Word::decode(&bytes).ok_or_else(garbled)
    }

    /// Notifies all other ranks that this one has failed.
    pub(crate) fn notify_failure(&self, call: Call, stop: &Stop) {
        let text = format!("rank {}: {}", self.comm.rank(), stop.text);
        let stop = Stop::over(stop.code, text);
        let word = Word::new(WordKind::Failed, call, self.number.get(), Some(&stop));
        for rank in self.others() {
            // A rank that cannot be reached does not keep the others from being notified.
            let _ = self.send(&word, rank, TAG_FAILED);
        }
    }

    /// The failure that another rank has reported, if any.
    pub(crate) fn failed(&self) -> Result<Option<Stop>> {
        match self.comm.probe_any(TAG_FAILED).map_err(|why| lost(&why))? {
            Some(rank) => Ok(self.take(rank, TAG_FAILED)?.stop),
            None => Ok(None),
        }
    }
}

/// The wait of a rank in an agreement with a time limit.
struct Roll {
    clock: WaitClock,
    /// Whether rank 0 has asked who is there.
    is_called: bool,
    /// The ranks that have answered.
    entered: BTreeSet<usize>,
}

/// At the end of a run in order, messages that have arrived give their memory back.
impl Drop for Control {
    fn drop(&mut self) {
        keep_pending(self.sent.get_mut());
    }
}

/// Drops the messages that MPI has taken. A failure is reported by the call that waits for the
/// answer.
fn keep_pending(sent: &mut Vec<Box<dyn SendRequest>>) {
    sent.retain_mut(|sent| matches!(sent.test(), Ok(false)));
}

/// The error if these ranks have not called within `patience`.
fn late(call: Call, absent: BTreeSet<usize>, patience: Duration) -> Stop {
    let verb = if absent.len() == 1 { "has" } else { "have" };
    let (ranks, call, seconds) = (names(absent), call.name(), patience.as_secs_f64());
    let text =
        format!("{ranks} {verb} not called {call} within {seconds} s (option timeout_seconds)");
    Stop::over(Code::Timeout, text)
}

/// The error if rank 0 has asked who is there, and has been silent since.
fn silent(call: Call, patience: Duration) -> Stop {
    let (call, seconds) = (call.name(), patience.as_secs_f64());
    let text = format!(
        "rank 0 has called {call} and been silent for {seconds} s since (option timeout_seconds)"
    );
    Stop::over(Code::Timeout, text)
}

fn names(ranks: BTreeSet<usize>) -> String {
    let named: Vec<String> = ranks.iter().take(NAMED).map(usize::to_string).collect();
    let more = ranks.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::process::Command;

    use mpi::ffi;
    use skt_comm::mpi::MpiWorld;

    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for call in Call::ALL {
            for kind in WordKind::ALL {
                let plain = Word::new(kind, call, 7, None);
                assert_eq!(Word::decode(&plain.encode()), Some(plain));
                let stop = Stop::over(Code::Space, "region 3, for instance");
                let word = Word::new(kind, call, 7, Some(&stop));
                assert_eq!(Word::decode(&word.encode()), Some(word));
            }
        }
        assert_eq!(Word::decode(&[0; WORD_BYTES]), None);
        assert_eq!(Word::decode(&[0xff; WORD_BYTES]), None);
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

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let stop = Stop::new(Code::System, "x".to_owned() + &"\u{fc}".repeat(WORD_BYTES));
        let word = Word::decode(&Word::new(WordKind::Stop, Call::Init, 1, Some(&stop)).encode());
        let text = word.expect("a word").stop.expect("a reason").text;
        assert_eq!(text.len(), TEXT_BYTES - 1);
        assert!(stop.text.starts_with(&text));
    }

    /// The maxima over ranks in these calls, with something wrong on some.
    fn maxima(calls: &[(Call, bool)]) -> Words {
        let of_rank = |(rank, &(call, is_wrong))| words(rank, call, is_wrong, false);
        let all: Vec<Words> = calls.iter().enumerate().map(of_rank).collect();
        [0, 1, 2].map(|at| all.iter().map(|words| words[at]).max().expect("ranks"))
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
        assert_eq!(words(0, due, false, true).map(|word| word & 1)[0], 1);
    }

    #[test]
    fn many_ranks_are_named_in_one_line() {
        assert_eq!(names(BTreeSet::from([3])), "rank 3");
        assert_eq!(names((0..20).collect()), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
    }
}
