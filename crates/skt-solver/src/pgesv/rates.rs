//! The rate of a rank's own products, window by window of the panels.

use super::product::ProductWork;
use super::windows::Windows;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rate {
    /// The rate of a thread inside the BLAS, in Gflop/s; 0 where nothing was measured.
    pub gflops: f32,
    /// Seconds that a thread was inside the BLAS, the mean of the rank's threads.
    pub seconds: f32,
}

/// The products of the trailing update on one rank: their operations and the time inside the BLAS,
/// without any wait. The products on the columns of a panel are not among them: they are narrow,
/// and only the owner of the panel computes them.
#[derive(Debug, Clone)]
pub struct Rates {
    windows: Windows,
    work: Vec<ProductWork>,
    panels: usize,
}

impl Rates {
    pub fn new(n: usize, nb: usize) -> Self {
        let windows = Windows::new(n, nb);
        let work = vec![ProductWork::default(); windows.count()];
        Self { windows, work, panels: 0 }
    }

    pub(super) fn add(&mut self, k: usize, work: ProductWork) {
        let sum = &mut self.work[self.windows.window_of_panel(k)];
        sum.operations += work.operations;
        sum.nanos += work.nanos;
        self.panels = k + 1;
    }

    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The number of windows whose panels are all applied, from the first one on.
    pub fn complete(&self) -> usize {
        match self.panels {
            0 => 0,
            // The panel that is applied next begins a window, or is in one that is not complete.
            panels => self.windows.window_of_panel(panels).min(self.work.len()),
        }
    }

    /// The rate of a thread in window `window`, and the seconds of all threads together.
    pub fn window_rate(&self, window: usize) -> Rate {
        let ProductWork { operations, nanos } = self.work[window];
        if nanos == 0 {
            return Rate::default();
        }
        Rate { gflops: (operations / nanos as f64) as f32, seconds: (nanos as f64 / 1e9) as f32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_add_up_the_work_of_their_panels() {
        let mut rates = Rates::new(100, 10);
        // The last two panels are one window.
        assert_eq!((rates.windows().count(), rates.complete()), (9, 0));
        let work = |operations, nanos| ProductWork { operations, nanos };
        rates.add(0, work(8e9, 2_000_000_000));
        rates.add(0, work(4e9, 1_000_000_000));
        assert_eq!(rates.window_rate(0), Rate { gflops: 4.0, seconds: 3.0 });
        assert_eq!((rates.window_rate(1), rates.complete()), (Rate::default(), 1));
        rates.add(9, work(1.0, 1));
        assert_eq!(rates.complete(), 9);
    }
}
