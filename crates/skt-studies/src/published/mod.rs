//! Calibration of the machine (machines) x parameters of a run (runs, data/published.csv) ──>
//! skt_model::path ──> predicted and real rates (gates).

pub mod gates;
pub mod machines;
pub mod runs;
