//! [`Comm`] over MPI.
//!
//! It uses the raw calls of the `mpi` crate's bindings, not its safe layer, because that layer
//! drops return codes, which a benchmark that survives failures must see. Every group returns
//! errors instead of aborting.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use mpi::ffi;
use skt_host::exit::Exit;
use skt_host::messages;
use skt_host::waits::Announced;

use super::{Comm, CommError, PageBuf, RecvRequest, Result, SendRequest, Tag, Transport};

mod adopt;
mod few;
mod maxima;
mod subgroup;
mod ulfm;
mod watched;

use few::Few;
pub use maxima::MpiMaxima;
use subgroup::Subgroup;
pub use ulfm::{NoUlfm, Ulfm};
pub use watched::FailureWatch;
use watched::WatchedComm;

/// MPI counts are C ints: longer messages are sent in pieces of this many bytes.
const PIECE_BYTES: usize = 1 << 30;

/// The exit code of a job in which a rank panicked: that of Rust's panics.
pub const PANIC_EXIT_CODE: i32 = 101;
/// Seconds after which a process that hangs in `MPI_Abort` ends.
const ABORT_SECONDS: u32 = 10;

/// The initialized MPI library; finalizes it when dropped, on the thread that initialized it. With
/// [`Ulfm`] it does not finalize, which would wait for lost ranks; all have agreed on the end
/// before.
pub struct MpiWorld(PhantomData<*const ()>);

impl MpiWorld {
    /// Initializes MPI, which must provide `MPI_THREAD_SERIALIZED`, for calls from one thread of a
    /// process at a time. Afterwards a panic on any thread of the process ends the whole job with
    /// [`PANIC_EXIT_CODE`], because the other ranks would not learn of it.
    pub fn init() -> Result<Self> {
        let mut already: c_int = 0;
        // SAFETY: may be called at any time.
        check("MPI_Initialized", unsafe { ffi::MPI_Initialized(&mut already) })?;
        if already != 0 {
            let what = "MPI is initialized already; one run a process".into();
            return Err(CommError::Transport { call: "MPI_Init_thread", what });
        }
        let mut provided: c_int = 0;
        let _wait = Announced::begin("all ranks in MPI_Init");
        // SAFETY: MPI is not initialized; null argc and argv are allowed since MPI-2.
        check("MPI_Init_thread", unsafe {
            ffi::MPI_Init_thread(
                ptr::null_mut(),
                ptr::null_mut(),
                ffi::RSMPI_THREAD_SERIALIZED,
                &mut provided,
            )
        })?;
        // SAFETY: plain integer constants of the library.
        if provided < unsafe { ffi::RSMPI_THREAD_SERIALIZED } {
            let what = "this MPI does not provide MPI_THREAD_SERIALIZED; build it with support for threads".into();
            return Err(CommError::Transport { call: "MPI_Init_thread", what });
        }
        end_job_on_panic();
        ulfm::begin()?;
        Ok(Self(PhantomData))
    }

    /// The group of all ranks.
    pub fn comm(&self) -> Result<Comm> {
        self.mpi_comm().map(Comm::new)
    }

    /// The group of all ranks, whose waits end once the watch fails; see [`MpiComm::watched`].
    pub fn watched_comm(&self, watch: FailureWatch) -> Result<Comm> {
        self.mpi_comm().map(|comm| comm.watched(watch))
    }

    fn mpi_comm(&self) -> Result<MpiComm> {
        // SAFETY: MPI is initialized; the world communicator is never freed.
        MpiComm::wrap(unsafe { ffi::RSMPI_COMM_WORLD }, false)
    }

    /// The first line of the MPI library's version string.
    pub fn library_version(&self) -> String {
        let mut text = [0u8; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
        let mut len: c_int = 0;
        // SAFETY: the buffer has the length that MPI demands.
        let code = unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast(), &mut len) };
        if check("MPI_Get_library_version", code).is_err() {
            return "unknown MPI".into();
        }
        let text = String::from_utf8_lossy(&text[..len as usize]).into_owned();
        // Some versions count the terminating zero.
        let line = text.lines().next().unwrap_or_default();
        line.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned()
    }
}

