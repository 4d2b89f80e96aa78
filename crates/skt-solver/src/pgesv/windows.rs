//! The panels of a factorization in windows of about equal work.

/// Enough windows for a heat map across a page, and to locate a column within a few per cent of N.
pub const MOST: usize = 64;

/// The first panel of each window, and after the last one the number of panels. Each has about as
/// many operations, and so takes about as long: those at the end have more panels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    first_panels: Vec<usize>,
}

impl Windows {
    /// The windows of a matrix of order `n` with blocks of `nb` columns. All ranks get the same.
    pub fn new(n: usize, nb: usize) -> Self {
        let mut first_panels = Vec::with_capacity(MOST + 1);
        let mut latest = None;
        for panel in 0..n.div_ceil(nb) {
            let share = share(panel * nb, n);
            if latest != Some(share) {
                first_panels.push(panel);
                latest = Some(share);
            }
        }
        first_panels.push(n.div_ceil(nb));
        Self { first_panels }
    }

    pub fn count(&self) -> usize {
        self.first_panels.len() - 1
    }

    pub(crate) fn window_of_panel(&self, panel: usize) -> usize {
        self.first_panels.partition_point(|first| *first <= panel) - 1
    }

    /// The first column of each window, in blocks of `nb` columns, and after the last one `n`.
    pub fn columns(&self, n: usize, nb: usize) -> Vec<usize> {
        self.first_panels.iter().map(|panel| (panel * nb).min(n)).collect()
    }
}

/// The work of the first `done` of `n` columns, in parts of [`MOST`], rounded down:
/// `MOST (1 - ((n - done) / n)^3)`, in integers, so that it is the same on all processors.
fn share(done: usize, n: usize) -> usize {
    let cube = |columns: usize| (columns as u128).saturating_pow(3);
    let (all, left) = (cube(n), cube(n - done));
    ((all - left).saturating_mul(MOST as u128) / all) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_all_panels_with_about_equal_work() {
        for (n, nb) in [(1, 1), (35, 4), (2000, 192), (100_000, 192), (10_000_000, 384)] {
            let windows = Windows::new(n, nb);
            let columns = windows.columns(n, nb);
            assert!(windows.count() <= MOST && windows.count() + 1 == columns.len(), "{n}");
            assert_eq!((columns[0], columns[windows.count()]), (0, n));
            assert!(columns.windows(2).all(|pair| pair[0] < pair[1]), "{columns:?}");
            for panel in 0..n.div_ceil(nb) {
                let window = windows.window_of_panel(panel);
                assert!((columns[window]..columns[window + 1]).contains(&(panel * nb)));
            }
        }
        let columns = Windows::new(100_000, 192).columns(100_000, 192);
        let work = |pair: &[usize]| {
            let left = |column: usize| (1.0 - column as f64 / 1e5).powi(3);
            left(pair[0]) - left(pair[1])
        };
        // The work of the last panel of a window may be on either side.
        let most = 1.0 / MOST as f64 + 3.0 * 192.0 / 1e5;
        assert!(columns.windows(2).all(|pair| work(pair) < most));
    }
}
