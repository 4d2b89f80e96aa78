#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// The standard deviation of one run.
    pub deviation: f64,
    pub count: usize,
}

impl Estimate {
    /// The mean and the deviation of `samples`; NaN if there are none.
    pub(crate) fn from_samples(samples: impl Iterator<Item = f64>) -> Self {
        // Welford's update has no cancellation, however large the mean is.
        let (mut count, mut mean, mut squares) = (0usize, 0.0, 0.0);
        for sample in samples {
            count += 1;
            let distance = sample - mean;
            mean += distance / count as f64;
            squares += distance * (sample - mean);
        }
        if count == 0 {
            return Self { mean: f64::NAN, deviation: f64::NAN, count };
        }
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { f64::NAN };
        Self { mean, deviation, count }
    }

    /// Half the width of the confidence interval, by Student's t.
    pub fn half_width(&self, confidence: f64) -> f64 {
        student_quantile(confidence, self.count.saturating_sub(1)) * self.deviation
            / (self.count as f64).sqrt()
    }

    pub fn agrees_with(&self, value: f64, confidence: f64) -> bool {
        (value - self.mean).abs() <= self.half_width(confidence)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proportion {
    pub hits: usize,
    pub count: usize,
}

impl Proportion {
    pub fn value(&self) -> f64 {
        self.hits as f64 / self.count as f64
    }

    /// Wilson's interval, which stays within [0, 1] and is right at both ends.
    pub fn interval(&self, confidence: f64) -> (f64, f64) {
        let (n, p, z) = (self.count as f64, self.value(), normal_quantile(confidence));
        let centre = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        ((centre - half).max(0.0), (centre + half).min(1.0))
    }

    pub fn agrees_with(&self, value: f64, confidence: f64) -> bool {
        let (low, high) = self.interval(confidence);
        (low..=high).contains(&value)
    }
}

/// The z for which a standard normal variable is in (-z, z) with probability `confidence`: Acklam's
/// rational approximation, with a relative error below 1.2e-9.
pub(crate) fn normal_quantile(confidence: f64) -> f64 {
    let upper = 0.5 + confidence / 2.0;
    let q = upper - 0.5;
    if upper <= 0.975_75 {
        const A: [f64; 6] = [
            -39.696_830_286_653_76,
            220.946_098_424_520_5,
            -275.928_510_446_968_7,
            138.357_751_867_269,
            -30.664_798_066_147_16,
            2.506_628_277_459_239,
        ];
        const B: [f64; 6] = [
            -54.476_098_798_224_06,
            161.585_836_858_040_9,
            -155.698_979_859_886_6,
            66.801_311_887_719_72,
            -13.280_681_552_885_72,
            1.0,
        ];
        let r = q * q;
        return horner(&A, r) * q / horner(&B, r);
    }
    const C: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        0.007_784_695_709_041_462,
        0.322_467_129_070_039_8,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let tail = (-2.0 * (1.0 - upper).ln()).sqrt();
    -horner(&C, tail) / horner(&D, tail)
}

/// The t for which a variable of Student's law is in (-t, t) with probability `confidence`: Hill's
/// expansion about the normal quantile (Cornish and Fisher), accurate to 1 % from 5 degrees on.
pub(crate) fn student_quantile(confidence: f64, freedom: usize) -> f64 {
    let (z, n) = (normal_quantile(confidence), freedom as f64);
    let z2 = z * z;
    let g1 = (z2 + 1.0) / 4.0;
    let g2 = (5.0 * z2 * z2 + 16.0 * z2 + 3.0) / 96.0;
    let g3 = (3.0 * z2.powi(3) + 19.0 * z2 * z2 + 17.0 * z2 - 15.0) / 384.0;
    z * (1.0 + g1 / n + g2 / (n * n) + g3 / n.powi(3))
}

/// Evaluates a polynomial, with the highest coefficient first.
fn horner(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, c| sum * x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (confidence, z) in
            [(0.90, 1.644_854), (0.95, 1.959_964), (0.99, 2.575_829), (0.999, 3.290_527)]
        {
            assert!((normal_quantile(confidence) - z).abs() < 1e-6, "{confidence}");
        }
        for (confidence, freedom, t) in [(0.95, 10, 2.228), (0.95, 30, 2.042), (0.99, 20, 2.845)] {
            let got = student_quantile(confidence, freedom);
            assert!((got - t).abs() < 2e-3, "{confidence} {freedom}: {got}");
        }
    }

    #[test]
    fn estimate_of_a_known_sample() {
        let estimate = Estimate::from_samples([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter());
        assert!((estimate.mean - 5.0).abs() < 1e-12);
        assert!((estimate.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!(estimate.agrees_with(5.5, 0.95) && !estimate.agrees_with(9.0, 0.95));
    }

    #[test]
    fn wilson_interval_at_the_ends() {
        let (low, high) = Proportion { hits: 0, count: 10 }.interval(0.95);
        assert_eq!(low, 0.0);
        assert!((high - 0.2775).abs() < 1e-3, "{high}");
        let (low, high) = Proportion { hits: 10, count: 10 }.interval(0.95);
        assert!((low - 0.7225).abs() < 1e-3 && high == 1.0);
    }
}