impl Drop for MpiWorld {
    fn drop(&mut self) {
        // After a panic the other ranks may never call finalize, so this does not wait for them.
        if !std::thread::panicking() && !ulfm::is_on() {
            let _wait = Announced::begin("all ranks in MPI_Finalize");
            // SAFETY: initialized in `init`, finalized once.
            unsafe { ffi::MPI_Finalize() };
        }
    }
}

fn end_job(exit_code: i32) -> ! {
    // SAFETY: plain calls. MPI_Abort may come from another thread than the one that is in MPI; if
    // it hangs for that reason, the alarm ends this process, and the launcher ends the others.
    unsafe {
        libc::alarm(ABORT_SECONDS);
        ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, exit_code);
    }
    std::process::abort()
}

fn end_job_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        let mut finalized: c_int = 0;
        // SAFETY: may be called at any time.
        let code = unsafe { ffi::MPI_Finalized(&mut finalized) };
        if code == ffi::MPI_SUCCESS as c_int && finalized == 0 {
            messages::print(format_args!("error: a panic ends all ranks of the job"));
            end_job(PANIC_EXIT_CODE);
        }
    }));
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    ulfm::revoke();
    Err(code_error(call, code))
}

/// The library's description of an error.
fn code_error(call: &'static str, code: c_int) -> CommError {
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len: c_int = 0;
    // SAFETY: the buffer has the length that MPI demands.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut len) };
    let what = String::from_utf8_lossy(&text[..len.max(0) as usize]).into_owned();
    CommError::Transport { call, what }
}

fn byte_type() -> ffi::MPI_Datatype {
    // SAFETY: a constant handle of the library.
    unsafe { ffi::RSMPI_UINT8_T }
}

/// A group of MPI ranks: all ranks of a communicator, or some of them.
pub struct MpiComm {
    raw: ffi::MPI_Comm,
    rank: usize,
    size: usize,
    owned: bool,
    /// The communicator's ranks that belong to the group, if not all do.
    subgroup: Option<Arc<Subgroup>>,
    /// Prevents sharing among threads: with an MPI whose handles are integers the compiler would
    /// allow it.
    _not_sync: PhantomData<Cell<()>>,
}

// SAFETY: a handle; MPI calls are made by one thread at a time (serialized).
unsafe impl Send for MpiComm {}

