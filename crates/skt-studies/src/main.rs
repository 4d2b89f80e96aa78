use std::process::ExitCode;

fn main() -> ExitCode {
    skt_studies::cli::main()
}
