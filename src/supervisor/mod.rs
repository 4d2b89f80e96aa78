//! `skt-hpl launch`: starts a job and brings it to its end through the loss of
//! nodes (the restart daemon of Tang et al., TPDS 2018, section 6.2).
//!
//! ```text
//! until the job is done, or there is a reason to give up:
//!     probe all nodes, replace the lost in place          probe, line, hosts
//!     start the job on them                               plan
//!     follow its signs of life until it ends or hangs     follow, watch
//!     what now?                                           decide
//! ```
//!
//! What is known stands in a folder, see [`state`]: a supervisor that is killed
//! leaves the job alone, and the next one goes on with it.

pub mod decide;
pub mod follow;
pub mod hosts;
pub mod line;
pub mod plan;
pub mod probe;
pub mod process;
pub mod report;
pub mod shape;
pub mod state;
mod stop;
pub mod watch;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use skt_terms::exit::Exit;

use crate::heartbeat::{Beat, CHANGED, DONE, FACTOR, REFUSED, REPORTED};
use crate::outfile;
use decide::{Ending, Next, Past, Refusal};
use follow::Follow;
use hosts::{Health, Host, Pool};
use line::Lines;
use plan::{Job, Launcher};
use probe::{Limits, Purpose, Survey};
use process::Process;
use state::{Failure, Folder, State, StateError, Status, now_unix};
use watch::{Floors, Watch};

/// How long a launcher may take to end after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to end when the job is done: all that the job had to
/// write is written then. MPICH over TCP hangs in `MPI_Finalize` at times (UCX
/// issue 8738).
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How often the supervisor looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Between two writings of the state.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How often room is set aside for what the job writes.
const RESERVE_EVERY: Duration = Duration::from_secs(600);
/// How long nodes that are not needed any more may take to be cleaned.
const CLEAN_PATIENCE: Duration = Duration::from_secs(5);
/// The step of the protocol after which there is a checkpoint.
const COMMIT: &str = "commit";
/// Steps after which there is none: a test is done and reported, or begins.
const NO_CHECKPOINT: [&str; 2] = ["clear", "generate"];

/// What is to be run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who starts the ranks.
    pub launcher: Launcher,
    /// The launcher's program, if not the usual one.
    pub program: Option<String>,
    /// Further arguments for it.
    pub extra: Vec<String>,
    /// What reaches a node, if not the launcher's usual way.
    pub agent: Option<String>,
    /// All ranks on this machine: nothing to reach.
    pub is_local: bool,
    /// Nodes.
    pub pool: Pool,
    /// Ranks.
    pub ranks: usize,
    /// Our program, as nodes find it.
    pub program_file: PathBuf,
    /// Arguments of the benchmark.
    pub command: Vec<String>,
    /// Name of the run in the store.
    pub run_id: String,
    /// The store.
    pub store: String,
    /// Bytes that the segments of a rank take.
    pub rank_bytes: u64,
    /// Losses that the code can rebuild.
    pub parities: usize,
    /// Whether checkpoints are taken.
    pub is_protected: bool,
    /// Whether the arguments say what to do with older data.
    pub says_resume: bool,
    /// Where the state is kept.
    pub state: PathBuf,
    /// Least limits for silence.
    pub floors: Floors,
    /// Longest time that a node may take to answer.
    pub probe_limit: Duration,
    /// Failures before giving up.
    pub restarts_max: usize,
    /// Let nodes in again that failed a probe.
    pub readmit: bool,
    /// When more is lost than can be rebuilt, start over.
    pub start_over: bool,
    /// Where the account of the run goes.
    pub json: Option<PathBuf>,
}

/// Why a supervisor cannot work.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Its state.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The launcher.
    #[error("cannot start {program}: {source}; is it installed, and in PATH?")]
    Launcher {
        /// Its program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// What reaches the nodes.
    #[error(
        "cannot start {agent}, which is to reach the nodes: {source}; is it installed, and in \
         PATH? --agent names another. What a checkpoint has kept stays: the same command goes on \
         with it"
    )]
    Agent {
        /// Its program.
        agent: String,
        /// What the system said.
        source: io::Error,
    },
    /// The state is of another run.
    #[error(
        "{}: holds an unfinished run with other options ({command}); finish it with those, name \
         another folder with --state, or remove this one", folder.display()
    )]
    OtherRun {
        /// The folder.
        folder: PathBuf,
        /// Its options.
        command: String,
    },
    /// The job runs under a launcher of another machine.
    #[error("the job was started on {host} and may still run there: start `skt-hpl launch` there")]
    Elsewhere {
        /// Which.
        host: String,
    },
    /// Signals.
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
}

type Result<T> = std::result::Result<T, SupervisorError>;

/// A job under way.
struct Running {
    process: Process,
    /// Unless it was started by a supervisor before us.
    child: Option<Child>,
    /// Its report.
    out: Follow,
    err: Follow,
}