impl MpiComm {
    fn wrap(raw: ffi::MPI_Comm, owned: bool) -> Result<Self> {
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: `raw` is a live communicator, for these three calls.
        check("MPI_Comm_set_errhandler", unsafe {
            ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN)
        })?;
        // SAFETY: as above.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(raw, &mut rank) })?;
        // SAFETY: as above.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(raw, &mut size) })?;
        let (rank, size) = (rank as usize, size as usize);
        Ok(Self { raw, rank, size, owned, subgroup: None, _not_sync: PhantomData })
    }

    /// Watches the waits of this group: they end with the error of the watch once it fails.
    pub fn watched(self, watch: FailureWatch) -> Comm {
        Comm::new(WatchedComm::new(self, watch))
    }

    /// Another handle of this group, which must not outlive it.
    fn view(&self) -> Self {
        Self { owned: false, subgroup: self.subgroup.clone(), ..*self }
    }

    /// Splits the group as [`Transport::split`] does.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Self>> {
        if ulfm::is_on() {
            return subgroup::split(self, color, key);
        }
        // SAFETY: a constant of the library.
        let none = unsafe { ffi::RSMPI_UNDEFINED };
        let mut raw = self.raw;
        // SAFETY: a live communicator; all ranks call this.
        check("MPI_Comm_split", unsafe {
            ffi::MPI_Comm_split(
                self.raw,
                color.map_or(none, |c| c as c_int),
                key as c_int,
                &mut raw,
            )
        })?;
        color.map(|_| Self::wrap(raw, true)).transpose()
    }

    fn begin_send(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> Result<MpiSend> {
        let data: &[u8] = bytemuck::cast_slice(&buf[range]);
        let (ptr, len) = (data.as_ptr(), data.len());
        let mut send = MpiSend { requests: Requests::new(), buf: Some(buf) };
        // SAFETY: MpiSend keeps the buffer alive until the request is complete, also
        // on an error between two pieces; an Arc that is shared is not written to.
        unsafe { self.post_send(ptr, len, dest, tag, &mut send.requests)? };
        Ok(send)
    }

    fn begin_recv(
        &self,
        mut buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> Result<MpiRecv> {
        let data: &mut [u8] = bytemuck::cast_slice_mut(&mut buf[range]);
        let (ptr, len) = (data.as_mut_ptr(), data.len());
        let mut recv = MpiRecv { requests: Requests::new(), buf: Some(buf) };
        // SAFETY: MpiRecv owns the buffer, whose pages do not move, and returns it only once
        // complete.
        unsafe { self.post_recv(ptr, len, source, tag, &mut recv.requests)? };
        Ok(recv)
    }

    /// The communicator's number for a rank of this group.
    fn peer(&self, rank: usize) -> c_int {
        self.subgroup.as_ref().map_or(rank as c_int, |subgroup| subgroup.peer(rank))
    }

    /// The tag of the group's messages within the communicator.
    fn tag(&self, tag: Tag) -> c_int {
        self.subgroup.as_ref().map_or(c_int::from(tag), |subgroup| subgroup.tag(tag))
    }

    /// Safety: `data` must stay valid and unchanged until the request is complete.
    unsafe fn post_send(
        &self,
        data: *const u8,
        len: usize,
        dest: usize,
        tag: Tag,
        requests: &mut Requests,
    ) -> Result<()> {
        for (offset, bytes) in pieces(len) {
            // SAFETY: the piece is within `data`, valid by this function's contract.
            let code = unsafe {
                ffi::MPI_Isend(
                    data.add(offset).cast::<c_void>(),
                    bytes as c_int,
                    byte_type(),
                    self.peer(dest),
                    self.tag(tag),
                    self.raw,
                    requests.add(),
                )
            };
            check("MPI_Isend", code)?;
        }
        Ok(())
    }

    /// Safety: `data` must stay valid and untouched until the request is complete.
    unsafe fn post_recv(
        &self,
        data: *mut u8,
        len: usize,
        source: usize,
        tag: Tag,
        requests: &mut Requests,
    ) -> Result<()> {
        for (offset, bytes) in pieces(len) {
            requests.expected.push((bytes, source, tag));
            // SAFETY: the piece is within `data`, valid by this function's contract.
            let code = unsafe {
                ffi::MPI_Irecv(
                    data.add(offset).cast::<c_void>(),
                    bytes as c_int,
                    byte_type(),
                    self.peer(source),
                    self.tag(tag),
                    self.raw,
                    requests.add(),
                )
            };
            check("MPI_Irecv", code)?;
        }
        Ok(())
    }
}

impl Drop for MpiComm {
    fn drop(&mut self) {
        let mut finalized: c_int = 0;
        // SAFETY: freed once, and only while MPI runs.
        unsafe {
            if self.owned
                && ffi::MPI_Finalized(&mut finalized) == ffi::MPI_SUCCESS as c_int
                && finalized == 0
                && !std::thread::panicking()
            {
                ffi::MPI_Comm_free(&mut self.raw);
            }
        }
    }
}

/// Offsets and lengths of the pieces of a message; one empty piece if it is empty.
fn pieces(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len.div_ceil(PIECE_BYTES).max(1))
        .map(move |i| (i * PIECE_BYTES, PIECE_BYTES.min(len - i * PIECE_BYTES)))
}

/// MPI requests in progress. Receives come first and in the order of `expected`.
struct Requests {
    raw: Few<ffi::MPI_Request>,
    /// Bytes, source and tag that each receive must have.
    expected: Few<(usize, usize, Tag)>,
    done: bool,
}

impl Requests {
    fn new() -> Self {
        // SAFETY: a constant handle of the library.
        let null = unsafe { ffi::RSMPI_REQUEST_NULL };
        Self { raw: Few::new(null), expected: Few::new((0, 0, 0)), done: false }
    }

    /// Adds a request, and returns its place for the call that begins it.
    fn add(&mut self) -> *mut ffi::MPI_Request {
        // SAFETY: a constant handle of the library.
        self.raw.push(unsafe { ffi::RSMPI_REQUEST_NULL })
    }

