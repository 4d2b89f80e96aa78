//! The row exchange that overlaps with products: each rank sends each other rank its rows of U and
//! the displaced rows that go there, all at once, and computes until the rows are needed.
//!
//! No rank forwards anything, so no message waits for a third rank. Each row of U is sent P - 1
//! times by the rank that has it, as often as the ranks of a ring forward it.
//!
//! A rank sends up to 2 (P - 1) messages at once, with about ((1 - 1/P) NB + D/P) LocQ elements in
//! all, D and LocQ as in `binary_exchange`. An exchange takes one latency and these elements over
//! the bandwidth, and costs the solver only what the product of the other half does not hide.

use std::sync::Arc;

use super::{Plan, gather, rows_in};
use crate::blas::{Element, MatMut, MatRef};
use skt_comm::{Comm, PageBuf, RecvRequest, Result, SendRequest, Tag};

const TAG_U: Tag = 0x124;
const TAG_DISPLACED: Tag = 0x125;

/// An exchange in progress. Its rows in A must not change until `DirectExchange::finish`.
pub(crate) struct DirectExchange {
    plan: Arc<Plan>,
    width: usize,
    /// Doubles of a row in the messages.
    pitch: usize,
    /// This rank's rows of U, and its displaced rows that leave it; other ranks still receive them.
    own: [Arc<PageBuf>; 2],
    sends: Vec<Box<dyn SendRequest>>,
    /// For each rank in order: its rows of U, and its displaced rows that come to this rank.
    coming: Vec<Incoming>,
    rest: PageBuf,
}

enum Incoming {
    UnderWay(Box<dyn RecvRequest>),
    /// A message without rows, or from this rank to itself.
    Nothing(PageBuf),
}

/// An exchange whose rows have all arrived. Sends of this rank's rows may still be in progress.
pub(crate) struct ReceivedRows {
    own: [Arc<PageBuf>; 2],
    sends: Vec<Box<dyn SendRequest>>,
    /// For each rank in order: its rows of U, and its displaced rows that came to this rank.
    coming: Vec<PageBuf>,
    rest: PageBuf,
    plan: Arc<Plan>,
    width: usize,
}

impl DirectExchange {
    /// `buffer` has [`super::RowBuffers::rows_doubles`] doubles for the rows of the columns `a`.
    /// Collective over the process column; never waits.
    pub(crate) fn start<T: Element>(
        col: &Comm,
        plan: Arc<Plan>,
        a: MatRef<T>,
        buffer: PageBuf,
    ) -> Result<Self> {
        let (me, ranks) = (plan.me, 0..col.size());
        let (width, pitch) = (a.cols(), T::doubles(a.cols()));
        let own = [plan.mine.len(), plan.leaving(me).len()];
        let of_rank = |rank: usize| {
            if rank == me {
                [0, 0]
            } else {
                [plan.u_rows_from(rank).len(), plan.coming(rank).1.len()]
            }
        };
        let rows = own.into_iter().chain(ranks.clone().flat_map(of_rank));
        let mut parts = buffer.cut(rows.map(|rows| rows * pitch)).into_iter();
        let mut part = || parts.next().expect("a part for each message");
        let [mut u, mut leaving] = [part(), part()];
        let mut coming = Vec::with_capacity(2 * col.size());
        for (rank, tag) in ranks.clone().flat_map(|rank| [(rank, TAG_U), (rank, TAG_DISPLACED)]) {
            let part = part();
            coming.push(match part.len() {
                0 => Incoming::Nothing(part),
                len => Incoming::UnderWay(col.irecv(part, 0..len, rank, tag)?),
            });
        }
        let rest = part();
        gather(a, plan.mine.iter().copied(), &mut u);
        gather(a, plan.leaving(me).iter().map(|row| row.from), &mut leaving);
        let (own, sends) = ([u, leaving].map(Arc::new), Vec::new());
        let mut exchange = Self { plan, width, pitch, own, sends, coming, rest };
        // The next rank first, so that the ranks do not all send to one rank at a time.
        ranks.skip(1).try_for_each(|step| exchange.send(col, (me + step) % col.size()))?;
        Ok(exchange)
    }

    fn send(&mut self, col: &Comm, rank: usize) -> Result<()> {
        let leaving = self.plan.leaving(self.plan.me);
        let first = leaving.partition_point(|row| row.taker < rank);
        let end = leaving.partition_point(|row| row.taker <= rank);
        let [u, displaced] = &self.own;
        let messages = [
            (u, 0..u.len(), TAG_U),
            (displaced, first * self.pitch..end * self.pitch, TAG_DISPLACED),
        ];
        for (part, doubles, tag) in messages {
            if !doubles.is_empty() {
                self.sends.push(col.isend(Arc::clone(part), doubles, rank, tag)?);
            }
        }
        Ok(())
    }

    /// Progresses the messages; never waits.
    pub(crate) fn progress(&mut self) -> Result<()> {
        for coming in &mut self.coming {
            if let Incoming::UnderWay(message) = coming {
                message.test()?;
            }
        }
        self.sends.iter_mut().try_for_each(|message| message.test().map(drop))
    }

    /// Waits for the rows, and writes the displaced ones to their rows in `a`, the columns that
    /// [`DirectExchange::start`] had. The rows of the diagonal block stay stale.
    pub(crate) fn finish<T: Element>(self, mut a: MatMut<T>) -> Result<ReceivedRows> {
        let Self { plan, width, own, sends, coming, rest, .. } = self;
        assert_eq!(a.cols(), width, "the columns that were exchanged");
        let coming: Result<Vec<PageBuf>> = coming.into_iter().map(Incoming::wait).collect();
        let coming = coming?;
        plan.move_staying(&mut a);
        for (rank, rows) in coming.iter().skip(1).step_by(2).enumerate() {
            let places = plan.coming(rank).1.iter().filter(|_| rank != plan.me);
            for (row, content) in places.zip(rows_in(rows, width)) {
                a.row_mut(row.to).copy_from_slice(content);
            }
        }
        Ok(ReceivedRows { own, sends, coming, rest, plan, width })
    }
}

impl Incoming {
    fn wait(self) -> Result<PageBuf> {
        match self {
            Self::UnderWay(message) => message.wait(),
            Self::Nothing(part) => Ok(part),
        }
    }
}

impl ReceivedRows {
    pub(crate) fn rows<T: Element>(&self) -> Vec<&[T]> {
        let mut rows: Vec<&[T]> = vec![&[]; self.plan.u_rows.len()];
        for (rank, coming) in self.coming.iter().step_by(2).enumerate() {
            let part = if rank == self.plan.me { &*self.own[0] } else { coming };
            let places = self.plan.u_rows[self.plan.u_rows_from(rank)].iter();
            places.zip(rows_in(part, self.width)).for_each(|(&place, row)| rows[place] = row);
        }
        rows
    }

    /// Waits until this rank's sends are complete, and returns the buffer.
    pub(crate) fn into_buffer(self) -> Result<PageBuf> {
        self.sends.into_iter().try_for_each(|message| message.wait())?;
        let own = self.own.map(|part| Arc::try_unwrap(part).ok().expect("all messages are sent"));
        Ok(PageBuf::join(own.into_iter().chain(self.coming).chain([self.rest])))
    }
}
