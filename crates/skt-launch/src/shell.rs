//! Carries out the [`Action`]s of [`super::decisions`] with processes, probes of nodes and files,
//! and turns their results into [`Event`]s.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use nix::sys::signal::Signal;

use super::decisions::{Action, Decisions, Event, Start};
use super::hosts::SparesFile;
use super::input::{Input, STDIN};
use super::job::{self, Job, JobOutput, Piece};
use super::launcher::{self, Launcher, start_command};
use super::line::IdleLines;
use super::links::Partner;
use super::probe::Purpose;
use super::program::{Program, argument_to_text};
use super::report::{self, Terminal};
use super::state::{StateFolder, Status, SupervisorState};
use super::survey::{self, Inquiry, Limits};
use super::{LaunchOptions, SupervisorError, process, stop};
use skt_host::clock::now_unix;
use skt_host::exit::Exit;
use skt_host::host_names::short_names;
use skt_host::outfile;
use skt_host::process::Process;
use skt_host::starter::Starter;

/// How often the supervisor polls the job.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The shortest time between two writes of the state.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// If more time passes between two polls, the supervisor was held up.
const STALL_MIN: Duration = Duration::from_secs(1);
/// How long the cleaning of nodes that are no longer needed may take.
const CLEAN_PATIENCE: Duration = Duration::from_secs(5);

type Result<T> = std::result::Result<T, SupervisorError>;

pub(crate) struct Shell {
    decisions: Decisions,
    folder: StateFolder,
    /// The lock on the state folder, held until the supervisor ends.
    lock: Flock<File>,
    /// When this supervisor began, by a clock that cannot be set, and in seconds since 1970.
    begun: (Instant, f64),
    terminal: Terminal,
    lines: IdleLines,
    job: Option<Job>,
    input: Input,
    spares: SparesFile,
    saved: Instant,
    /// When the supervisor was last at work, and for how long it was held up since it last watched
    /// the job: by a signal, a file system or the reader of its output.
    worked: Instant,
    held_up: Duration,
    end: Option<Result<Exit>>,
}

impl Shell {
    /// A supervisor of the run that `options` name: of a new run, or of the run that the state
    /// folder describes.
    pub(crate) fn new(options: LaunchOptions) -> Result<Self> {
        let folder = StateFolder::new(&options.settings.state);
        let lock = folder.lock()?;
        let me = Process::from_pid(std::process::id() as i32).expect("this process runs");
        let earlier = folder.load()?.filter(|state| state.status != Status::Finished);
        let is_new = earlier.is_none();
        let text = |program: &Program| argument_to_text(program.file.as_os_str());
        let program = options.program_of_user.as_ref().map(text);
        let (pool, command, ranks) = (&options.pool, &options.command, options.ranks);
        let state = match earlier {
            None => {
                folder.tidy();
                let _ = fs::remove_file(folder.file("events.jsonl"));
                let new = SupervisorState::new(&options.run_id, command, ranks, pool.clone(), me);
                SupervisorState { program, ..new }
            }
            Some(old) if !old.is_of(program.as_deref(), command, ranks) => {
                let words: Vec<String> = old.program.into_iter().chain(old.command).collect();
                return Err(SupervisorError(format!(
                    "{}: holds an unfinished run with other options ({}); finish it with those, or \
                     name another folder with --state",
                    options.settings.state.display(),
                    words.join(" ")
                )));
            }
            Some(old) => old.taken_over(command, pool, me),
        };
        let (mut input, mut note) = (Input::default(), None);
        if options.program_of_user.is_some() {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            let stdin = stdin.map_err(SupervisorError::file(Path::new(STDIN)))?;
            (input, note) = Input::keep(&folder, &File::from(stdin), is_new)?;
        }
        // The clock does not start before the last time that an earlier supervisor wrote.
        let start_unix = now_unix().max(state.written_unix);
        let now = Instant::now();
        let mut shell = Self {
            spares: SparesFile::new(options.settings.spares.clone()),
            decisions: Decisions::new(options, state),
            folder,
            lock,
            begun: (now, start_unix),
            terminal: Terminal::default(),
            lines: IdleLines::default(),
            job: None,
            input,
            saved: now,
            worked: now,
            held_up: Duration::ZERO,
            end: None,
        };
        note.into_iter().for_each(|note| shell.message(&note));
        Ok(shell)
    }