/// Looks for lost nodes while the job is silent.
#[derive(Debug, Default)]
struct Looks {
    next_at_silence_seconds: f64,
}

/// What a supervisor is told to do next.
enum Step {
    Launch,
    End(Exit),
}

/// Supervises one run.
pub struct Supervisor {
    options: Options,
    folder: Folder,
    state: State,
    watch: Watch,
    clock: Instant,
    /// When `clock` began.
    began_unix: f64,
    /// Ours to keep until we end.
    _lock: nix::fcntl::Flock<File>,
    saved: Instant,
    /// To the nodes.
    lines: Lines,
    /// Something is on the status line.
    status_shown: bool,
    /// Warnings and the nodes that they were told of.
    told_warnings: BTreeSet<(String, String)>,
    /// Nodes that the launcher or the ranks of the last start have said to be
    /// lost.
    suspects: Vec<String>,
    /// Somebody has said so just now: a reason to look.
    is_alarmed: bool,
    /// The start of whose report lines were printed last.
    printed_of: Option<usize>,
    /// Why nothing is printed any more.
    print_error: Option<io::Error>,
    /// The state could not be saved the last time.
    is_unsaved: bool,
}

/// Runs the job to its end.
///
/// # Errors
/// See [`SupervisorError`]. What goes wrong with the job is no error here, but
/// in the exit code.
pub fn run(options: Options) -> Result<Exit> {
    stop::listen().map_err(SupervisorError::Signals)?;
    let mut supervisor = Supervisor::new(options)?;
    let exit = supervisor.supervise();
    supervisor.clear_status();
    let exit = exit?;
    supervisor.account()?;
    Ok(exit)
}

impl Supervisor {
    fn new(options: Options) -> Result<Self> {
        let folder = Folder::new(&options.state);
        let lock = folder.lock()?;
        let me = Process::of(std::process::id() as i32).expect("this process runs");
        let old = folder.load()?.filter(|state| state.status != Status::Finished);
        let fresh = |options: &Options| {
            folder.tidy();
            let _ = fs::remove_file(folder.file("events.jsonl"));
            let pool = options.pool.clone();
            State::new(&options.run_id, &options.command, options.ranks, pool, me.clone())
        };
        let state = match old {
            None => fresh(&options),
            Some(old) if old.command != options.command || old.ranks != options.ranks => {
                let command = old.command.join(" ");
                return Err(SupervisorError::OtherRun { folder: options.state, command });
            }
            Some(mut old) => {
                old.pool = merged(&old.pool, &options.pool);
                (old.supervisor, old.status) = (me.clone(), Status::Running);
                (old.reason, old.exit) = (None, None);
                old
            }
        };
        let watch = Watch::new(options.floors);
        let began_unix = now_unix().max(state.written_unix);
        Ok(Self {
            options,
            folder,
            state,
            watch,
            clock: Instant::now(),
            // Not before what an earlier supervisor has written.
            began_unix,
            _lock: lock,
            saved: Instant::now(),
            lines: Lines::default(),
            status_shown: false,
            told_warnings: BTreeSet::new(),
            suspects: Vec::new(),
            is_alarmed: false,
            printed_of: None,
            print_error: None,
            is_unsaved: false,
        })
    }

    fn now(&self) -> f64 {
        self.clock.elapsed().as_secs_f64()
    }

    /// Seconds since 1970, by a clock that nobody sets while this supervisor lives.
    fn unix(&self) -> f64 {
        self.began_unix + self.now()
    }

    fn supervise(&mut self) -> Result<Exit> {
        if self.options.readmit {
            let back = self.state.pool.readmit();
            if !back.is_empty() {
                self.say("readmit", &format!("in again as spares: {}", back.join(", ")))?;
            }
        }
        let mut running = self.find_job()?;
        loop {
            let job = match running.take() {
                Some(job) => job,
                None => match self.prepare()? {
                    Step::End(exit) => return Ok(exit),
                    Step::Launch => match self.launch() {
                        Ok(job) => job,
                        Err(error) => return self.unstarted(error),
                    },
                },
            };
            let launcher = job.process.clone();
            // Ranks that nobody watches are ended.
            let ending = self.follow(job).inspect_err(|_| launcher.kill_group())?;
            // The launcher is gone; its agents may wait for nodes that are, too.
            process::sweep_launcher(&self.state.run);
            self.folder.release(self.state.attempt);
            if self.options.launcher == Launcher::Openmpi {
                remove_session(launcher.pid);
            }
            if let Some(exit) = self.conclude(&ending)? {
                return Ok(exit);
            }
        }
    }

    /// A start that could not be made: nothing runs.
    fn unstarted(&mut self, error: SupervisorError) -> Result<Exit> {
        match error {
            SupervisorError::State(_) | SupervisorError::File { .. } if self.state.attempt > 1 => {
                let why = format!("cannot start the job again: {error}; make room there");
                self.give_up(&why, Exit::Interrupted).map(|_| Exit::Interrupted)
            }
            error => Err(error),
        }
    }

