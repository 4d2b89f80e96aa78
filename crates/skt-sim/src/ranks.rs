//! What all simulated ranks have in common: they are fibers of one thread, and meet in barriers and
//! splits of groups.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use skt_comm::copied::{Place, SplitArgs};

/// Bytes of a rank's stack. Only the pages that it touches are ever mapped.
const STACK_BYTES: usize = 512 << 10;

thread_local! {
    /// Stacks for reuse: a test makes many thousands of runs.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    /// The yielder of the rank that runs on this thread; it suspends the rank.
    static RUNNING: Cell<*const Yielder<(), usize>> = const { Cell::new(ptr::null()) };
}

/// Runs `body` as each of `size` ranks, `first` first. When a rank has ended, `leave` gets its
/// number and its failure, and returns the rank that continues; `size` after the last.
pub(crate) fn run_all<T, E: Display>(
    size: usize,
    first: usize,
    body: impl Fn(usize) -> Result<T, E>,
    leave: impl Fn(usize, Option<&str>) -> usize,
) -> Result<Vec<Result<T, E>>, Box<dyn Any + Send>> {
    let results: RefCell<Vec<Option<Result<T, E>>>> =
        RefCell::new((0..size).map(|_| None).collect());
    let panicked: RefCell<Option<Box<dyn Any + Send>>> = RefCell::new(None);
    let mut ranks: Vec<Coroutine<(), usize, usize>> = (0..size)
        .map(|rank| {
            let (results, panicked, body, leave) = (&results, &panicked, &body, &leave);
            let body = move |yielder: &Yielder<(), usize>, ()| {
                RUNNING.set(yielder);
                let failure = match catch_unwind(AssertUnwindSafe(|| body(rank))) {
                    Ok(result) => {
                        let failure = result.as_ref().err().map(|e| format!("rank {rank}: {e}"));
                        results.borrow_mut()[rank] = Some(result);
                        failure
                    }
                    Err(panic) => {
                        panicked.borrow_mut().get_or_insert(panic);
                        Some(format!("rank {rank} panicked"))
                    }
                };
                leave(rank, failure.as_deref())
            };
            let stack = STACKS.with_borrow_mut(Vec::pop);
            let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("a stack"));
            // SAFETY: `ranks` is dropped before what the bodies borrow.
            unsafe { Coroutine::with_stack_unchecked(stack, body) }
        })
        .collect();
    let outside = RUNNING.get();
    let mut next = first;
    while next < size {
        let (CoroutineResult::Yield(to) | CoroutineResult::Return(to)) = ranks[next].resume(());
        next = to;
    }
    RUNNING.set(outside);
    let stacks = ranks.into_iter().map(Coroutine::into_stack);
    STACKS.with_borrow_mut(|pool| pool.extend(stacks));
    match panicked.into_inner() {
        Some(panic) => Err(panic),
        None => Ok(results.into_inner().into_iter().map(|r| r.expect("it ended")).collect()),
    }
}

/// Continues as rank `to`; returns when `from` continues.
pub(crate) fn switch(from: usize, to: usize) {
    // SAFETY: null outside of ranks, else the yielder of the running rank, which lives: each sets
    // it when it starts and continues, and a panic that would leave a rank ends the process.
    let running = unsafe { RUNNING.get().as_ref() }.expect("a rank has left its thread");
    if from != to {
        running.suspend(to);
        RUNNING.set(running);
    }
}

/// Identifies a barrier or a split: the group, and its barriers and splits so far.
pub(crate) type MeetingId = (u32, u64);

/// A barrier or a split that some members have entered.
struct Meeting {
    args: Vec<Option<SplitArgs>>,
    left: usize,
    /// The first of the group numbers that a split assigns.
    base: u32,
}

/// The barriers and splits that not all members have left.
#[derive(Default)]
pub(crate) struct Meetings {
    open: HashMap<MeetingId, Meeting>,
    /// The barriers and splits so far that a rank has entered, by its world rank and group.
    rounds: HashMap<(usize, u32), u64>,
    groups: u32,
}

impl Meetings {
    /// A member comes with `args` to the next meeting of its group. Returns that meeting, and
    /// whether all have come.
    pub(crate) fn enter(&mut self, place: &Place, args: SplitArgs) -> (MeetingId, bool) {
        let size = place.members.len();
        let rounds = self.rounds.entry((place.me(), place.group)).or_default();
        let id = (place.group, *rounds);
        *rounds += 1;
        let meeting = self.open.entry(id).or_insert_with(|| {
            // Group 0 is the world.
            let base = self.groups + 1;
            self.groups += size as u32;
            Meeting { args: vec![None; size], left: 0, base }
        });
        meeting.args[place.rank] = Some(args);
        (id, meeting.args.iter().all(Option::is_some))
    }

    /// If all have come: the colours and keys of all, and the first of the numbers for new groups.
    pub(crate) fn leave(&mut self, id: MeetingId) -> Option<(Vec<SplitArgs>, u32)> {
        let meeting = self.open.get_mut(&id).expect("not all have left");
        let args: Vec<_> = meeting.args.iter().copied().collect::<Option<_>>()?;
        let base = meeting.base;
        meeting.left += 1;
        if meeting.left == args.len() {
            self.open.remove(&id);
        }
        Some((args, base))
    }
}
