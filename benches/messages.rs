//! Messages, bytes and partners of ranks in the parts of a job, over the number of ranks.
//! `cargo bench --bench messages -- --help`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use clap::Parser;
use skt_comm::{
    Comm, CommError, PageBuf, RecvRequest, SendRequest, Tag, Transport, collect, threads,
};
use skt_config::{Format, RunSpec, ValidationRules, read_draft, validate};
use skt_run::events::{Phase, RunEvents, Saved};
use skt_run::job::{self, JobError, JobOptions};
use skt_run::protect::Settings;
use skt_run::record::RunFacts;
use skt_solver::blas::library::use_one_thread;

/// Ranks of a checkpoint's group.
const GROUP: usize = 4;
/// Blocking factor.
const NB: usize = 8;

/// Runs small jobs, each rank on a thread, and counts what ranks receive: an unprotected one, and a
/// protected one that fails after its first checkpoint and is restarted. Prints tables over the
/// number of ranks, and by which of log2 P, P and P^2 each number grows at the end.
#[derive(Parser)]
struct Args {
    /// Numbers of ranks, powers of two
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64, 256, 1024])]
    ranks: Vec<usize>,
    /// Ranks of a host
    #[arg(long, default_value_t = 16)]
    ranks_per_host: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// What a rank has received, and its partners.
#[derive(Clone, Default)]
struct Counts {
    messages: usize,
    /// Barriers and splits, which the MPI library does in its own way.
    collectives: usize,
    /// Bytes from ranks of other hosts.
    remote_bytes: usize,
    partners: BTreeSet<usize>,
    /// The ranks of groups that the size of the job does not enlarge.
    group: BTreeSet<usize>,
}

/// Only two threads compute at a time: a BLAS has buffers for some threads only.
struct Permits(Mutex<usize>, Condvar);

static PERMITS: Permits = Permits(Mutex::new(2), Condvar::new());

impl Permits {
    fn take(&self) {
        let mut free = self.0.lock().expect("permits");
        while *free == 0 {
            free = self.1.wait(free).expect("permits");
        }
        *free -= 1;
    }

    fn give(&self) {
        *self.0.lock().expect("permits") += 1;
        self.1.notify_one();
    }

    /// Calls a function that may wait for other ranks.
    fn without<T>(&self, call: impl FnOnce() -> T) -> T {
        self.give();
        let done = call();
        self.take();
        done
    }
}

/// A job whose messages are counted.
struct Job {
    ranks_per_host: usize,
    counts: Vec<Mutex<Counts>>,
    /// Whether the job fails at the next call of rank 0.
    fails: AtomicBool,
}

impl Job {
    fn counts(&self, rank: usize) -> Counts {
        self.counts[rank].lock().expect("counts").clone()
    }
}

/// A communicator that counts the messages of its rank.
struct Counting {
    plain: Comm,
    /// The ranks of the group in the job.
    members: Vec<usize>,
    job: Arc<Job>,
}

impl Counting {
    fn me(&self) -> usize {
        self.members[self.plain.rank()]
    }

    /// A call of the transport, during which other ranks compute.
    fn call<T>(&self, call: impl FnOnce(&Comm) -> skt_comm::Result<T>) -> skt_comm::Result<T> {
        let done = PERMITS.without(|| call(&self.plain));
        if self.me() == 0 && self.job.fails.load(Ordering::Relaxed) {
            return Err(CommError::Killed(0));
        }
        done
    }

    fn count(&self, other: usize, received: Option<usize>) {
        let (me, other) = (self.me(), self.members[other]);
        let mut counts = self.job.counts[me].lock().expect("counts");
        counts.partners.insert(other);
        if let Some(bytes) = received {
            counts.messages += 1;
            if me / self.job.ranks_per_host != other / self.job.ranks_per_host {
                counts.remote_bytes += bytes;
            }
        }
    }

    /// Counts a collective of the transport, with the partners of a dissemination.
    fn count_collective(&self) {
        let (rank, size) = (self.rank(), self.size());
        for step in (0..usize::BITS).map(|bit| 1 << bit).take_while(|step| *step < size) {
            self.count((rank + step) % size, None);
            self.count((rank + size - step) % size, None);
        }
        self.job.counts[self.me()].lock().expect("counts").collectives += 1;
    }
}

/// A receive of [`Counting`]: other ranks compute while this one waits.
struct Receiving(Box<dyn RecvRequest>);

impl RecvRequest for Receiving {
    fn test(&mut self) -> skt_comm::Result<bool> {
        PERMITS.without(|| self.0.test())
    }

    fn wait(self: Box<Self>) -> skt_comm::Result<PageBuf> {
        PERMITS.without(|| self.0.wait())
    }
}