    fn test(&mut self) -> Result<bool> {
        if !self.done {
            let mut flag: c_int = 0;
            let mut statuses = self.statuses();
            // SAFETY: as many statuses as requests.
            check("MPI_Testall", unsafe {
                ffi::MPI_Testall(
                    self.raw.len() as c_int,
                    self.raw.as_mut_ptr(),
                    &mut flag,
                    statuses.as_mut_ptr(),
                )
            })?;
            if flag != 0 {
                self.done = true;
                self.verify(&statuses)?;
            }
        }
        Ok(self.done)
    }

    fn wait(&mut self) -> Result<()> {
        if !self.done {
            let mut statuses = self.statuses();
            // SAFETY: as many statuses as requests.
            check("MPI_Waitall", unsafe {
                ffi::MPI_Waitall(
                    self.raw.len() as c_int,
                    self.raw.as_mut_ptr(),
                    statuses.as_mut_ptr(),
                )
            })?;
            self.done = true;
            self.verify(&statuses)?;
        }
        Ok(())
    }

    /// Waits until MPI is done with the memory of all requests, after their communicator was
    /// revoked: none of them waits for a rank then.
    fn drain(&mut self) {
        // SAFETY: constants of the library.
        let null = unsafe { ffi::RSMPI_REQUEST_NULL };
        for request in self.raw.iter_mut().filter(|request| **request != null) {
            // SAFETY: a live request; whether it has succeeded or failed does not matter.
            unsafe { ffi::MPI_Wait(request, ffi::RSMPI_STATUS_IGNORE) };
        }
    }

    /// Whether MPI may still read or write the memory of any request: it sets those that it is done
    /// with to null.
    fn are_pending(&self) -> bool {
        // SAFETY: a constant handle of the library.
        let null = unsafe { ffi::RSMPI_REQUEST_NULL };
        self.raw.iter().any(|&request| request != null)
    }

    fn statuses(&self) -> Few<ffi::MPI_Status> {
        // SAFETY: MPI_Status is plain integers; all zeros is a valid value.
        Few::filled(unsafe { std::mem::zeroed() }, self.raw.len())
    }

    fn verify(&self, statuses: &[ffi::MPI_Status]) -> Result<()> {
        for (&(want, source_rank, tag), status) in self.expected.iter().zip(statuses) {
            let mut got: c_int = 0;
            // SAFETY: a status that MPI has filled.
            check("MPI_Get_count", unsafe { ffi::MPI_Get_count(status, byte_type(), &mut got) })?;
            if got as usize != want {
                return Err(CommError::Length { source_rank, tag, want, got: got as usize });
            }
        }
        Ok(())
    }
}

