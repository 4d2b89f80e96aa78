//! Published runs of HPL on machines of others, and what the model predicts for them.
//!
//! ```text
//! calibration of the machine (machines)  x  parameters of a run (runs, data/published.csv)
//!     ──>  skt_model::path  ──>  predicted and real rates (gates)
//! ```

pub mod gates;
pub mod machines;
pub mod runs;
