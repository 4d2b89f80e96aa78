//! `skt-hpl launch` inside an allocation of a real Slurm, whose daemons run on a
//! cluster in a box, with real power-offs.

use crate::launch_screen;
use crate::supervised::Kind;

scenarios! {
    Kind::Slurm;
    losses_one_after_the_other
    a_node_powered_off_under_checksums_with_images
}

#[test]
fn a_screening_whose_node_dies_ends_and_names_it() {
    launch_screen::a_node_that_dies_ends_the_job_under(Kind::Slurm);
}
