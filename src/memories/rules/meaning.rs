//! What embeddings add to the evidence of words.
//!
//! How large a cosine is depends on the model, so the cosines of the memories that are compared with a query are
//! standardized. The weight is set by hand, and the project's verdicts correct what it does to the confidence.

/// The weight of a standard deviation, in log odds.
const WEIGHT: f64 = 1.0;
/// The largest number of standard deviations that count.
const MOST: f64 = 2.0;
/// The smallest standard deviation: cosines that are closer together do not differ.
const SMALLEST: f64 = 0.03;
/// The number of memories with embeddings below which they are not compared.
const FEWEST: usize = 3;

/// Returns what each memory gains by its cosine, in log odds.
#[must_use]
pub fn gains(cosines: &[Option<f64>]) -> Vec<f64> {
    let known: Vec<_> = cosines.iter().flatten().copied().collect();
    if known.len() < FEWEST {
        return vec![0.0; cosines.len()];
    }
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    let variance = known.iter().map(|cosine| (cosine - mean).powi(2)).sum::<f64>() / known.len() as f64;
    let deviation = variance.sqrt().max(SMALLEST);
    let gain = |cosine: f64| WEIGHT * ((cosine - mean) / deviation).clamp(-MOST, MOST);
    cosines.iter().map(|cosine| cosine.map_or(0.0, gain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_closer_in_meaning_than_the_rest_gains() {
        let gains = gains(&[Some(0.9), Some(0.5), Some(0.5), None]);
        assert!(gains[0] > 1.0 && gains[0] <= 2.0 && gains[1] < 0.0, "{gains:?}");
        assert!(gains[3].abs() < f64::EPSILON);
    }

    #[test]
    fn few_embeddings_and_equal_ones_change_nothing() {
        for cosines in [vec![], vec![Some(0.9), Some(0.1)], vec![Some(0.5); 4], vec![None; 5]] {
            assert!(gains(&cosines).iter().all(|gain| gain.abs() < 1e-9), "{cosines:?}");
        }
    }
}