impl Transport for Counting {
    fn rank(&self) -> usize {
        self.plain.rank()
    }

    fn size(&self) -> usize {
        self.plain.size()
    }

    fn split(&self, color: Option<u32>, key: u32) -> skt_comm::Result<Option<Comm>> {
        self.count_collective();
        let Some(plain) = self.call(|plain| plain.split(color, key))? else { return Ok(None) };
        let members = PERMITS.without(|| collect::all_gather(&plain, &(self.me() as u64)));
        let members: Vec<usize> = members?.into_iter().map(|rank| rank as usize).collect();
        if members.len() == GROUP {
            self.job.counts[self.me()].lock().expect("counts").group.extend(&members);
        }
        Ok(Some(Comm::new(Self { plain, members, job: Arc::clone(&self.job) })))
    }

    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> skt_comm::Result<()> {
        self.count(dest, None);
        self.call(|plain| plain.send_bytes(data, dest, tag))
    }

    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> skt_comm::Result<()> {
        sends.iter().for_each(|&(_, dest, _)| self.count(dest, None));
        recvs.iter().for_each(|(data, source, _)| self.count(*source, Some(data.len())));
        self.call(|plain| plain.exchange_bytes(sends, recvs))
    }

    fn isend(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> skt_comm::Result<Box<dyn SendRequest>> {
        self.count(dest, None);
        self.call(|plain| plain.isend(buf, range, dest, tag))
    }

    fn irecv(
        &self,
        buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> skt_comm::Result<Box<dyn RecvRequest>> {
        self.count(source, Some(size_of::<f64>() * range.len()));
        let receive = self.call(|plain| plain.irecv(buf, range, source, tag))?;
        Ok(Box::new(Receiving(receive)))
    }

    fn probe(&self, source: usize, tag: Tag) -> skt_comm::Result<bool> {
        self.call(|plain| plain.probe(source, tag))
    }

    fn barrier(&self) -> skt_comm::Result<()> {
        self.count_collective();
        self.call(|plain| plain.barrier())
    }

    fn host(&self) -> String {
        format!("node{:05}", self.me() / self.job.ranks_per_host)
    }

    fn abort(&self, reason: &str, exit_code: i32) -> CommError {
        self.plain.abort(reason, exit_code)
    }
}

/// Notes what rank 0 and a middle rank have received at the ends of the parts of a job.
struct Recorder {
    job: Arc<Job>,
    noted: Vec<(&'static str, [Counts; 2])>,
    /// Whether the job fails after its first checkpoint.
    fails: bool,
}

impl Recorder {
    fn note(&mut self, part: &'static str) {
        let ranks = [0, middle(self.job.counts.len())];
        self.noted.push((part, ranks.map(|rank| self.job.counts(rank))));
    }
}

impl RunEvents for Recorder {
    fn run_begins(&mut self, _: &RunSpec, _: RunFacts, _: Vec<String>) -> Result<(), String> {
        self.note("setup");
        Ok(())
    }

    fn phase(&mut self, phase: Phase) {
        match phase {
            Phase::Generate { .. } => self.note("start"),
            Phase::Done => self.note("solve"),
            _ => {}
        }
    }

    fn saved(&mut self, _: &Saved) {
        if self.noted.last().is_none_or(|(part, _)| *part != "checkpoint") {
            self.note("checkpoint");
        }
        self.job.fails.store(self.fails, Ordering::Relaxed);
    }
}

/// Runs a job to its end, or its failure; returns what was noted.
fn run(args: &Args, ranks: usize, toml: &str, fails: bool) -> Result<Recorder, String> {
    let failed = |why: &dyn Display| format!("{ranks} ranks: {why}");
    let (draft, _) =
        read_draft(toml.as_bytes(), "bench", Format::from_path("x.toml".as_ref()), false)
            .map_err(|why| failed(&why))?;
    let rules =
        ValidationRules { lenient: false, ranks: Some(ranks), source: "bench", is_mxp: false };
    let checked = validate(&draft, &rules).map_err(|why| failed(&why))?;
    let settings =
        Settings::read(&checked.checkpoint, &checked.spec).map_err(|why| failed(&why))?;
    let job = Arc::new(Job {
        ranks_per_host: args.ranks_per_host,
        counts: (0..ranks).map(|_| Mutex::default()).collect(),
        fails: AtomicBool::new(false),
    });
    let ended = threads::run(ranks, |plain| {
        let is_first = plain.rank() == 0;
        PERMITS.take();
        let members = (0..ranks).collect();
        let comm = Comm::new(Counting { plain, members, job: Arc::clone(&job) });
        let mut events = Recorder { job: Arc::clone(&job), noted: Vec::new(), fails };
        let options = JobOptions::default();
        let ran = job::run(&comm, &checked.spec, &settings, &options, &mut events);
        PERMITS.give();
        if is_first {
            events.note("end");
        }
        match ran {
            Err(why) if fails => {
                comm.abort(&why.to_string(), 1);
                Ok(events)
            }
            ran => ran.map(|_| events),
        }
    });
    let first: Result<Recorder, JobError> = ended.into_iter().next().expect("rank 0");
    first.map_err(|why| failed(&why))
}

/// The numbers of a row: messages and collectives, bytes, new partners, and those of them beyond
/// row, column and group.
fn numbers(rank: usize, before: &Counts, after: &Counts, q: usize) -> [usize; 5] {
    let partners: BTreeSet<usize> = after.partners.difference(&before.partners).copied().collect();
    let is_near = |other: &usize| {
        other / q == rank / q || other % q == rank % q || after.group.contains(other)
    };
    [
        after.messages - before.messages,
        after.collectives - before.collectives,
        after.remote_bytes - before.remote_bytes,
        partners.len(),
        partners.iter().filter(|other| !is_near(other)).count(),
    ]
}

/// How a number may grow with the number of ranks.
type Law = fn(f64) -> f64;

/// The numbers of a part, each with its number of ranks.
type Values = Vec<(usize, [usize; 5])>;

/// How a number grows: the name of the closest of log2 P, P and P^2, by the last two numbers of
/// ranks, with the factor at the last one.
fn fit(ranks: [usize; 2], values: [usize; 2]) -> String {
    let [few, many] = ranks.map(|ranks| ranks as f64);
    let [first, last] = values.map(|value| value as f64);
    if first == last {
        return last.to_string();
    }
    let laws: [(&str, Law); 4] =
        [("", |_| 1.0), (" log2 P", f64::log2), (" P", |p| p), (" P^2", |p| p * p)];
    let error = |law: Law| ((last.max(1.0) / first.max(1.0)) / (law(many) / law(few))).ln();
    let closest = laws.iter().min_by(|a, b| error(a.1).abs().total_cmp(&error(b.1).abs()));
    let (name, law) = closest.expect("four laws");
    format!("{:.2}{name}", last / law(many))
}

/// The grid of `ranks`, which is a power of two.
fn grid(ranks: usize) -> (usize, usize) {
    let p = 1 << (ranks.ilog2() / 2);
    (p, ranks / p)
}

fn tables(args: &Args) -> Result<(), String> {
    println!("| part | rank | P | messages | MPI's | bytes of other hosts | new partners | far |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut rows: BTreeMap<(&str, &str, usize), Values> = BTreeMap::new();
    for &ranks in &args.ranks {
        let (p, q) = grid(ranks);
        let folder = tempfile::tempdir().map_err(|why| why.to_string())?;
        let toml = |method: &str| {
            format!(
                "n = {}\nnb = {NB}\np = {p}\nq = {q}\ntransport = \"messages\"\npin = \"none\"\n\
                 [checkpoint]\nmethod = \"{method}\"\nevery = \"1p!\"\ngroup_size = {GROUP}\n\
                 run_id = \"messages{ranks}\"\nstore = \"file:{}\"\n",
                4 * NB * q,
                folder.path().display()
            )
        };
        let jobs = [("none", "none", false), ("self", "self", true), ("restart", "self", false)];
        for (job, method, fails) in jobs {
            let recorder = run(args, ranks, &toml(method), fails)?;
            let mut before: [Counts; 2] = Default::default();
            for (part, after) in &recorder.noted {
                for (index, rank) in [0, middle(ranks)].into_iter().enumerate() {
                    let numbers = numbers(rank, &before[index], &after[index], q);
                    let [messages, collectives, bytes, partners, far] = numbers;
                    println!(
                        "| {job}: {part} | {rank} | {ranks} | {messages} | {collectives} | {bytes} | \
                         {partners} | {far} |"
                    );
                    rows.entry((job, part, index)).or_default().push((ranks, numbers));
                }
                before.clone_from(after);
            }
        }
    }
    for ((job, part, index), values) in rows {
        if let [.., (few, first), (many, last)] = values[..] {
            let fits: [String; 5] =
                std::array::from_fn(|at| fit([few, many], [first[at], last[at]]));
            let rank = ["0", "middle"][index];
            println!("| {job}: {part} | {rank} | P | {} |", fits.join(" | "));
        }
    }
    Ok(())
}

/// A rank that is neither the first of a row or host nor a power of two.
fn middle(ranks: usize) -> usize {
    ranks / 2 + 1
}

fn main() -> ExitCode {
    use_one_thread();
    match tables(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("messages: {error}");
            ExitCode::FAILURE
        }
    }
}