    /// The job of a supervisor before us, if there is one: still running, or
    /// ended while nobody looked.
    fn find_job(&mut self) -> Result<Option<Running>> {
        let Some(process) = self.state.launcher.clone() else {
            // A supervisor that was killed when it had just started a job had no
            // time to note its launcher.
            let (found, _) = process::sweep_launcher(&self.state.run);
            if found > 0 {
                let text = format!("{found} process(es) that an earlier supervisor had started");
                self.say("ended", &text)?;
            }
            self.folder.save(&mut self.state)?;
            return Ok(None);
        };
        if let Some(host) = process.elsewhere() {
            return Err(SupervisorError::Elsewhere { host: host.to_owned() });
        }
        if process.runs() && !process.may_have(&self.state.token()) {
            let why = format!("process {} is none of this run", process.pid);
            return Err(StateError::Format { path: self.folder.file("state.json"), why }.into());
        }
        let what = if process.runs() { "goes on" } else { "has ended" };
        self.say(
            "found",
            &format!("start {} of an earlier supervisor {what}", self.state.attempt),
        )?;
        self.watch.start(self.now());
        // From the beginning: signs of life are needed, not only new ones, and
        // nobody here has seen the report.
        let (out, err) = self.follow_outputs()?;
        Ok(Some(Running { process, child: None, out, err }))
    }

    /// What the present start writes, from its beginning.
    fn follow_outputs(&self) -> Result<(Follow, Follow)> {
        let open = |path: PathBuf| {
            Follow::new(&path, 0).map_err(|source| SupervisorError::File { path, source })
        };
        let (out, err) = self.folder.outputs(self.state.attempt);
        Ok((open(out)?, open(err)?))
    }

