//! Command lines that start a job or reach a node, as pure functions.

use std::path::Path;
use std::time::Duration;

use skt_host::shown::shell_quoted;

use super::decisions::Start;
use super::hosts::{self, Host};
use super::state::{StateFolder, SupervisorState};
use super::{LaunchOptions, program, subcommand_words};
use skt_checkpoint::heartbeat;
use skt_checkpoint::time_limit::TimeLimit;
use skt_host::process::Process;
use skt_host::starter::Starter;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    Starter(Starter),
    /// A command line with fields to fill in, see [`Template`].
    Template(Template),
}

impl Default for Launcher {
    fn default() -> Self {
        Self::Starter(Starter::Openmpi)
    }
}

/// A site's own command line, run by `/bin/sh -c`. Its fields are `{ranks}`, `{nodes}`,
/// `{hostfile}`, `{hosts}` (names, separated by commas), `{slots}` (ranks per node, the largest),
/// and `{command}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(String);

impl Template {
    /// Checks a template.
    pub fn new(text: &str) -> Result<Self, String> {
        const KNOWN: [&str; 6] = ["ranks", "nodes", "hostfile", "hosts", "slots", "command"];
        for part in text.split('{').skip(1) {
            let name = part.split('}').next().unwrap_or("");
            if !KNOWN.contains(&name) {
                let known = KNOWN.map(|name| format!("{{{name}}}")).join(", ");
                return Err(format!("the template knows no {{{name}}}; there are {known}"));
            }
        }
        if !text.contains("{command}") {
            return Err("the template has no {command}".into());
        }
        if !text.contains("{hostfile}") && !text.contains("{hosts}") {
            return Err("the template has neither {hostfile} nor {hosts}: \
                        lost nodes could not be replaced"
                .into());
        }
        Ok(Self(text.to_owned()))
    }
}

#[derive(Debug, Clone)]
pub struct JobSpec<'a> {
    pub ranks: usize,
    pub threads: usize,
    /// Cores per node that are kept from the solver.
    pub helper_cores: usize,
    /// The nodes, in the order of the ranks.
    pub hosts: &'a [Host],
    pub hostfile: &'a Path,
    pub command: &'a [String],
    /// The command that reaches a node; the launcher's own choice if there is none.
    pub agent: Option<&'a str>,
    /// The launcher's program, if it is not the usual one.
    pub program: Option<&'a str>,
    /// Further arguments of the launcher; a template takes none.
    pub extra: &'a [String],
    /// Whether rank 0 gets the launcher's standard input.
    pub has_input: bool,
    pub token: &'a str,
    /// Whether nodes run more ranks than they have cores for.
    pub shares: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherCommand {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub hostfile: String,
}

