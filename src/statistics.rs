//! The statistics behind the analytics: shares, their confidence intervals, and the comparison of two shares.

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Returns the share of `k` in `n`, or none if `n` is 0.
#[must_use]
pub fn rate(k: i64, n: i64) -> Option<f64> {
    (n > 0).then(|| k as f64 / n as f64)
}

/// Returns the 95 % Wilson score interval of the share of `k` in `n`, or none if `n` is 0. Unlike the normal
/// approximation it stays within 0 and 1 and holds for small counts.
#[must_use]
pub fn wilson(k: i64, n: i64) -> Option<[f64; 2]> {
    let p = rate(k, n)?;
    let n = n as f64;
    let center = p + Z * Z / (2.0 * n);
    let margin = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Some([((center - margin) / scale).max(0.0), ((center + margin) / scale).min(1.0)])
}

/// The difference of two shares.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// The first share minus the second.
    pub difference: f64,
    /// The 95 % confidence interval of the difference (normal approximation, unpooled variance).
    pub interval: [f64; 2],
    /// The probability of a difference at least as large if the shares were equal (two-proportion z test,
    /// pooled variance, two-sided).
    pub p_value: f64,
}

/// Compares two shares, each given as a count and a total. Returns none if a total is 0.
#[must_use]
pub fn compare((k1, n1): (i64, i64), (k2, n2): (i64, i64)) -> Option<Difference> {
    let (p1, p2) = (rate(k1, n1)?, rate(k2, n2)?);
    let pooled = rate(k1 + k2, n1 + n2)?;
    let (n1, n2) = (n1 as f64, n2 as f64);
    let difference = p1 - p2;
    let margin = Z * (p1 * (1.0 - p1) / n1 + p2 * (1.0 - p2) / n2).sqrt();
    let error = (pooled * (1.0 - pooled) * (1.0 / n1 + 1.0 / n2)).sqrt();
    let p_value = if error > 0.0 { 2.0 * upper_tail((difference / error).abs()) } else { 1.0 };
    Some(Difference { difference, interval: [difference - margin, difference + margin], p_value })
}

/// Returns the probability that a standard normal variable exceeds `z`, for `z` of at least 0. The
/// approximation is 7.1.26 of Abramowitz and Stegun, whose error is below 1.5e-7.
fn upper_tail(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let polynomial = t
        * (0.254_829_592
            + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    0.5 * polynomial * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wilson_interval_of_8_in_10_is_that_of_the_textbooks() {
        let [low, high] = wilson(8, 10).expect("ten trials");
        assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4, "{low} {high}");
        assert_eq!(wilson(0, 0), None);
        assert!(wilson(0, 5).expect("five trials")[0].abs() < 1e-12);
    }

    #[test]
    fn the_z_test_finds_a_known_p_value() {
        // 45 of 100 against 30 of 100: z = 2.1909, p = 0.02846.
        let Difference { difference, p_value, interval } = compare((45, 100), (30, 100)).expect("trials");
        assert!((difference - 0.15).abs() < 1e-12);
        assert!((p_value - 0.028_46).abs() < 1e-4, "{p_value}");
        assert!((interval[0] - 0.0176).abs() < 1e-3 && (interval[1] - 0.2824).abs() < 1e-3, "{interval:?}");
        let same = compare((10, 10), (5, 5)).expect("trials").p_value;
        assert!((same - 1.0).abs() < 1e-9, "{same}");
    }
}
