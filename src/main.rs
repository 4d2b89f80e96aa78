use std::process::ExitCode;

fn main() -> ExitCode {
    skt_hpl::cli::main()
}
