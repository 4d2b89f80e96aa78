#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Minimum {
    pub at: f64,
    pub value: f64,
}

/// The minimum of `f` over `[low, high]`, both above zero, by golden sections in the logarithm of
/// the argument, because periods span many orders of magnitude. Exact to about 1e-8 of the argument
/// if `f` is unimodal, as all functions of the form a/T + b + c T are.
pub fn minimize_log(low: f64, high: f64, f: impl Fn(f64) -> f64) -> Minimum {
    debug_assert!(low > 0.0 && high >= low);
    let inverse_golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut a, mut b) = (low.ln(), high.ln());
    let mut x1 = b - inverse_golden * (b - a);
    let mut x2 = a + inverse_golden * (b - a);
    let (mut f1, mut f2) = (f(x1.exp()), f(x2.exp()));
    while b - a > 1e-9 {
        if f1 <= f2 {
            (b, x2, f2) = (x2, x1, f1);
            x1 = b - inverse_golden * (b - a);
            f1 = f(x1.exp());
        } else {
            (a, x1, f1) = (x1, x2, f2);
            x2 = a + inverse_golden * (b - a);
            f2 = f(x2.exp());
        }
    }
    // The ends are candidates, too: a period is often at its bound.
    [low, (0.5 * (a + b)).exp(), high]
        .into_iter()
        .map(|at| Minimum { at, value: f(at) })
        .min_by(|l, r| l.value.total_cmp(&r.value))
        .expect("three candidates")
}

/// By bisection in the logarithm; `None` if `f` has the same sign at both ends.
pub fn root_log(low: f64, high: f64, f: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut a, mut b) = (low.ln(), high.ln());
    let positive_at_low = f(low) > 0.0;
    if positive_at_low == (f(high) > 0.0) {
        return None;
    }
    while b - a > 1e-10 {
        let middle = 0.5 * (a + b);
        if (f(middle.exp()) > 0.0) == positive_at_low {
            a = middle;
        } else {
            b = middle;
        }
    }
    Some((0.5 * (a + b)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_minimum_of_a_over_t_plus_t() {
        let minimum = minimize_log(1e-3, 1e6, |t| 400.0 / t + t);
        assert!((minimum.at - 20.0).abs() < 1e-5, "{minimum:?}");
        assert!((minimum.value - 40.0).abs() < 1e-9);
    }

    #[test]
    fn takes_the_bound_when_the_minimum_lies_outside() {
        assert_eq!(minimize_log(30.0, 100.0, |t| 400.0 / t + t).at, 30.0);
        assert_eq!(minimize_log(1.0, 10.0, |t| 400.0 / t + t).at, 10.0);
    }

    #[test]
    fn finds_a_root_or_returns_none() {
        let root = root_log(1.0, 100.0, |x| x - 42.0).unwrap();
        assert!((root - 42.0).abs() < 1e-6);
        assert_eq!(root_log(1.0, 10.0, |x| x + 1.0), None);
    }
}