    pub(crate) fn run(mut self) -> Result<Exit> {
        self.feed(Event::Begin);
        loop {
            if let Some(end) = self.end.take() {
                self.terminal.clear_status();
                return end;
            }
            self.catch_up();
            self.read_job();
            self.catch_up();
            if stop::is_time_up() {
                self.end_time();
            }
            if let Some(signal) = stop::unreported() {
                self.report("signal", &format!("{signal} asks to stop"));
            }
            // The user may have added nodes to the file of spares.
            match self.spares.poll() {
                None => {}
                Some(Ok(hosts)) => self.feed(Event::Spares(hosts)),
                Some(Err(why)) => {
                    self.message(&format!("warning: {why}: its new nodes are not used"));
                }
            }
            self.feed(Event::Tick { stops: stop::asked() });
            if self.job.is_some() {
                self.lines.keep_alive();
                if self.saved.elapsed() > SAVE_INTERVAL {
                    self.save();
                    let line = report::status_line(&self.decisions.state, self.now_unix());
                    self.terminal.show_status(&line);
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// If the supervisor was held up, that time is no silence, and no part of a pace. Reads what
    /// the job has written during it, before the job is judged to be silent.
    fn catch_up(&mut self) {
        self.note_stall();
        let held_up = std::mem::take(&mut self.held_up);
        if !held_up.is_zero() {
            self.feed(Event::Unwatched { seconds: held_up.as_secs_f64() });
            self.read_job();
        }
    }

    fn note_stall(&mut self) {
        let gap = std::mem::replace(&mut self.worked, Instant::now()).elapsed();
        if gap > STALL_MIN {
            self.held_up += gap;
        }
    }

    fn now_unix(&self) -> f64 {
        self.begun.1 + self.begun.0.elapsed().as_secs_f64()
    }

    fn feed(&mut self, event: Event) {
        if self.end.is_some() {
            return;
        }
        for action in self.decisions.on(self.now_unix(), event) {
            if self.end.is_none() {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Message(text) => self.message(&text),
            Action::Report(kind, text) => self.report(kind, &text),
            Action::Print(text) => self.print(&text),
            Action::Save => self.save(),
            Action::Tidy => self.folder.tidy(),
            Action::FindJob => {
                if let Err(error) = self.find_job() {
                    self.end = Some(Err(error));
                }
            }
            Action::CloseLines => self.lines = IdleLines::default(),
            Action::Ask(inquiry) => self.ask(&inquiry),
            Action::Launch(start) => self.launch(&start),
            Action::Terminate => self.launcher().signal(Signal::SIGTERM),
            Action::Kill => self.launcher().kill_group(),
            Action::Account => {
                if let Err(error) = self.account() {
                    self.end = Some(Err(error));
                }
            }
            Action::End(end) => self.end = Some(end),
        }
    }

    /// The time of the run ends now: notifies the running job, and sets the time limit of later
    /// jobs.
    fn end_time(&mut self) {
        self.report("time", "SIGUSR1: the time ends now");
        self.decisions.options.end_unix = Some(self.now_unix());
        // The user's program is not started again, however it ends.
        self.decisions.state.is_time_up |= self.decisions.options.is_of_program();
        if let Some(job) = &self.job {
            // Launchers pass the signal on to all ranks.
            job.launcher.signal(Signal::SIGUSR1);
        }
    }

    fn launcher(&self) -> &Process {
        &self.job.as_ref().expect("only a launcher that runs is signalled").launcher
    }

    fn find_job(&mut self) -> Result<()> {
        let state = &self.decisions.state;
        let Some(launcher) = state.launcher.clone() else {
            // A supervisor that was killed right after it started a job had no time to note the
            // launcher.
            let (swept, _) = process::sweep_launcher(&state.run);
            self.feed(Event::NoJob { swept });
            return Ok(());
        };
        let Decisions { options, state, .. } = &self.decisions;
        // What an earlier program has written is not the output of this one.
        if let Some(Program { file, checksum }) = &options.program_of_user
            && state.program_checksum.is_some_and(|started| started != *checksum)
        {
            return Err(SupervisorError(format!(
                "{}: holds an unfinished run that was started when {} had other contents: put \
                 those back and finish it, or end its job (process {}) and remove this folder",
                options.settings.state.display(),
                file.display(),
                launcher.pid
            )));
        }
        if let Some(host) = launcher.elsewhere() {
            if options.head_lost {
                // Ranks of that job that still run are ended when the nodes are probed.
                self.feed(Event::NoJob { swept: 0 });
                return Ok(());
            }
            return Err(SupervisorError(format!(
                "the job was started on {host} and may still run there: start `skt-hpl launch` \
                 there, or, if that machine is gone for good, here with --head-lost"
            )));
        }
        let runs = launcher.runs();
        if runs && !launcher.may_have(skt_checkpoint::heartbeat::ENV, &state.token()) {
            let why = format!("process {} is none of this run", launcher.pid);
            return Err(self.folder.no_state(&why));
        }
        let (start, is_of_program) = (state.start, options.is_of_program());
        self.feed(Event::Found { runs });
        let outputs = Job::outputs(&self.folder, start)?;
        self.job = Some(Job::new(launcher, None, outputs, is_of_program));
        Ok(())
    }

    /// Passes on to the decisions what the job has written, and whether its launcher has ended.
    fn read_job(&mut self) {
        let Some(job) = &mut self.job else { return };
        let start = self.decisions.state.start;
        job.reserve(&self.folder, start);
        // The launcher is checked before its output is read, so that all output is read once it has
        // ended.
        let (ended, token) = (job.ended(), self.decisions.state.token());
        while let Some(job) = &mut self.job {
            let output = match job.read(&token) {
                Ok(output) => output,
                Err(error) => return self.feed(Event::Unread(error)),
            };
            let is_last = output.is_all || ended.is_none();
            self.take(output);
            if is_last {
                break;
            }
        }
        if let Some((how, succeeded)) = ended
            && let Some(job) = &mut self.job
        {
            // What follows may signal the job, which is still there.
            let (rest, pid) = (job.rest(&token), job.launcher.pid);
            self.take(rest);
            self.job = None;
            // The launcher is gone; its agents may wait for nodes that are gone, too.
            process::sweep_launcher(&self.decisions.state.run);
            self.folder.release(start);
            if self.decisions.options.launcher == Launcher::Starter(Starter::Openmpi) {
                job::remove_session(pid);
            }
            self.feed(Event::Ended { how, succeeded });
        }
    }

    fn take(&mut self, output: JobOutput) {
        if !output.report.is_empty() {
            self.feed(Event::Report(output.report));
        }
        for piece in output.pieces {
            match piece {
                Piece::Text(text) => self.terminal.forward(&text),
                Piece::Line(line) => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    if !self.decisions.options.is_of_program() && !self.decisions.has_printed(&text)
                    {
                        self.terminal.forward(&line);
                    }
                    self.feed(Event::Line(text));
                }
                Piece::Heartbeat(beat) => self.feed(Event::Heartbeat(beat)),
                Piece::RankEnd(end) => self.feed(Event::RankEnded(end)),
            }
        }
    }

    fn ask(&mut self, inquiry: &Inquiry) {
        self.note_stall();
        let options = &self.decisions.options;
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let mut words = vec![
            options.program_file.display().to_string(),
            "probe".into(),
            format!("--run={}", self.decisions.state.run),
        ];
        if let Some(keeps) = options.keeps.as_ref().or(self.decisions.state.keeps.as_ref()) {
            words.push(format!("--run-id={}", keeps.run_id));
            words.push(format!("--store={}", keeps.store));
            let images = |folder: &PathBuf| format!("--images={}", folder.display());
            words.extend(keeps.images.iter().map(images));
        }
        let program = options.program_of_user.as_ref();
        let file = self.decisions.state.program.as_ref();
        words.extend(file.map(|file| format!("--program={file}")));
        self.lines.use_for(&words);
        let here = process::this_host();
        let reach = |name: &str, purpose: Purpose, partners: &[Partner]| {
            let mut words = words.clone();
            words.push(format!("--purpose={purpose}"));
            words.extend(partners.iter().map(|partner| format!("--partner={partner}")));
            let command = launcher::probe_command(&folder, &words);
            if options.is_local || name == here {
                vec!["/bin/sh".to_owned(), "-c".to_owned(), command]
            } else {
                let (agent, limit) = (options.agent(), options.probe_limit());
                launcher::on_node(&options.launcher, agent, limit, name, &command)
            }
        };
        let each = match inquiry.purpose {
            Purpose::Clean | Purpose::Forget => options.probe_limit().min(CLEAN_PATIENCE),
            Purpose::Start | Purpose::Check | Purpose::Links => options.probe_limit(),
        };
        let (rank_bytes, networks) = (options.rank_bytes, &options.networks);
        let limits = Limits { each, rank_bytes, program, networks };
        let job = &mut self.job;
        let mut is_over = || job.as_mut().is_some_and(|job| job.ended().is_some());
        let survey = survey::survey(&mut self.lines, inquiry, &reach, limits, &mut is_over);
        // The time of the survey was no stall: the job was watched.
        self.worked = Instant::now();
        // Output that the job wrote during the survey counts as well as the answers. A launcher
        // that has ended since then makes them needless.
        let start = (self.decisions.state.start, self.job.is_some());
        self.read_job();
        let has_ended = self.job.as_mut().is_some_and(|job| job.ended().is_some());
        if (self.decisions.state.start, self.job.is_some()) == start && !has_ended {
            self.feed(Event::Answers(survey));
        }
    }

    fn launch(&mut self, start: &Start) {
        match self.start(start) {
            Ok(job) => {
                let launcher = job.launcher.clone();
                self.job = Some(job);
                self.feed(Event::Launched(launcher));
            }
            Err(error) => self.feed(Event::Unstarted(error)),
        }
    }

    fn start(&mut self, start: &Start) -> Result<Job> {
        // The folder may have been removed.
        if !self.folder.file("lock").exists() {
            self.lock = self.folder.lock()?;
        }
        // The state is saved before its token and its files are in use: a supervisor that is killed
        // in between must not leave them to the next start.
        let program = self.decisions.options.program_of_user.as_ref();
        self.decisions.state.program_checksum = program.map(|program| program.checksum);
        self.folder.save(&mut self.decisions.state)?;
        let Decisions { options, state, .. } = &self.decisions;
        let (number, ranks, is_of_program) = (state.start, options.ranks, options.is_of_program());
        let hostfile = self.folder.file("hosts");
        // The launcher may change its working folder before it reads the file.
        let hostfile = std::path::absolute(&hostfile).unwrap_or(hostfile);
        let plan = start_command(options, start, &hostfile, self.input.is_some(), &state.token());
        outfile::replace(&hostfile, 0o600, false, |out| out.write_all(plan.hostfile.as_bytes()))
            .map_err(SupervisorError::file(&hostfile))?;
        let (out, err) = self.folder.outputs(number);
        let out_file = outfile::create_new(&out).map_err(SupervisorError::file(&out))?;
        let err_file = outfile::create_new(&err).map_err(SupervisorError::file(&err))?;
        let outputs = Job::outputs(&self.folder, number)?;
        let names = short_names(&start.hosts);
        self.report("start", &format!("start {number}: {ranks} ranks on {names}"));
        self.log("command", &plan.argv.join(" "));
        let child = Command::new(&plan.argv[0])
            .args(&plan.argv[1..])
            .envs(plan.env)
            .stdin(self.input.stdio().map_err(SupervisorError::file(Path::new(STDIN)))?)
            .stdout(out_file)
            .stderr(err_file)
            // Ctrl-C reaches the supervisor alone, which then stops the job in order.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                let program = &plan.argv[0];
                let what =
                    format!("cannot start {program}: {error}; is it installed, and in PATH?");
                SupervisorError(what)
            })?;
        let me = &self.decisions.state.supervisor;
        let launcher = Process::from_pid(child.id() as i32).unwrap_or_else(|| me.clone());
        Ok(Job::new(launcher, Some(child), outputs, is_of_program))
    }

    fn save(&mut self) {
        self.saved = Instant::now();
        let saved = self.folder.save(&mut self.decisions.state);
        self.feed(saved.map_or_else(Event::Unsaved, |()| Event::Saved));
    }

    fn report(&mut self, kind: &str, text: &str) {
        self.message(text);
        self.log(kind, text);
    }

    fn message(&mut self, text: &str) {
        let since = self.now_unix() - self.decisions.state.started_unix;
        self.terminal.message(since, text);
    }

    fn log(&mut self, kind: &str, text: &str) {
        if let Err(error) = self.folder.event(kind, text) {
            self.feed(Event::Unsaved(error));
        }
    }

    fn print(&mut self, text: &[u8]) {
        if let Err(source) = self.terminal.print(text) {
            let (file, _) = self.folder.outputs(self.decisions.state.start);
            let stays = format!("the report stays in {}", file.display());
            self.feed(Event::Unprinted(format!("standard output: {source}; {stays}")));
        }
    }

    fn account(&mut self) -> Result<()> {
        let state = &self.decisions.state;
        for line in report::timelines(state) {
            self.terminal.forward(format!("{line}\n").as_bytes());
        }
        if let Some(path) = self.decisions.options.settings.json.clone() {
            let text = serde_json::to_string_pretty(&report::account(state)).expect("plain");
            outfile::write(&path, (text + "\n").as_bytes())
                .map_err(SupervisorError::file(&path))?;
        }
        Ok(())
    }
}
