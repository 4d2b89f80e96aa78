//! `skt-hpl launch` inside an allocation of a real Slurm, whose daemons run on a
//! cluster in a box, with real power-offs.

use crate::supervised::Kind;

scenarios! {
    Kind::Slurm;
    an_undisturbed_run_passes_and_leaves_nothing
    a_node_powered_off_while_computing
    a_node_powered_off_under_checksums_with_images
    a_node_powered_off_without_a_last_packet
    a_rank_killed
    the_launcher_killed
}
