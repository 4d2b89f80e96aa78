//! `skt-hpl launch --launcher mpich` on a cluster in a box: real Hydra, real
//! power-offs.

use crate::supervised::Kind;

scenarios! {
    Kind::Mpich;
    an_undisturbed_run_passes_and_leaves_nothing
    a_node_powered_off_while_computing
    a_node_powered_off_under_checksums_with_images
    a_node_powered_off_without_a_last_packet
    a_rank_killed
    the_launcher_killed
}
