//! The command line of a start of the job.

use std::path::Path;

use super::decisions::Start;
use super::launcher::{self, JobSpec, LauncherCommand};
use super::state::{StateFolder, SupervisorState};
use super::{LaunchOptions, program, subcommand_words};
use skt_checkpoint::time_limit::TimeLimit;
use skt_host::process::Process;

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
    launcher::plan(&options.launcher, &job)
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
    use super::*;
    use crate::hosts::{Host, Pool};
    use crate::program::Program;
    use skt_config::{LaunchDraft, LaunchSettings};

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
