//! Figure 5: the ten largest machines, with a part of their memory.

use skt_model::tang::efficiency::with_memory_lower_bound;

/// A machine of the TOP500 list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListedMachine {
    pub name: &'static str,
    pub(crate) rmax_tflops: f64,
    pub(crate) rpeak_tflops: f64,
}

impl ListedMachine {
    /// The efficiency, Rmax / Rpeak.
    pub(crate) fn efficiency(&self) -> f64 {
        self.rmax_tflops / self.rpeak_tflops
    }

    /// The lower bound of the efficiency with a share of the memory: Tang et al., TPDS 2018, eq. 5.
    pub(crate) fn efficiency_with_memory(&self, memory_fraction: f64) -> f64 {
        with_memory_lower_bound(self.efficiency(), memory_fraction)
            .expect("Rmax is below Rpeak in the table, the fraction comes from the caller's figure")
    }
}

const fn machine(name: &'static str, rmax_tflops: f64, rpeak_tflops: f64) -> ListedMachine {
    ListedMachine { name, rmax_tflops, rpeak_tflops }
}

/// The first ten of the TOP500 list of June 2017, the latest when the paper was revised.
pub const JUNE_2017: [ListedMachine; 10] = [
    machine("TaihuLight", 93_014.6, 125_435.9),
    machine("Tianhe-2", 33_862.7, 54_902.4),
    machine("Piz Daint", 19_590.0, 25_326.3),
    machine("Titan", 17_590.0, 27_112.5),
    machine("Sequoia", 17_173.2, 20_132.7),
    machine("Cori", 14_014.7, 27_880.7),
    machine("Oakforest", 13_554.6, 24_913.5),
    machine("K computer", 10_510.0, 11_280.4),
    machine("Mira", 8_586.6, 10_066.3),
    machine("Trinity", 8_100.9, 11_078.9),
];

/// Over the machines, in efficiency, when the usable share of the memory grows from `from` to `to`.
pub fn mean_relative_gain(machines: &[ListedMachine], from: f64, to: f64) -> f64 {
    let total: f64 = machines
        .iter()
        .map(|m| m.efficiency_with_memory(to) / m.efficiency_with_memory(from) - 1.0)
        .sum();
    total / machines.len() as f64
}