pub fn plan(launcher: &Launcher, job: &JobSpec) -> LauncherCommand {
    let mut plan = match launcher {
        Launcher::Starter(starter) => {
            let mut plan = match starter {
                Starter::Openmpi => openmpi(job),
                Starter::Mpich => mpich(job),
                Starter::Slurm => slurm(job),
            };
            plan.argv.extend(cores(*starter, job));
            plan.argv.extend_from_slice(job.extra);
            plan.argv.extend_from_slice(job.command);
            plan
        }
        Launcher::Template(template) => filled_in(template, job),
    };
    plan.env.push((heartbeat::ENV.to_owned(), job.token.to_owned()));
    plan
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The launcher's flags that give each rank cores for its threads; none where the user's flags
/// place the ranks.
fn cores(starter: Starter, job: &JobSpec) -> Vec<String> {
    if starter.places_ranks(job.extra) {
        Vec::new()
    } else if job.shares {
        starter.shared_cores()
    } else {
        starter.cores(job.threads, job.helper_cores)
    }
}

fn openmpi(job: &JobSpec) -> LauncherCommand {
    let mut argv = vec![job.program.unwrap_or("mpirun").to_owned()];
    if let Some(agent) = job.agent {
        argv.extend(["--mca".into(), "plm_rsh_agent".into(), agent.into()]);
    }
    // A node that vanishes sends nothing. TCP's own keepalive waits for hours; with these values it
    // finds the loss within two seconds of silence and three probes.
    argv.extend(words(
        "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 \
         --mca oob_tcp_keepalive_probes 3",
    ));
    argv.extend(["--hostfile".into(), job.hostfile.display().to_string()]);
    argv.extend(["-np".into(), job.ranks.to_string(), "-x".into(), heartbeat::ENV.into()]);
    let env = without_opencl();
    argv.extend(env.iter().flat_map(|(name, _)| ["-x".to_owned(), name.clone()]));
    LauncherCommand { argv, env, hostfile: hosts::openmpi_file(job.hosts) }
}

/// Keeps hwloc's plugin for OpenCL out of mpirun and the ranks, unless the user's environment
/// chooses what hwloc is to load: it loads all drivers of OpenCL, and LLVM, which some contain,
/// takes SIGUSR1 for itself. Then mpirun does not pass that signal on, and it does not end a rank.
fn without_opencl() -> Vec<(String, String)> {
    const HWLOC: &str = "HWLOC_COMPONENTS";
    let is_set = std::env::var_os(HWLOC).is_some();
    if is_set { Vec::new() } else { vec![(HWLOC.to_owned(), "-opencl".to_owned())] }
}

fn mpich(job: &JobSpec) -> LauncherCommand {
    let mut argv = vec![job.program.unwrap_or("mpiexec.hydra").to_owned()];
    if let Some(agent) = job.agent {
        // Not as `ssh`: Hydra would add a flag before the host's name.
        argv.extend(["-launcher".into(), "rsh".into(), "-launcher-exec".into(), agent.into()]);
    }
    argv.extend(["-f".into(), job.hostfile.display().to_string()]);
    argv.extend(["-n".into(), job.ranks.to_string()]);
    // Hydra passes the whole environment on by default.
    argv.extend(["-genv".into(), heartbeat::ENV.into(), job.token.into()]);
    let line = |host: &Host| format!("{}:{}\n", host.name, host.slots);
    LauncherCommand { argv, env: Vec::new(), hostfile: job.hosts.iter().map(line).collect() }
}

/// The plan for `srun`. With `arbitrary` distribution it takes the nodes in the order of the host
/// file, which has one line per rank.
fn slurm(job: &JobSpec) -> LauncherCommand {
    let mut argv = vec![job.program.unwrap_or("srun").to_owned()];
    argv.extend([
        format!("--nodes={}", job.hosts.len()),
        format!("--ntasks={}", job.ranks),
        "--distribution=arbitrary".to_owned(),
    ]);
    // If one rank is lost, all end at once; the previous step may still be ending.
    argv.extend(words("--kill-on-bad-exit=1 --wait=5 --overlap --export=ALL"));
    if job.has_input {
        // srun would give it to all tasks; the other launchers do this by default.
        argv.push("--input=0".to_owned());
    }
    let lines = job.hosts.iter().flat_map(|host| std::iter::repeat_n(&host.name, host.slots));
    let hostfile = lines.take(job.ranks).map(|name| format!("{name}\n")).collect();
    let env = vec![("SLURM_HOSTFILE".to_owned(), job.hostfile.display().to_string())];
    LauncherCommand { argv, env, hostfile }
}

fn filled_in(template: &Template, job: &JobSpec) -> LauncherCommand {
    let names: Vec<&str> = job.hosts.iter().map(|host| host.name.as_str()).collect();
    let slots = job.hosts.iter().map(|host| host.slots).max().unwrap_or(1);
    let command: Vec<String> = job.command.iter().map(|word| shell_quoted(word)).collect();
    let line = template
        .0
        .replace("{ranks}", &job.ranks.to_string())
        .replace("{nodes}", &job.hosts.len().to_string())
        .replace("{slots}", &slots.to_string())
        .replace("{hostfile}", &shell_quoted(&job.hostfile.display().to_string()))
        .replace("{hosts}", &names.join(","))
        .replace("{command}", &command.join(" "));
    let argv = vec!["/bin/sh".into(), "-c".into(), line];
    LauncherCommand { argv, env: without_opencl(), hostfile: hosts::openmpi_file(job.hosts) }
}

/// The shell command for a node: runs `words`, a program and its arguments, in `folder`. A missing
/// folder or program is named in the error. `sh` reads the command, whatever the node's login shell
/// is.
pub(crate) fn probe_command(folder: &Path, words: &[String]) -> String {
    let missing = |what: &str| {
        let text = format!("there is no {what}: nodes need what the launching machine has");
        format!("{{ echo {} >&2; exit 1; }}", shell_quoted(&text))
    };
    let no_program = missing(&format!("program {}", words[0]));
    let no_folder = missing(&format!("folder {}", folder.display()));
    let words: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
    let script = format!(
        "test -x {} || {no_program}; cd {} 2>/dev/null || {no_folder}; exec {}",
        words[0],
        shell_quoted(&folder.display().to_string()),
        words.join(" ")
    );
    format!("/bin/sh -c {}", shell_quoted(&script))
}

/// The command line that runs the shell command `command` on a node, which has the time `limit` to
/// answer: the agent does not give up earlier.
pub fn on_node(
    launcher: &Launcher,
    agent: Option<&str>,
    limit: Duration,
    host: &str,
    command: &str,
) -> Vec<String> {
    let seconds = limit.as_secs_f64().ceil();
    match (launcher, agent) {
        (_, Some(agent)) => {
            let mut argv = words(agent);
            argv.extend([host.to_owned(), command.to_owned()]);
            argv
        }
        (Launcher::Starter(Starter::Slurm), None) => {
            let mut argv = words("srun --nodes=1 --ntasks=1 --overlap");
            argv.extend([format!("--immediate={seconds}"), format!("--nodelist={host}")]);
            argv.extend(["/bin/sh".into(), "-c".into(), command.to_owned()]);
            argv
        }
        (_, None) => {
            // A user's ssh may share connections. One that a login has opened is welcome, but the
            // connection of a probe, which is closed at any time, must not become the one that the
            // launcher's agents share.
            let mut argv = words("ssh -x -o BatchMode=yes -o ControlMaster=no");
            argv.extend(["-o".to_owned(), format!("ConnectTimeout={seconds}")]);
            argv.extend([host.to_owned(), command.to_owned()]);
            argv
        }
    }
}

/// The command of a start. `has_input`: the user's program reads something.
pub(crate) fn start_command(
    options: &LaunchOptions,
    start: &Start,
    hostfile: &Path,
    has_input: bool,
    token: &str,
) -> LauncherCommand {
    let command = match &options.program_of_user {
        Some(program) => {
            let command = program::command(&options.program_file, program, &options.command);
            let shares = start.shares.then(|| ["env", SHARES].map(str::to_owned));
            shares.into_iter().flatten().chain(command).collect()
        }
        None => benchmark_words(options, start),
    };
    let job = JobSpec {
        ranks: options.ranks,
        threads: options.threads,
        helper_cores: options.helper_cores,
        hosts: &start.hosts,
        hostfile,
        command: &command,
        agent: options.settings.agent.as_deref(),
        program: options.settings.launcher_program.as_deref(),
        extra: &options.settings.launcher_args,
        has_input,
        token,
        shares: start.shares,
    };
    plan(&options.launcher, &job)
}

/// The command of the first start of a new run, which is not started. Its token is one of many.
pub fn first_start_command(options: &LaunchOptions) -> LauncherCommand {
    let me = Process::from_pid(std::process::id() as i32).expect("this process runs");
    let pool = options.pool.clone();
    let mut state =
        SupervisorState::new(&options.run_id, &options.command, options.ranks, pool, me);
    state.start = 1;
    let start = Start { hosts: options.pool.used(options.ranks), resume: None, shares: false };
    let hostfile = StateFolder::new(&options.settings.state).file("hosts");
    start_command(options, &start, &hostfile, false, &state.token())
}

/// Lets ranks of one group share a node, in a program that uses the checkpoint library.
const SHARES: &str = "SKT_ALLOW_SHARED_DOMAINS=true";

fn benchmark_words(options: &LaunchOptions, start: &Start) -> Vec<String> {
    let mut command = vec![options.program_file.display().to_string()];
    command.extend(subcommand_words(&options.command).map(str::to_owned));
    if let Some(resume) = start.resume {
        command.extend(["--resume".into(), resume.into()]);
    }
    let allows = "--allow-shared-domains";
    if start.shares && !command.iter().any(|word| word == allows) {
        command.push(allows.to_owned());
    }
    if let Some(end) = options.end_unix {
        // The limit is a point in time, so that a new job does not start it again.
        command.extend(["--time-limit".into(), TimeLimit::At(end).to_string()]);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::hosts::Pool;
    use crate::program::Program;
    use skt_config::{LaunchDraft, LaunchSettings};

    fn planned(launcher: &Launcher, agent: Option<&str>, extra: &str) -> LauncherCommand {
        planned_with(launcher, agent, extra, 1, false)
    }

    fn planned_with(
        launcher: &Launcher,
        agent: Option<&str>,
        extra: &str,
        threads: usize,
        shares: bool,
    ) -> LauncherCommand {
        let hosts = ["n1", "s1"].map(|name| Host { name: name.to_owned(), slots: 2 });
        let command = ["/opt/skt-hpl", "--n", "2000", "--out", "my report"].map(str::to_owned);
        let job = JobSpec {
            ranks: 4,
            threads,
            helper_cores: 0,
            hosts: &hosts,
            hostfile: Path::new("/run/hosts"),
            command: &command,
            agent,
            program: None,
            extra: &words(extra),
            has_input: false,
            token: "r1.3",
            shares,
        };
        plan(launcher, &job)
    }

    #[test]
    fn each_launcher_has_its_command_line() {
        use Starter::{Mpich, Openmpi, Slurm};
        let openmpi = "mpirun --mca plm_rsh_agent /opt/agent --mca oob_tcp_keepalive_time 2 \
                       --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
                       --hostfile /run/hosts -np 4 -x SKT_HPL_HEARTBEAT -x HWLOC_COMPONENTS";
        let mpich = "mpiexec.hydra -launcher rsh -launcher-exec /opt/agent -f /run/hosts -n 4 \
                     -genv SKT_HPL_HEARTBEAT r1.3";
        let slurm = "srun --nodes=2 --ntasks=4 --distribution=arbitrary --kill-on-bad-exit=1 \
                     --wait=5 --overlap --export=ALL";
        let yields = "--bind-to none --mca mpi_yield_when_idle 1";
        let all = [(Openmpi, openmpi), (Mpich, mpich), (Slurm, slurm)];
        // Threads get cores, and ranks that share a node are not bound and yield, unless the user
        // places the ranks.
        for (starter, extra, threads, shares, want) in [
            (Openmpi, "--bind-to none", 1, false, "--bind-to none"),
            (Openmpi, "", 4, false, "--bind-to none"),
            (Openmpi, "--bind-to core", 4, false, "--bind-to core"),
            (Openmpi, "", 4, true, yields),
            (Openmpi, "--bind-to core", 4, true, "--bind-to core"),
            (Mpich, "-prepend-rank", 1, false, "-prepend-rank"),
            (Mpich, "", 4, false, ""),
            (Slurm, "--mpi=pmix", 1, false, "--mpi=pmix"),
            (Slurm, "", 4, false, "--cpus-per-task=4"),
            (Slurm, "-c 8", 4, false, "-c 8"),
            (Slurm, "", 4, true, "--overcommit --cpu-bind=none"),
        ] {
            let agent = Some("/opt/agent");
            let plan = planned_with(&Launcher::Starter(starter), agent, extra, threads, shares);
            let (_, start) = all.iter().find(|(known, _)| *known == starter).unwrap();
            let end = ["/opt/skt-hpl", "--n", "2000", "--out", "my report"];
            let want = [words(start), words(want), end.map(str::to_owned).to_vec()].concat();
            assert_eq!(plan.argv, want, "{starter:?} {extra}");
        }
        let beat = ("SKT_HPL_HEARTBEAT".to_owned(), "r1.3".to_owned());
        let slurm_file = ("SLURM_HOSTFILE".to_owned(), "/run/hosts".to_owned());
        for (starter, env, hostfile) in [
            (Openmpi, without_opencl(), "n1 slots=2\ns1 slots=2\n"),
            (Mpich, Vec::new(), "n1:2\ns1:2\n"),
            (Slurm, vec![slurm_file], "n1\nn1\ns1\ns1\n"),
        ] {
            let plan = planned(&Launcher::Starter(starter), None, "");
            assert_eq!((plan.env, &*plan.hostfile), ([env, vec![beat.clone()]].concat(), hostfile));
        }
    }

    #[test]
    fn a_template_is_filled_in_and_quoted() {
        let template = Template::new("aprun -n {ranks} -N {slots} -L {hosts} {command}").unwrap();
        let plan = planned(&Launcher::Template(template), None, "");
        assert_eq!(
            plan.argv,
            ["/bin/sh", "-c", "aprun -n 4 -N 2 -L n1,s1 /opt/skt-hpl --n 2000 --out 'my report'"]
        );
        for (text, said) in [
            ("x {hosts}", "the template has no {command}"),
            ("x {command}", "the template has neither {hostfile} nor {hosts}"),
            ("x {command} {hosts} {np}", "the template knows no {np}"),
        ] {
            assert!(Template::new(text).unwrap_err().starts_with(said), "{text}");
        }
    }

    #[test]
    fn nodes_are_reached_by_agent_ssh_or_srun() {
        let limit = Duration::from_millis(19_500);
        let reach = |launcher, agent| on_node(&launcher, agent, limit, "n1", "a 'b'").join("|");
        assert_eq!(reach(Launcher::Starter(Starter::Openmpi), Some("rsh -q")), "rsh|-q|n1|a 'b'");
        assert_eq!(
            reach(Launcher::Starter(Starter::Mpich), None),
            "ssh|-x|-o|BatchMode=yes|-o|ControlMaster=no|-o|ConnectTimeout=20|n1|a 'b'"
        );
        assert_eq!(
            reach(Launcher::Starter(Starter::Slurm), None),
            "srun|--nodes=1|--ntasks=1|--overlap|--immediate=20|--nodelist=n1|/bin/sh|-c|a 'b'"
        );
    }

    #[test]
    fn probe_reports_missing_programs_and_folders() {
        let output = |folder: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let command = probe_command(Path::new(folder), &words);
            let out = Command::new("/bin/sh").args(["-c", &command]).output().unwrap();
            String::from_utf8(out.stdout).unwrap() + &String::from_utf8(out.stderr).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap().display().to_string();
        assert_eq!(output(&folder, &["/bin/pwd"]), format!("{folder}\n"));
        assert_eq!(output("/", &["/bin/echo", "it's", "$HOME"]), "it's $HOME\n");
        let missing = output("/no/folder", &["/no/it's"]);
        assert!(missing.starts_with("there is no program /no/it's: nodes"), "{missing}");
        assert!(output("/no/folder", &["/bin/pwd"]).starts_with("there is no folder /no/folder: "));
    }

    #[test]
    fn quoted_words_survive_a_shell() {
        let words = ["a", "", "it's", "$HOME `x` \\ \"", "a b", "--n=1,2", "*", "é\n"];
        let quoted: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
        let script = format!("printf '%s\\0' {}", quoted.join(" "));
        let out = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        let back = String::from_utf8(out.stdout).unwrap();
        assert_eq!(back.strip_suffix('\0').unwrap().split('\0').collect::<Vec<_>>(), words);
    }

    #[test]
    fn only_starts_that_share_nodes_share_failure_domains() {
        let settings = LaunchSettings::read(&LaunchDraft::new()).expect("the defaults are legal");
        let hosts = vec![Host { name: "n1".to_owned(), slots: 3 }];
        let pool = Pool::new(hosts.clone(), Vec::new());
        let program_file = "/bin/skt-hpl".into();
        let benchmark =
            LaunchOptions { settings, pool, ranks: 3, program_file, ..LaunchOptions::default() };
        let program = Some(Program { file: "/bin/heat".into(), checksum: 7 });
        let program = LaunchOptions { program_of_user: program, ..benchmark.clone() };
        let allows = vec!["--allow-shared-domains".to_owned()];
        let allowed = LaunchOptions { command: allows, ..benchmark.clone() };
        for (options, words) in [
            (&benchmark, "/bin/skt-hpl run --resume never --allow-shared-domains"),
            // A flag may be given once.
            (&allowed, "/bin/skt-hpl run --allow-shared-domains --resume never"),
            (&program, "env SKT_ALLOW_SHARED_DOMAINS=true /bin/skt-hpl rank /bin/heat"),
        ] {
            for shares in [true, false] {
                let start = &Start { hosts: hosts.clone(), resume: Some("never"), shares };
                let command = start_command(options, start, Path::new("hosts"), false, "r.1");
                let line = command.argv.join(" ");
                let is_allowed = shares || !options.command.is_empty();
                assert_eq!(line.ends_with(words), is_allowed, "{line}");
            }
        }
    }
}