impl Transport for MpiComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Comm>> {
        Ok(self.split(color, key)?.map(Comm::new))
    }

    fn send_bytes(&self, data: &[u8], dest: usize, tag: Tag) -> Result<()> {
        for (offset, bytes) in pieces(data.len()) {
            // SAFETY: the piece is within `data`; the call returns when it may change.
            let code = unsafe {
                ffi::MPI_Send(
                    data.as_ptr().add(offset).cast(),
                    bytes as c_int,
                    byte_type(),
                    self.peer(dest),
                    self.tag(tag),
                    self.raw,
                )
            };
            check("MPI_Send", code)?;
        }
        Ok(())
    }

    fn exchange_bytes(
        &self,
        sends: &[(&[u8], usize, Tag)],
        recvs: &mut [(&mut [u8], usize, Tag)],
    ) -> Result<()> {
        let mut requests = Requests::new();
        let mut exchange = || {
            for (data, source, tag) in recvs.iter_mut() {
                let (data, len) = (data.as_mut_ptr(), data.len());
                // SAFETY: borrowed until this function returns, and it does not return while MPI
                // may still use the borrowed memory.
                unsafe { self.post_recv(data, len, *source, *tag, &mut requests)? };
            }
            for &(data, dest, tag) in sends {
                // SAFETY: as above.
                unsafe { self.post_send(data.as_ptr(), data.len(), dest, tag, &mut requests)? };
            }
            requests.wait()
        };
        let done = exchange();
        if done.is_err() && ulfm::has_failed() {
            requests.drain();
        }
        if let Err(error) = &done
            && requests.are_pending()
        {
            messages::print(format_args!(
                "error: rank {}: {error}; messages into memory of the caller are still in progress: \
                 all ranks end",
                self.rank
            ));
            end_job(i32::from(Exit::Interrupted.code()));
        }
        done
    }

    fn isend(
        &self,
        buf: Arc<PageBuf>,
        range: Range<usize>,
        dest: usize,
        tag: Tag,
    ) -> Result<Box<dyn SendRequest>> {
        Ok(Box::new(self.begin_send(buf, range, dest, tag)?))
    }

    fn irecv(
        &self,
        buf: PageBuf,
        range: Range<usize>,
        source: usize,
        tag: Tag,
    ) -> Result<Box<dyn RecvRequest>> {
        Ok(Box::new(self.begin_recv(buf, range, source, tag)?))
    }

    fn probe(&self, source: usize, tag: Tag) -> Result<bool> {
        let mut flag: c_int = 0;
        // SAFETY: a live communicator; the status is not wanted.
        check("MPI_Iprobe", unsafe {
            ffi::MPI_Iprobe(
                self.peer(source),
                self.tag(tag),
                self.raw,
                &mut flag,
                ffi::RSMPI_STATUS_IGNORE,
            )
        })?;
        Ok(flag != 0)
    }

    fn barrier(&self) -> Result<()> {
        if ulfm::is_on() {
            return subgroup::barrier(&Comm::new(self.view()));
        }
        // SAFETY: a live communicator.
        check("MPI_Barrier", unsafe { ffi::MPI_Barrier(self.raw) })
    }

    fn host(&self) -> String {
        let mut text = [0u8; ffi::MPI_MAX_PROCESSOR_NAME as usize + 1];
        let mut len: c_int = 0;
        // SAFETY: the buffer has the length that MPI demands.
        let code = unsafe { ffi::MPI_Get_processor_name(text.as_mut_ptr().cast(), &mut len) };
        match check("MPI_Get_processor_name", code) {
            Ok(()) => String::from_utf8_lossy(&text[..len as usize]).into_owned(),
            Err(_) => "unknown".into(),
        }
    }

    fn abort(&self, _reason: &str, exit_code: i32) -> CommError {
        end_job(exit_code)
    }
}

/// A message over MPI in progress. If it is dropped before it is complete, it leaks its buffer,
/// which MPI may still read or write; if its communicator has failed, it waits for the end of the
/// message instead.
struct UnderWay<B> {
    requests: Requests,
    /// `None` once it is returned.
    buf: Option<B>,
}

// SAFETY: request handles; MPI calls are made by one thread at a time.
unsafe impl<B: Send> Send for UnderWay<B> {}

impl<B> Drop for UnderWay<B> {
    fn drop(&mut self) {
        if ulfm::has_failed() {
            self.requests.drain();
        }
        if self.requests.are_pending() {
            std::mem::forget(self.buf.take());
        }
    }
}

type MpiSend = UnderWay<Arc<PageBuf>>;

impl SendRequest for MpiSend {
    fn test(&mut self) -> Result<bool> {
        self.requests.test()
    }

    fn wait(mut self: Box<Self>) -> Result<()> {
        self.requests.wait()
    }
}

type MpiRecv = UnderWay<PageBuf>;

impl RecvRequest for MpiRecv {
    fn test(&mut self) -> Result<bool> {
        self.requests.test()
    }

    fn wait(mut self: Box<Self>) -> Result<PageBuf> {
        self.requests.wait()?;
        Ok(self.buf.take().expect("handed out here alone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type that is `Sync` implements it twice, any other type once: with two implementations the
    /// method is ambiguous, and the test does not compile.
    trait NotSync<Case> {
        fn is_not_sync() {}
    }
    struct Shared;
    impl<T: ?Sized> NotSync<()> for T {}
    impl<T: ?Sized + Sync> NotSync<Shared> for T {}

    /// With MPICH a communicator is an integer.
    #[test]
    fn handles_stay_on_one_thread_at_a_time() {
        <MpiComm as NotSync<_>>::is_not_sync();
        <MpiWorld as NotSync<_>>::is_not_sync();
    }
}
