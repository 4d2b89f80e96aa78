//! HPL's random matrix with a larger diagonal.

use crate::matgen::Lcg;

use crate::mxp::LANES;

/// HPL's random matrix of one order; entry (i, j) is number `1 + i + j n` of its generator.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    diagonal: f64,
    /// As many columns at once as the lane's number.
    lanes: Box<[Lcg; LANES]>,
    /// [`LANES`] columns at once.
    stride: Lcg,
}

impl Random {
    pub(crate) fn new(n: usize, diagonal: f64) -> Self {
        let columns = |count: usize| Lcg::jump((count as u64).wrapping_mul(n as u64));
        let (lanes, stride) = (Box::new(std::array::from_fn(columns)), columns(LANES));
        Self { diagonal, lanes, stride }
    }

    /// Row `i` from column `first` on; `state` is the generator's at the first entry.
    #[inline(always)]
    pub(crate) fn fill(&self, i: usize, first: usize, state: u64, values: &mut [f64]) {
        let len = values.len();
        let mut states = [0; LANES];
        for (lane, jump) in states.iter_mut().zip(self.lanes.iter()) {
            *lane = jump.apply(state);
        }
        let mut parts = values.chunks_exact_mut(LANES);
        for part in &mut parts {
            for (value, state) in part.iter_mut().zip(&mut states) {
                *value = Lcg::entry(*state);
                *state = self.stride.apply(*state);
            }
        }
        for (value, state) in parts.into_remainder().iter_mut().zip(states) {
            *value = Lcg::entry(state);
        }
        if (first..first + len).contains(&i) {
            let value = &mut values[i - first];
            *value += self.diagonal.copysign(*value);
        }
    }
}
