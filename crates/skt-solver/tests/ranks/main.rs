//! The solver, its checkpoints and its checksums on ranks of one process: threads, and simulated
//! ranks that are killed at their steps.

mod abft;
mod base_spec;
#[path = "../../../../benches/counted/mod.rs"]
mod counted;
#[path = "../../../../tests/dice/mod.rs"]
mod dice;
mod drill;
mod elimination;
mod mxp_system;
#[path = "../../../../tests/soak/mod.rs"]
mod soak;

mod abft_ranks;
mod abft_replacement;
mod abft_silent;
mod clocked_ranks;
mod ft_memory;
mod ft_ranks;
mod mxp_kills;
mod mxp_ranks;
mod mxp_silent;
mod rates_clocked;
mod rates_ranks;
mod rot;
mod solver_ranks;