    /// Probes the nodes and replaces the lost ones.
    fn prepare(&mut self) -> Result<Step> {
        let past = self.past();
        if let Some(why) =
            decide::give_up(&past, self.watch.resolution_columns(), self.options.restarts_max)
        {
            return self.give_up(&why, Exit::BadInput);
        }
        if past.last().is_some_and(|failure| !failure.lived) {
            // The launcher has to get to the nodes by new ones.
            self.lines = Lines::default();
        }
        let mut survey = self.survey(Purpose::Start);
        if let Some((agent, source)) = survey.take_agent_fault() {
            return Err(SupervisorError::Agent { agent, source });
        }
        if survey.ended() > 0 {
            self.say("ended", &format!("{} rank(s) of the last start were left", survey.ended()))?;
        }
        self.warn(&survey)?;
        let listed = &self.options.pool;
        let slots = |name: &str, pool: &Pool| {
            pool.everyone().find(|host| host.name == name).map_or(1, |host| host.slots)
        };
        let before = self.state.pool.clone();
        let health = |name: &str| match listed.everyone().any(|host| host.name == name) {
            false => Health::Ill("is not listed any more".to_owned()),
            true => survey.health(name, slots(name, &before)),
        };
        let replaced = match self.state.pool.replace(health) {
            Ok(replaced) => replaced,
            Err(spent) => {
                self.note_loss(&[]);
                return self.give_up(&spent.to_string(), Exit::Interrupted);
            }
        };
        for change in &replaced {
            let text = format!("{} {}; {} takes its place", change.lost, change.why, change.by);
            self.say("replaced", &text)?;
        }
        self.note_loss(&replaced);
        let past = self.past();
        let pause = decide::backoff_seconds(&past);
        if pause > 0.0 {
            self.say("pause", &format!("{pause:.0} s before the next start"))?;
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < pause && stop::asked() == 0 {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        if stop::asked() > 0 {
            return Ok(Step::End(self.stopped()?));
        }
        Ok(Step::Launch)
    }

    /// Notes what was lost with the last failure.
    fn note_loss(&mut self, replaced: &[hosts::Replacement]) {
        if let Some(failure) = self.state.failures.last_mut()
            && failure.relaunched_unix.is_none()
            && !replaced.is_empty()
        {
            failure.node_lost = true;
            failure.replaced = replaced.to_vec();
        }
    }

    fn past(&self) -> Vec<Past> {
        let past = |failure: &Failure| Past {
            lived: failure.lived,
            column: failure.column,
            node_lost: failure.node_lost,
        };
        self.state.failures.iter().map(past).collect()
    }

    fn survey(&mut self, purpose: Purpose) -> Survey {
        self.survey_until(purpose, &mut || false)
    }

    fn survey_until(&mut self, purpose: Purpose, is_over: &mut dyn FnMut() -> bool) -> Survey {
        let pool = match purpose {
            Purpose::Start | Purpose::Look => self.state.pool.clone(),
            // Also those that are out: they may be back.
            Purpose::Clean | Purpose::Forget => {
                Pool::new(self.state.pool.everyone().cloned().collect(), Vec::new())
            }
        };
        let options = &self.options;
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let words = vec![
            options.program_file.display().to_string(),
            "probe".into(),
            format!("--run={}", self.state.run),
            format!("--run-id={}", options.run_id),
            format!("--store={}", options.store),
            format!("--purpose={purpose}"),
        ];
        let command = plan::probe_command(&folder, &words);
        let here = process::this_host();
        let reach = |name: &str| {
            if options.is_local || name == here {
                vec!["/bin/sh".to_owned(), "-c".to_owned(), command.clone()]
            } else {
                plan::on_node(&options.launcher, options.agent.as_deref(), name, &command)
            }
        };
        let each = match purpose {
            Purpose::Clean | Purpose::Forget => options.probe_limit.min(CLEAN_PATIENCE),
            Purpose::Start | Purpose::Look => options.probe_limit,
        };
        // Before the first start nothing is lost by waiting.
        let spare_losses = match purpose {
            Purpose::Start if self.state.attempt > 0 => options.parities,
            _ => 0,
        };
        let limits = Limits {
            purpose,
            each,
            rank_bytes: options.rank_bytes,
            spare_losses,
            suspects: &self.suspects,
        };
        probe::survey(&mut self.lines, &pool, &reach, limits, is_over)
    }

    fn warn(&mut self, survey: &Survey) -> Result<()> {
        for (text, mut nodes) in survey.warnings() {
            // A node is not named twice.
            nodes.retain(|node| self.told_warnings.insert((text.clone(), (*node).to_owned())));
            if !nodes.is_empty() {
                self.say("warning", &format!("warning: {}: {text}", nodes.join(", ")))?;
            }
        }
        Ok(())
    }

    fn launch(&mut self) -> Result<Running> {
        self.state.attempt += 1;
        self.state.last_beat = None;
        // Before its token and its files are in use: a supervisor that is killed in
        // between must not leave them to the next start.
        self.mend_folder()?;
        self.folder.save(&mut self.state)?;
        self.suspects.clear();
        self.is_alarmed = false;
        let hostfile = self.folder.file("hosts");
        // The launcher may change the folder before it reads it.
        let hostfile = std::path::absolute(&hostfile).unwrap_or(hostfile);
        let mut command = vec![self.options.program_file.display().to_string(), "run".into()];
        command.extend_from_slice(&self.options.command);
        if self.state.is_refused && self.options.start_over {
            command.extend(["--resume".into(), "never".into()]);
        } else if self.must_resume() {
            command.extend(["--resume".into(), "require".into()]);
        }
        let token = self.state.token();
        let used = used_hosts(&self.state.pool.active, self.options.ranks);
        let plan = plan::plan(
            &self.options.launcher,
            &Job {
                ranks: self.options.ranks,
                hosts: &used,
                hostfile: &hostfile,
                command: &command,
                agent: self.options.agent.as_deref(),
                program: self.options.program.as_deref(),
                extra: &self.options.extra,
                token: &token,
            },
        );
        let file_error = |path: &PathBuf| {
            let path = path.clone();
            move |source| SupervisorError::File { path, source }
        };
        outfile::replace(&hostfile, 0o600, false, |out| out.write_all(plan.hostfile.as_bytes()))
            .map_err(file_error(&hostfile))?;
        let (out, err) = self.folder.outputs(self.state.attempt);
        let out_file = outfile::create_new(&out).map_err(file_error(&out))?;
        let err_file = outfile::create_new(&err).map_err(file_error(&err))?;
        let names: Vec<&str> = used.iter().map(|host| host.name.as_str()).collect();
        let text = format!(
            "start {}: {} ranks on {}",
            self.state.attempt,
            self.options.ranks,
            names.join(", ")
        );
        self.say("start", &text)?;
        let saved = self.folder.event("command", &plan.argv.join(" "));
        self.kept(saved)?;
        let child = Command::new(&plan.argv[0])
            .args(&plan.argv[1..])
            .envs(plan.env)
            .stdin(Stdio::null())
            .stdout(out_file)
            .stderr(err_file)
            // Ctrl-C is for us alone: the job is stopped in order.
            .process_group(0)
            .spawn()
            .map_err(|source| SupervisorError::Launcher {
                program: plan.argv[0].clone(),
                source,
            })?;
        let process =
            Process::of(child.id() as i32).unwrap_or_else(|| self.state.supervisor.clone());
        let now = self.unix();
        self.state.launcher = Some(process.clone());
        self.state.launched_unix = now;
        self.state.is_refused = false;
        (self.state.is_changed, self.state.is_reported) = (false, false);
        if let Some(failure) = self.state.failures.last_mut() {
            failure.relaunched_unix.get_or_insert(now);
        }
        self.save()?;
        self.watch.start(self.now());
        let (out, err) = self.follow_outputs()?;
        Ok(Running { process, child: Some(child), out, err })
    }

    /// Whether the job must find its checkpoint: were all of it lost, the job
    /// would start over without a word.
    fn must_resume(&self) -> bool {
        let options = &self.options;
        options.is_protected && !options.says_resume && self.state.has_checkpoint
    }

    /// Follows a job to its end.
    fn follow(&mut self, mut job: Running) -> Result<Ending> {
        let mut killed: Option<String> = None;
        let mut asked: Option<Instant> = None;
        let mut done: Option<Instant> = None;
        let mut looks = Looks::default();
        let mut reserved: Option<Instant> = None;
        loop {
            if reserved.is_none_or(|since| since.elapsed() > RESERVE_EVERY) {
                reserved = Some(Instant::now());
                self.folder.reserve(self.state.attempt);
            }
            // Asked before the output is read: what comes after that is read
            // in the next round.
            let end = ended(&mut job);
            self.hear(&mut job, end.is_some())?;
            let completion = self.state.last_beat.as_ref().and_then(|(beat, _)| beat.exit);
            if let Some(end) = end {
                let launcher = killed.map_or(end.clone(), |why| format!("{why}; {end}"));
                let beat = self.watch.last();
                return Ok(Ending {
                    completion,
                    is_reported: self.state.is_reported,
                    refusal: self.refusal(),
                    launcher,
                    stop_requested: asked.is_some(),
                    lived: beat.is_some(),
                    column: beat.map_or(0, |beat| beat.column),
                    resolution_columns: self.watch.resolution_columns(),
                });
            }
            let is_done = self.state.last_beat.as_ref().is_some_and(|(beat, _)| beat.phase == DONE);
            if is_done {
                let since = *done.get_or_insert_with(Instant::now);
                if since.elapsed() > END_PATIENCE && killed.is_none() {
                    killed = Some(self.kill(&job, "the job is done, the launcher does not end")?);
                }
            } else if let (Some(silent), None) = (self.watch.hung_for(self.now()), &killed) {
                let limit = self.watch.limit_seconds();
                let why = format!("no sign of life for {silent:.1} s (limit {limit:.1} s)");
                killed = Some(self.kill(&job, &why)?);
            }
            if !is_done
                && killed.is_none()
                && let Some(why) = self.look(&mut looks, &mut job)
            {
                killed = Some(self.kill(&job, &why)?);
            }
            if stop::asked() > 0 && asked.is_none() {
                asked = Some(Instant::now());
                self.say("stop", "asked to stop: ending the job, its checkpoint stays")?;
                job.process.signal(Signal::SIGTERM);
            }
            let overdue = asked.is_some_and(|since| since.elapsed() > STOP_PATIENCE);
            if (overdue || stop::asked() > 1) && killed.is_none() {
                killed = Some(self.kill(&job, "the launcher does not end")?);
            }
            self.lines.keep_alive();
            if self.saved.elapsed() > SAVE_EVERY {
                self.save()?;
                self.show_status();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// How the present start has refused what it found, if it has.
    fn refusal(&self) -> Option<Refusal> {
        match (self.state.is_refused, self.state.is_changed) {
            (true, _) => Some(Refusal::Lost),
            (_, true) => Some(Refusal::Changed),
            _ => None,
        }
    }

    /// When the job has been silent for a while, looks whether its nodes are
    /// still there: a launcher may wait for ever for one that is not, and parts
    /// of the work without columns may be silent for long. Returns what is
    /// wrong.
    fn look(&mut self, looks: &mut Looks, job: &mut Running) -> Option<String> {
        let (silent, after) =
            (self.watch.silent_seconds(self.now()), self.watch.look_after_seconds());
        if silent < after {
            *looks = Looks::default();
        }
        let is_alarmed = std::mem::take(&mut self.is_alarmed);
        if !is_alarmed && (silent < after || silent < looks.next_at_silence_seconds) {
            return None;
        }
        let mut is_over = || ended(job).is_some();
        let survey = self.survey_until(Purpose::Look, &mut is_over);
        if is_over() {
            // The launcher has found out by itself.
            return None;
        }
        // All well, once: the next look has twice the time.
        looks.next_at_silence_seconds = 2.0 * self.watch.silent_seconds(self.now());
        let (name, why) =
            self.state.pool.active.iter().find_map(|host| match survey.health(&host.name, 0) {
                Health::Ill(why) => Some((host.name.clone(), why)),
                Health::Well | Health::Unknown => None,
            })?;
        let sign = if is_alarmed { "a connection broke" } else { "silence" };
        let text = format!("{sign}, and {name} is lost: {why}");
        self.suspects.push(name);
        Some(text)
    }

    /// Kills a launcher that cannot be talked to: while a lost node is
    /// unnoticed, Open MPI's ignores SIGTERM.
    fn kill(&mut self, job: &Running, why: &str) -> Result<String> {
        self.say("kill", &format!("{why}: killing the launcher"))?;
        job.process.kill_group();
        Ok(why.to_owned())
    }

    /// Reads what the job says.
    fn hear(&mut self, job: &mut Running, at_end: bool) -> Result<()> {
        let (out, err) = self.folder.outputs(self.state.attempt);
        let read = |follow: &mut Follow, path: PathBuf| {
            let mut lines = Vec::new();
            let heard = follow.lines(|line| lines.push(line.to_owned()));
            heard.map_err(|source| SupervisorError::File { path, source })?;
            if at_end {
                lines.extend(follow.rest().map(|rest| rest + "\n"));
            }
            Ok::<_, SupervisorError>(lines)
        };
        // The report first: of what it tells, the last word may be an end.
        let report = read(&mut job.out, out)?;
        self.print(&report)?;
        let lines = read(&mut job.err, err)?;
        let token = self.state.token();
        for line in lines {
            match Beat::find(&line, &token) {
                Some((before, beat)) => {
                    if !before.is_empty() {
                        self.forward(&format!("{before}\n"));
                    }
                    self.beat(beat)?;
                }
                None => {
                    self.suspect(&line);
                    self.forward(&line);
                }
            }
        }
        Ok(())
    }

    /// Prints lines of the job's report as they come: those of all starts, one
    /// after the other. The last one has all tests, also those that earlier starts
    /// have done.
    fn print(&mut self, lines: &[String]) -> Result<()> {
        self.state.residuals_failed += lines.iter().filter(|line| is_failed_residual(line)).count();
        if lines.is_empty() || self.print_error.is_some() {
            return Ok(());
        }
        self.clear_status();
        let attempt = self.state.attempt;
        let before = self.printed_of.replace(attempt).filter(|before| *before != attempt);
        let border = before.map(|before| {
            format!("# start {before} ended here; what follows is the report of start {attempt}\n")
        });
        let text: String = border.iter().chain(lines).map(String::as_str).collect();
        let print = || {
            let mut out = outfile::stdout()?.lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        };
        if let Err(error) = print() {
            // No reason to stop the job.
            let (path, _) = self.folder.outputs(attempt);
            let text = format!("standard output: {error}; the report stays in {}", path.display());
            self.print_error = Some(error);
            self.say("unprinted", &text)?;
        }
        Ok(())
    }

    /// Notes the nodes that a line says are lost.
    fn suspect(&mut self, line: &str) {
        let Some(name) = lost_node(line) else { return };
        if self.state.pool.active.iter().any(|host| host.name == name) {
            self.suspects.push(name.to_owned());
            self.is_alarmed = true;
        }
    }

    fn beat(&mut self, beat: Beat) -> Result<()> {
        let (now, unix) = (self.now(), self.unix());
        self.watch.beat(&beat, now);
        let first = self.state.last_beat.is_none();
        let computing = beat.phase == FACTOR || beat.exit.is_some();
        let mut back = None;
        if let Some(failure) = self.state.failures.last_mut() {
            if first {
                failure.alive_unix.get_or_insert(unix);
            }
            if computing && failure.relaunched_unix.is_some() && failure.computing_unix.is_none() {
                failure.computing_unix = Some(unix);
                failure.resumed_column = Some(beat.column);
                back = Some((beat.column, unix - failure.detected_unix));
            }
        }
        if beat.phase == REFUSED {
            self.state.is_refused = true;
        } else if beat.phase == CHANGED {
            self.state.is_changed = true;
        } else if beat.phase == REPORTED {
            self.state.is_reported = true;
        } else if NO_CHECKPOINT.contains(&beat.phase.as_str()) {
            self.state.has_checkpoint = false;
        } else if self.state.last_beat.as_ref().is_some_and(|(last, _)| last.phase == COMMIT) {
            self.state.has_checkpoint = true;
        }
        self.state.last_beat = Some((beat, unix));
        if let Some((column, seconds)) = back {
            let text =
                format!("computing again at column {column}, {seconds:.2} s after detection");
            self.say("computing", &text)?;
        }
        Ok(())
    }

    /// What to do after a job's end; an exit code if that is all.
    fn conclude(&mut self, ending: &Ending) -> Result<Option<Exit>> {
        self.state.launcher = None;
        match decide::next(ending) {
            Next::Lost if self.options.start_over && !self.options.says_resume => {
                self.state.has_checkpoint = false;
                self.say("over", "more is lost than can be rebuilt: starting over from the seed")?;
                Ok(None)
            }
            Next::Lost => {
                let why = "more is lost than the checkpoint can rebuild, see the message above; \
                           --start-over would begin from the seed";
                self.give_up(why, Exit::BadInput).map(|_| Some(Exit::BadInput))
            }
            Next::Declined => self.declined().map(Some),
            Next::Finished(exit) => self.finished(exit).map(Some),
            Next::Stopped => {
                self.survey(Purpose::Start);
                self.stopped().map(Some)
            }
            Next::Restart => {
                let (now, state) = (self.unix(), &mut self.state);
                let last = state.last_beat.take();
                let failure = Failure {
                    attempt: state.attempt,
                    how: ending.launcher.clone(),
                    replaced: Vec::new(),
                    phase: last.as_ref().map_or("start".into(), |(beat, _)| beat.phase.clone()),
                    column: ending.column,
                    lived: ending.lived,
                    node_lost: false,
                    last_sign_unix: last.map_or(state.launched_unix, |(_, unix)| unix),
                    detected_unix: now,
                    relaunched_unix: None,
                    alive_unix: None,
                    computing_unix: None,
                    resumed_column: None,
                };
                let text = format!(
                    "start {} failed in phase {} at column {}: {}",
                    failure.attempt, failure.phase, failure.column, failure.how
                );
                state.failures.push(failure);
                self.say("failure", &text)?;
                self.save()?;
                Ok(None)
            }
        }
    }

    fn finished(&mut self, exit: Exit) -> Result<Exit> {
        // The last start knows its own tests alone.
        let exit = match exit {
            Exit::Passed if self.state.residuals_failed > 0 => Exit::ResidualFailed,
            exit => exit,
        };
        if let Some((beat, _)) = &self.state.last_beat
            && beat.phase != DONE
        {
            let text = "the job was lost after its report was whole; what it left is removed here";
            self.say("reported", text)?;
        }
        let survey = self.survey(Purpose::Clean);
        let silent: Vec<&str> = self
            .state
            .pool
            .everyone()
            .filter(|host| !survey.answers().any(|(name, _)| name == host.name))
            .map(|host| host.name.as_str())
            .collect();
        let silent = silent.join(", ");
        if !silent.is_empty() {
            let text = format!(
                "{silent}: not reached; segments that are left there, should it come back, are \
                 removed by the next start of this run with it, for which the others keep a mark \
                 (`skt-hpl shm list`)"
            );
            self.say("unclean", &text)?;
        } else if survey.answers().any(|(_, answer)| answer.run_bytes > 0)
            && survey.answers().all(|(_, answer)| answer.is_clean())
        {
            // Nothing is left anywhere that marks would have to tell of.
            self.survey(Purpose::Forget);
        }
        self.state.status = Status::Finished;
        self.state.exit = Some(exit.code());
        let failures = self.state.failures.len();
        self.say("finished", &format!("the job is done, after {failures} failure(s)"))?;
        if let Some(source) = self.print_error.take() {
            self.save()?;
            return Err(SupervisorError::File { path: "standard output".into(), source });
        }
        self.folder.tidy();
        self.save()?;
        Ok(exit)
    }

    /// The job has ended for a reason that is for a person to resolve. Nothing is
    /// removed: earlier starts, of this supervisor or not, may have left checkpoints.
    fn declined(&mut self) -> Result<Exit> {
        let why =
            "the job cannot run so, see the message above; what earlier starts have left stays";
        self.give_up(why, Exit::BadInput)?;
        // Nothing holds one who has not begun to the same options.
        if self.state.attempt == 1 && !self.state.has_checkpoint {
            self.state.status = Status::Finished;
            self.folder.tidy();
            self.save()?;
        }
        Ok(Exit::BadInput)
    }

    fn stopped(&mut self) -> Result<Exit> {
        self.state.status = Status::Stopped;
        self.state.exit = Some(Exit::Interrupted.code());
        self.say("stopped", "stopped; start the same command again to resume")?;
        self.save()?;
        Ok(Exit::Interrupted)
    }

    fn give_up(&mut self, why: &str, exit: Exit) -> Result<Step> {
        self.state.status = Status::GaveUp;
        self.state.exit = Some(exit.code());
        self.state.reason = Some(why.to_owned());
        self.say("gave-up", &format!("giving up: {why}"))?;
        if exit == Exit::Interrupted {
            self.say("hint", "what survives stays; start the same command again to resume")?;
        }
        self.save()?;
        Ok(Step::End(exit))
    }

    fn save(&mut self) -> Result<()> {
        self.saved = Instant::now();
        let saved = self.folder.save(&mut self.state);
        if saved.is_ok() && std::mem::take(&mut self.is_unsaved) {
            self.say("saved", "the state is saved again")?;
        }
        self.kept(saved)
    }

    /// Before the first start a folder that cannot be written to is refused. A job
    /// that was started is not left unwatched for its sake, nor is it stopped: what
    /// is known stands in memory as well.
    fn kept(&mut self, saved: std::result::Result<(), StateError>) -> Result<()> {
        match saved {
            Err(error) if self.state.attempt == 0 => Err(error.into()),
            Err(error) if !std::mem::replace(&mut self.is_unsaved, true) => {
                let text = format!(
                    "warning: {error}: the job is watched on, but should this supervisor end, \
                     no other can take over: its ranks would run on unwatched"
                );
                self.tell(&text);
                Ok(())
            }
            Err(_) | Ok(()) => Ok(()),
        }
    }

    /// The folder as it was when the run began, if somebody has removed it: a start
    /// needs files in it.
    fn mend_folder(&mut self) -> Result<()> {
        if !self.folder.file("lock").exists() {
            self._lock = self.folder.lock()?;
        }
        Ok(())
    }

    /// Says something, and logs it.
    fn say(&mut self, kind: &str, text: &str) -> Result<()> {
        self.tell(text);
        let saved = self.folder.event(kind, text);
        self.kept(saved)
    }

    /// Says something.
    fn tell(&mut self, text: &str) {
        self.clear_status();
        let since = self.unix() - self.state.started_unix;
        // That nobody listens is no reason to stop.
        let _ = writeln!(io::stderr(), "launch {since:9.3} s  {text}");
    }

    /// Passes on a line of the job.
    fn forward(&mut self, line: &str) {
        self.clear_status();
        let _ = io::stderr().write_all(line.as_bytes());
    }

    /// One line for people, rewritten in place.
    fn show_status(&mut self) {
        if io::stderr().is_terminal() {
            let line = report::status_line(&self.state, self.unix());
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
            self.status_shown = true;
        }
    }

    fn clear_status(&mut self) {
        if std::mem::take(&mut self.status_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// Writes the account of the run.
    fn account(&mut self) -> Result<()> {
        for line in report::timelines(&self.state) {
            let _ = writeln!(io::stderr(), "{line}");
        }
        if let Some(path) = self.options.json.clone() {
            let text = serde_json::to_string_pretty(&report::account(&self.state)).expect("plain");
            outfile::write(&path, (text + "\n").as_bytes())
                .map_err(|source| SupervisorError::File { path, source })?;
        }
        Ok(())
    }
}

/// The node that a line of Open MPI says is lost: its launcher's `Remote daemon:
/// [[47992,0],2] on node n2`, or a rank's `  Peer host:  n2`.
fn lost_node(line: &str) -> Option<&str> {
    match line.split_once("Peer host:") {
        Some((_, name)) => Some(name.trim()),
        None => {
            let (before, name) = line.rsplit_once(" on node ")?;
            before.contains("Remote daemon").then(|| name.trim())
        }
    }
}

/// Whether a line of a report says that a test has failed.
fn is_failed_residual(line: &str) -> bool {
    line.starts_with("||Ax-b||") && line.trim_end().ends_with(" FAILED")
}

/// Removes the session folder of an Open MPI launcher that was killed; one that
/// ends in order does it itself.
fn remove_session(pid: i32) {
    let user = nix::unistd::geteuid();
    let all = std::env::temp_dir().join(format!("ompi.{}.{user}", process::this_host()));
    // Not where a link of another user leads.
    let is_ours = |found: fs::Metadata| found.is_dir() && found.uid() == user.as_raw();
    if !fs::symlink_metadata(&all).is_ok_and(is_ours) {
        return;
    }
    let _ = fs::remove_dir_all(all.join(format!("pid.{pid}")));
    // It stays if other jobs have theirs in it.
    let _ = fs::remove_dir(all);
}

/// How a job's launcher ended, in words; `None` while it runs.
fn ended(job: &mut Running) -> Option<String> {
    use std::os::unix::process::ExitStatusExt as _;
    match &mut job.child {
        Some(child) => match child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(match (status.code(), status.signal()) {
                (Some(code), _) => format!("the launcher ended with code {code}"),
                (_, Some(signal)) => format!("the launcher was killed by signal {signal}"),
                _ => "the launcher ended".to_owned(),
            }),
            Err(error) => Some(format!("the launcher is lost: {error}")),
        },
        None if job.process.runs() => None,
        None => Some("the launcher ended unseen".to_owned()),
    }
}

/// The nodes that `ranks` ranks need.
fn used_hosts(active: &[Host], ranks: usize) -> Vec<Host> {
    let mut left = ranks;
    let mut used = Vec::new();
    for host in active {
        if left == 0 {
            break;
        }
        left -= host.slots.min(left);
        used.push(host.clone());
    }
    used
}

/// The nodes of an earlier start, with those that are new in the lists.
fn merged(old: &Pool, listed: &Pool) -> Pool {
    let mut pool = old.clone();
    let known: Vec<String> = old.everyone().map(|host| host.name.clone()).collect();
    let new = listed.active.iter().chain(&listed.spares);
    pool.spares.extend(new.filter(|host| !known.contains(&host.name)).cloned());
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_residual_is_seen() {
        let line = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   9.7e+04 ...... ";
        assert!(is_failed_residual(&format!("{line}FAILED\n")));
        assert!(!is_failed_residual(&format!("{line}PASSED\n")));
        assert!(!is_failed_residual("              0 tests completed and FAILED\n"));
    }

    #[test]
    fn lost_nodes_are_named_by_open_mpi() {
        assert_eq!(lost_node("  Remote daemon: [[47992,0],2] on node n2\n"), Some("n2"));
        assert_eq!(lost_node("  Peer host:  n2\n"), Some("n2"));
        assert_eq!(lost_node("  HNP daemon   : [[47992,0],0] on node head\n"), None);
        assert_eq!(lost_node("computing on node n2"), None);
    }
}
