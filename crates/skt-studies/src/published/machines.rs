//! The Dahu cluster is as its owners calibrated it, before any comparison with a run of HPL.
//!
//! Sources, of Cornebize, Legrand and Heinrich's "Fast and Faithful Performance Prediction of MPI
//! Applications: the HPL Case Study" (2019) and Cornebize's thesis (2021):
//!
//! - `hpl`: github.com/Ezibenroc/hpl, commit 81185458: `include/hpl_blas.h` and
//!   `src/auxil/HPL_dlatcpy.c`, `HPL_dlacpy.c` (kernels), `bin/SMPI/dahu.xml` (network),
//!   `bin/SMPI/HPL.dat`
//! - `thesis`: github.com/Ezibenroc/thesis, commit 62c23940: `data/prediction/modeling/kernels/
//!   generative/dgemm_calibration.csv` and `dgemm_calibration_slownodes.csv` (DGEMM of each
//!   processor)
//!
//! 32 nodes of two Xeon Gold 6130 (2 x 16 cores) on one switch of 100 Gbit/s, a rank on each core,
//! OpenBLAS 0.3.1, HPL 2.2 with ranks in row-major order.

use skt_host::choice::Pmap;
use skt_model::path::{Machine, Placement};

/// Ranks of a node: one for each core.
pub(crate) const RANKS_PER_NODE: usize = 32;

/// Seconds of a multiply-add of DGEMM: the median over all calibrations of all processors of
/// `dgemm_calibration.csv`, whose regression is per call `mnk M N K + intercept`.
const MULTIPLY_ADD_SECONDS: f64 = 7.339e-11;
/// Seconds of a multiply-add on the slowest of the 64 processors, the mean of its calibrations. All
/// ranks of a process column wait for each other in each step, so the slowest one sets the pace.
const SLOWEST_MULTIPLY_ADD_SECONDS: f64 = 8.153e-11;
/// Seconds of a multiply-add on the slowest processor while four nodes were cooled badly
/// (`dgemm_calibration_slownodes.csv`), as in March 2019.
const HOT_MULTIPLY_ADD_SECONDS: f64 = 9.134e-11;
/// The intercept: seconds of a call of DGEMM, the mean of `dgemm_calibration.csv`.
const DGEMM_CALL_SECONDS: f64 = 2.404e-6;

/// The kernels of `include/hpl_blas.h`, in seconds for an entry: DTRSM with `M^2 N` of them, the
/// search for a pivot, the scaling of a column, a matrix times a vector.
const DTRSM_SECONDS: f64 = 5.445_540e-11;
const IDAMAX_SECONDS: f64 = 6.052_262e-10;
const DSCAL_SECONDS: f64 = 3.798_686e-10;
const DGEMV_SECONDS: f64 = 1.278_804e-9;
/// Copies of an entry, with and without a transposition.
const DLATCPY_SECONDS: f64 = 4.893_900e-9;
const DLACPY_SECONDS: f64 = 3.871_806e-9;
/// `bin/SMPI/HPL.dat`: columns of a panel at which the recursion ends, and are updated by DGEMV.
const NBMIN: f64 = 2.0;
const NB: f64 = 128.0;

/// `bin/SMPI/dahu.xml`: a link, and the part of it that large messages reach; the same for messages
/// of less than 8,133 bytes.
const LINK_BYTES_PER_SECOND: f64 = 12.5e9;
const LARGE_FACTOR: f64 = 0.986_795;
const SMALL_FACTOR: f64 = 0.470_991;
/// Between two ranks of a node.
const LOOPBACK_BYTES_PER_SECOND: f64 = 18.348_422e9;
/// A link's latency, of which a message passes two, and its factor for small messages.
const LINK_LATENCY_SECONDS: f64 = 0.10e-6;
const LATENCY_FACTOR: f64 = 1.134_737;
/// Seconds in `MPI_Send` and in `MPI_Recv`, for a small message and for each of its bytes.
const SEND_SECONDS: (f64, f64) = (2.965_492e-7, 9.636_196e-11);
const RECEIVE_SECONDS: (f64, f64) = (1.375_430e-6, 8.456_019e-11);
/// Bytes of the message that carries a pivot and two rows of a panel of [`NB`] columns.
const PIVOT_BYTES: f64 = 8.0 * (4.0 + 2.0 * NB);

