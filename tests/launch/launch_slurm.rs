//! `skt-hpl launch` inside an allocation of a real Slurm, whose daemons run on a
//! cluster in a box, with real power-offs.

use crate::launch_screen;
use crate::supervised::Kind;

// What is ignored differs little from the others under Slurm, and runs under Open MPI, too.
scenarios! {
    Kind::Slurm;
    #[ignore = "scripts/dev/test-launchers runs it"]
    an_undisturbed_run_passes_and_leaves_nothing
    losses_one_after_the_other
    a_node_powered_off_under_checksums_with_images
    a_rank_killed
}

#[test]
#[ignore = "scripts/dev/test-launchers runs it"]
fn a_screening_names_a_wrong_node() {
    launch_screen::a_wrong_node_is_named_under(Kind::Slurm);
}

#[test]
fn a_screening_whose_node_dies_ends_and_names_it() {
    launch_screen::a_node_that_dies_ends_the_job_under(Kind::Slurm);
}
