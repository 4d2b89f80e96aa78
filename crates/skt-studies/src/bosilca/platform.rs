//! Section 4.3: the four machines of tables 1 and 2.
//!
//! Table 1's round figures do not yield table 2; the constants here do. `docs/model.md` shows how
//! each was found and how far the two are apart.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Platform {
    /// The machine's name, as printed.
    pub name: &'static str,
    pub cores: u64,
    /// Number of processors (p_total), the units that fail.
    pub processors: u64,
    /// Bytes of memory per processor that give beta of tables 2 and 3.
    pub processor_memory_bytes: f64,
    /// Flop/s of a processor (s_p) that give beta of tables 2 and 3.
    pub processor_flops: f64,
    /// Seconds to write all memory to stable storage (C_Mem).
    pub write_seconds: f64,
    /// Seconds to read all memory back.
    pub read_seconds: f64,
    /// Network bandwidth of a processor (b_port).
    pub port_bytes_per_second: f64,
    /// The smallest group that saturates the I/O network (q_min, eq. 20).
    pub smallest_group: u64,
}

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const PIB: f64 = 1024.0 * 1024.0 * GIB;

impl Platform {
    /// 2 GiB per core at 1 MiB/s per core; s_p of 2.6 Pflop/s over all processors.
    pub const TITAN: Self = Self {
        name: "Titan",
        cores: 299_008,
        processors: 18_688,
        processor_memory_bytes: 32.0 * GIB,
        processor_flops: 2.6e15 / 18_688.0,
        write_seconds: 2048.0,
        read_seconds: 2048.0,
        port_bytes_per_second: 20e9,
        smallest_group: 15,
    };
    /// 16 GB per processor, written at 96 GB/s and read at 150 GB/s; 8 cores of 16 Gflop/s.
    pub const K_COMPUTER: Self = Self {
        name: "K-Computer",
        cores: 705_024,
        processors: 88_128,
        processor_memory_bytes: 16.0 * GIB,
        processor_flops: 128e9,
        write_seconds: 88_128.0 * 16.0 / 96.0,
        read_seconds: 88_128.0 * 16.0 / 150.0,
        port_bytes_per_second: 20e9,
        smallest_group: 5,
    };
    /// 64 GB per processor at 1 TB/s; 64 PiB in total for beta.
    pub const EXASCALE_SLIM: Self = Self {
        name: "Exascale-Slim",
        cores: 1_000_000_000,
        processors: 1_000_000,
        processor_memory_bytes: 64.0 * PIB / 1e6,
        processor_flops: 1e12,
        write_seconds: 64_000.0,
        read_seconds: 64_000.0,
        port_bytes_per_second: 200e9,
        smallest_group: 5,
    };
    /// 640 GB per processor at 1 TB/s; 64 PiB in total for beta.
    pub const EXASCALE_FAT: Self = Self {
        name: "Exascale-Fat",
        cores: 1_000_000_000,
        processors: 100_000,
        processor_memory_bytes: 64.0 * PIB / 1e5,
        processor_flops: 1e13,
        write_seconds: 64_000.0,
        read_seconds: 64_000.0,
        port_bytes_per_second: 400e9,
        smallest_group: 3,
    };
    pub const ALL: [Self; 4] =
        [Self::TITAN, Self::K_COMPUTER, Self::EXASCALE_SLIM, Self::EXASCALE_FAT];

    /// On a faster store, as in figures 8(b), 8(c), 14 and 15.
    pub fn with_checkpoint_seconds(mut self, seconds: f64) -> Self {
        self.write_seconds = seconds;
        self.read_seconds = seconds;
        self
    }

    /// The MTBF of the platform, `mu_p = mu / p_total` (section 3.1).
    pub fn mtbf_seconds(&self, processor_mtbf_seconds: f64) -> f64 {
        processor_mtbf_seconds / self.processors as f64
    }
}