/// Seconds of a byte of a large message on a link that is not shared.
const BYTE_SECONDS: f64 = 1.0 / (LINK_BYTES_PER_SECOND * LARGE_FACTOR);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processors {
    /// All of them as the median.
    Equal,
    /// All of them as the slowest, which the others wait for.
    Slowest,
    /// As [`Self::Slowest`], while four nodes were hot.
    Hot,
}

impl Processors {
    fn multiply_add_seconds(self) -> f64 {
        match self {
            Self::Equal => MULTIPLY_ADD_SECONDS,
            Self::Slowest => SLOWEST_MULTIPLY_ADD_SECONDS,
            Self::Hot => HOT_MULTIPLY_ADD_SECONDS,
        }
    }
}

/// A core of Dahu. Where a kernel of HPL has no counterpart among the units of the model, the
/// nearest kernel stands in:
///
/// - DGEMM has one rate whatever the shape, so entries of the product and packing are free.
/// - A column of a panel costs half a call of DGEMM: with NBMIN 2, the recursion makes one for
///   every second column.
/// - An entry of a panel is searched, scaled and copied once. Its operations are those of DGEMM,
///   but for NBMIN of NB columns, which DGEMV updates.
/// - Rows are copied like `HPL_dlatcpy` does, an entry of which reads and writes 8 bytes.
/// - The back substitution is DGEMV.
/// - The latency is that of pivots, the most frequent messages, less their bytes at the rate of
///   large messages.
pub fn dahu(processors: Processors) -> Machine {
    let flop_seconds = processors.multiply_add_seconds() / 2.0;
    let small_byte_seconds =
        SEND_SECONDS.1 + RECEIVE_SECONDS.1 + 1.0 / (LINK_BYTES_PER_SECOND * SMALL_FACTOR);
    Machine {
        product_flop_seconds: flop_seconds,
        product_entry_seconds: 0.0,
        packed_entry_seconds: 0.0,
        solve_flop_seconds: DTRSM_SECONDS,
        panel_column_seconds: DGEMM_CALL_SECONDS / NBMIN,
        panel_entry_seconds: IDAMAX_SECONDS + DSCAL_SECONDS + DLACPY_SECONDS,
        panel_flop_seconds: flop_seconds + NBMIN / NB * DGEMV_SECONDS / 2.0,
        copied_byte_seconds: DLATCPY_SECONDS / 16.0,
        streamed_byte_seconds: DGEMV_SECONDS / 8.0,
        message_seconds: 2.0 * LINK_LATENCY_SECONDS * LATENCY_FACTOR
            + SEND_SECONDS.0
            + RECEIVE_SECONDS.0
            + PIVOT_BYTES * (small_byte_seconds - BYTE_SECONDS),
        message_byte_seconds: BYTE_SECONDS,
    }
}

pub const DAHU: Placement = Placement {
    ranks_per_node: RANKS_PER_NODE,
    pmap: Pmap::RowMajor,
    inner_share: LINK_BYTES_PER_SECOND / LOOPBACK_BYTES_PER_SECOND,
};

/// Cores of a node of the cluster of github.com/hpc-cofc/generic-benchmarks (commit 522ba68f).
pub(crate) const COFC_CORES: usize = 40;

/// The cluster `cofc` with cores of `flops` a second: a rank of Intel's HPL with 40 threads on each
/// node. EDR InfiniBand, measured there with the OSU benchmarks: 1.13 us for small messages, and
/// 24.12 GB/s in both directions at once for those of 4 MiB (`network/infiniband`). All else is as
/// fitted on two cores of another processor.
pub(crate) fn cofc(flops: f64) -> Machine {
    Machine {
        message_seconds: 1.13e-6,
        message_byte_seconds: 2.0 / 24.12e9,
        ..Machine::ZEN4_CORE.with_core_flops(flops)
    }
}

/// Which ranks of Stellar share a node: 96 cores of Xeon Platinum 8268, with a rank of HPL 2.3 on
/// each, MKL and Intel's MPI (github.com/jdh4/hpl_stellar_feb2021, commit 25be5964). That page
/// states neither the latency nor the rate of its InfiniBand, so the network is assumed to be that
/// of [`cofc`], and within a node as on Dahu.
pub(crate) const STELLAR: Placement = Placement { ranks_per_node: 96, ..DAHU };
