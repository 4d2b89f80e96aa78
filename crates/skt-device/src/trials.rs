//! Which way of copying is fastest, measured on the data that is copied.

use crate::error::DeviceError;

/// A way to copy between memory of the device and of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The driver gets the address of the host's memory.
    Direct,
    /// Through two pinned buffers: while the device copies one, the thread copies the other.
    Staged,
    /// As [`Way::Direct`], with the host's memory pinned in place (registered) before.
    Registered,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Direct, Self::Staged, Self::Registered];
}

/// How often each way is tried. The first time is a warm-up: drivers allocate what they need then.
pub(crate) const ROUNDS: u32 = 3;

#[derive(Debug, Clone, Copy, Default)]
struct Tried {
    rounds: u32,
    /// The fastest round after the first. Slower ones have waited for a core or a link.
    bytes_per_second: Option<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Trials([Tried; Way::ALL.len()]);

impl Trials {
    #[cfg(test)]
    pub(crate) fn settled(fastest: Way) -> Self {
        let tried = |way| {
            let bytes_per_second = Some(if way == fastest { 2.0 } else { 1.0 });
            Tried { rounds: ROUNDS, bytes_per_second }
        };
        Self(Way::ALL.map(tried))
    }

    /// The way of these to measure next: that with the fewest rounds, so that ways take turns.
    pub(crate) fn next(&self, ways: impl Iterator<Item = Way>) -> Option<Way> {
        let untried = ways.filter(|way| self.0[*way as usize].rounds < ROUNDS);
        untried.min_by_key(|way| self.0[*way as usize].rounds)
    }

    pub(crate) fn best(&self, ways: impl Iterator<Item = Way>) -> Option<Way> {
        let rated = ways.filter_map(|way| Some((way, self.0[way as usize].bytes_per_second?)));
        rated.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(way, _)| way)
    }

    pub(crate) fn count(&mut self, way: Way, bytes: usize, seconds: f64) {
        let tried = &mut self.0[way as usize];
        if tried.rounds > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
            let rate = bytes as f64 / seconds.max(f64::MIN_POSITIVE);
            tried.bytes_per_second = Some(tried.bytes_per_second.map_or(rate, |r| r.max(rate)));
        }
        tried.rounds += 1;
    }

    pub(crate) fn rounds(&self, way: Way) -> u32 {
        self.0[way as usize].rounds
    }

    pub(crate) fn measured(&self) -> Measured {
        let chosen = self.best(Way::ALL.into_iter());
        let rate = |way| {
            let tried = self.0[way as usize];
            Rate { way, rounds: tried.rounds, bytes_per_second: tried.bytes_per_second }
        };
        Measured { rates: Way::ALL.map(rate), chosen }
    }
}

/// How fast one way is, in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// The way.
    pub way: Way,
    /// How often it was tried.
    pub rounds: u32,
    /// The rate of the fastest round after the first, which is a warm-up.
    pub bytes_per_second: Option<f64>,
}

/// What was measured in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Each way.
    pub rates: [Rate; 3],
    /// The fastest way as far as measured, in which copies are made that are not timed, if it is
    /// possible with their memory of the host.
    pub chosen: Option<Way>,
}

/// What a copier has measured, and chosen by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// From the device to the host. The time of [`Way::Registered`] is without that of registering,
    /// which is needed once for all checkpoints in the same memory.
    pub to_host: Measured,
    /// From the host to the device. The time of [`Way::Registered`] is with that of registering
    /// what was not registered before: a run is resumed once.
    pub from_host: Measured,
    /// Bytes of host memory that have been registered in all.
    pub registered_bytes: usize,
    /// The time that registering them took, in seconds.
    pub registered_seconds: f64,
    /// Why no pinned buffers can be allocated.
    pub no_staging: Option<DeviceError>,
    /// Why no memory can be registered.
    pub no_registering: Option<DeviceError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_take_turns_and_the_fastest_is_chosen() {
        let ways = || Way::ALL.into_iter();
        let mut trials = Trials::default();
        let mut order = Vec::new();
        while let Some(way) = trials.next(ways()) {
            order.push(way);
            // The fastest of all is a warm-up, the next a round that nothing disturbs.
            let seconds = match (way, trials.rounds(way)) {
                (Way::Direct, 0) => 0.1,
                (Way::Staged, 2) => 1.0,
                _ => 2.0,
            };
            trials.count(way, 100, seconds);
        }
        assert_eq!(order, [Way::ALL, Way::ALL, Way::ALL].concat());
        let measured = trials.measured();
        assert_eq!(measured.chosen, Some(Way::Staged));
        assert!(measured.rates.iter().all(|rate| rate.bytes_per_second.is_some()));
        // A way that is not possible here is not taken, however fast.
        assert_eq!(trials.best(ways().filter(|way| *way != Way::Staged)), Some(Way::Registered));
    }
}
