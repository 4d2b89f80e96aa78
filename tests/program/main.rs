//! The built program without a job over MPI: what it reads, writes and refuses.

#[path = "../executables/mod.rs"]
mod executables;
#[path = "../mpirun/mod.rs"]
mod mpirun;
#[path = "../report_common/mod.rs"]
mod report_common;
#[path = "../report_schema/mod.rs"]
mod report_schema;

mod built;
mod cli_config;
mod cli_example_configs;
mod dat_mutations;
mod doctor;
mod dry_run;
mod golden;
mod hpl_text;
mod launchers;
mod limits;
mod model_cli;
mod model_plan;
mod mxp_cli;
mod plan_protected;
mod power_logs;
mod record_format;
mod refusals;
mod report_escapes;
mod report_json;
mod report_patterns;
mod report_text;
