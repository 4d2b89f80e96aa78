//! The BLAS that a process calls, and the hidden subcommand that tries one.

use std::path::Path;

use clap::Args;
use skt_config::Format;
use skt_config::param::Param;
use skt_config::value::Value;
use skt_health::environment::library::{self, ChosenBlas, Products, trial};
use skt_host::exit::Exit;

/// Flags of the trial of a library.
#[derive(Debug, Args)]
pub(crate) struct TrialArgs {
    /// Rows and columns of the products that are timed
    #[arg(long, value_name = "COUNT")]
    pub order: Option<usize>,
    /// Depths of the products
    #[arg(long, value_name = "NB,..", value_delimiter = ',')]
    pub depths: Vec<usize>,
    /// The rate is that of products in single precision
    #[arg(long)]
    pub single: bool,
    /// The library is called unless another one is named
    #[arg(long)]
    pub by_default: bool,
    /// Files of libraries that are tried already
    #[arg(long, value_name = "FILE")]
    pub known: Vec<String>,
    /// Name or file of the library
    pub library: String,
}

pub(crate) fn execute_trial(args: &TrialArgs) -> Exit {
    let TrialArgs { order, depths, single, by_default, known, library } = args;
    let order = order.unwrap_or(Products::default().order);
    let products = Products { order, depths: depths.clone(), is_single: *single };
    let has_passed = trial::run(library, *by_default, &products, known);
    if has_passed { Exit::Passed } else { Exit::BadInput }
}

/// As [`choose`], with the default NB, where a flag alone names the BLAS.
pub(super) fn choose_by_flag(named: Option<&str>) -> ChosenBlas {
    let given = |param: Param, _: &dyn Fn(&Path) -> bool| {
        let named = named.filter(|_| param == Param::Blas)?;
        Some(vec![Value::flag(named.to_owned())])
    };
    choose(&given, false)
}

/// Gives the values of a parameter in the flags, else in the configuration if its path may be read.
type Given<'a> = &'a dyn Fn(Param, &dyn Fn(&Path) -> bool) -> Option<Vec<Value>>;

/// Makes the BLAS that the flags or the configuration name the one of this process, with a kernel
/// that fits; for HPL-MxP (`is_mxp`) `auto` compares rates of SGEMM. Called before MPI starts, by
/// each process for itself: a process that cannot read the configuration knows the flags alone,
/// which the job notices later.
pub(super) fn choose(given: Given, is_mxp: bool) -> ChosenBlas {
    let texts = |values: Vec<Value>| values.into_iter().map(|value| value.text);
    // HPL.dat has no BLAS, and most jobs need no process but rank 0 to read it.
    let is_toml = |path: &Path| Format::from_path(path) == Format::Toml;
    let named = given(Param::Blas, &is_toml).and_then(|values| texts(values).next());
    // What is no number is refused later.
    let numbers = |param| {
        let values = given(param, &|path| named.is_some() || is_toml(path));
        values.map(|values| texts(values).filter_map(|text| text.parse().ok()).collect())
    };
    let depths: Vec<usize> = numbers(Param::Nb)
        .unwrap_or_else(|| vec![Param::Nb.info().default.parse().expect("a default")]);
    let largest = |param| numbers(param).and_then(|all: Vec<usize>| all.into_iter().max());
    let products = match largest(Param::N) {
        Some(n) => {
            let ranks = [Param::P, Param::Q].map(|param| largest(param).unwrap_or(1));
            Products::in_run(n, ranks[0].saturating_mul(ranks[1]), depths, is_mxp)
        }
        None => Products { depths, is_single: is_mxp, ..Products::default() },
    };
    library::choose(named, &products)
}
