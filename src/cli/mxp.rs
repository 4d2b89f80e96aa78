//! `skt-hpl mxp`: runs HPL-MxP, by the code and with the flags of a run of HPL.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::flags;
use super::run::RunArgs;
use skt_config::param::Param;

pub(crate) const LONG_ABOUT: &str = "\
HPL-MxP, the mixed-precision benchmark: solves Ax = b as accurately as in double precision, but \
factors A in lower precision and without pivoting, then refines the solution. A result is valid if \
||Ax-b||_oo / (eps (||A||_oo ||x||_oo + ||b||_oo) N) is below 16 with eps = 2^-53.

The configuration is that of a run of HPL, HPL.dat in the current folder or the file that is named, \
and the flags override it. PFACT, RFACT, NBMIN, NDIV, L1, U and equilibration have no effect.";

pub(crate) const AFTER_HELP: &str = with_exit_codes!(
    "\
Examples:
  mpirun -np 4 skt-hpl mxp          HPL.dat in the current folder
  mpirun -np 4 skt-hpl mxp --n 20000,40000 --nb 192,256 --p 2 --q 2
  mpirun -np 4 skt-hpl mxp --n 20000 --matrix scaled --gemm bf16
  skt-hpl launch --hosts hosts --spares spares -- mxp --n 20000 --p 2 --q 4
                                    through the loss of nodes"
);

/// Flags of `mxp`: those of a run, and those that a run of HPL does not have.
#[derive(Debug, Clone, Args)]
pub(crate) struct MxpArgs {
    /// Configuration, as by --config
    #[arg(value_name = "CONFIG", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Flags of a run.
    #[command(flatten)]
    run: RunArgs,
    /// The flags that a run of HPL does not have.
    #[command(flatten)]
    of_mxp: FlagsOfMxp,
}

impl MxpArgs {
    pub(crate) fn into_run(self) -> RunArgs {
        let Self { file, run, .. } = self;
        RunArgs { config: file.or(run.config), is_mxp: true, ..run }
    }
}

/// `--matrix` and `--gemm`; their values are read with those of the other parameters.
#[derive(Debug, Clone)]
pub(super) struct FlagsOfMxp;

impl Args for FlagsOfMxp {
    fn augment_args(command: Command) -> Command {
        command.args(Param::OF_MXP.map(|param| flags::arg(param.info())))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FlagsOfMxp {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}
