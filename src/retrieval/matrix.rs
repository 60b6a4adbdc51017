//! Texts as rows of weighted features, and computations with them.

/// A sparse matrix with a row for each text, and an entry for each feature of the text.
#[derive(Debug, Default)]
pub struct Matrix {
    columns: Vec<Column>,
    entries: Vec<(u32, f32)>,
    /// The end of each row in `entries`.
    ends: Vec<usize>,
}

#[derive(Debug, Clone, Default)]
struct Column {
    /// The number of rows with the feature.
    rows: u16,
    /// The end of the entry of the last of these rows in `entries`.
    end: usize,
}

impl Matrix {
    /// Counts the features of each text. The arguments have the features of each text, with repetitions.
    #[must_use]
    pub fn of(texts: impl Iterator<Item = impl IntoIterator<Item = u32>>) -> Self {
        let mut matrix = Self::default();
        texts.for_each(|features| matrix.push(features.into_iter()));
        matrix
    }

    fn push(&mut self, features: impl Iterator<Item = u32>) {
        let start = self.entries.len();
        for feature in features {
            if feature as usize >= self.columns.len() {
                self.columns.resize(feature as usize + 1, Column::default());
            }
            let column = &mut self.columns[feature as usize];
            if column.end > start {
                self.entries[column.end - 1].1 += 1.0;
            } else {
                self.entries.push((feature, 1.0));
                column.rows += 1;
                column.end = self.entries.len();
            }
        }
        self.ends.push(self.entries.len());
    }

    /// Turns counts into weights: a function of the count, times the square root of the feature's inverse document
    /// frequency in these texts.
    #[must_use]
    pub fn weighed(mut self, of_count: impl Fn(f32) -> f32) -> Self {
        let all = self.ends.len() as f32;
        let rarity = |column: &Column| {
            let with = f32::from(column.rows);
            (1.0 + (all - with + 0.5) / (with + 0.5)).ln().sqrt()
        };
        let rarities: Vec<_> = self.columns.iter().map(rarity).collect();
        for (feature, weight) in &mut self.entries {
            *weight = of_count(*weight) * rarities[*feature as usize];
        }
        self
    }

    /// Scales each row, as a vector, to a length.
    #[must_use]
    pub fn of_length(mut self, length: f32) -> Self {
        let mut start = 0;
        for &end in &self.ends {
            let row = &mut self.entries[start..end];
            let norm = row.iter().map(|(_, weight)| weight * weight).sum::<f32>().sqrt();
            for (_, weight) in row {
                *weight *= length / norm;
            }
            start = end;
        }
        self
    }

    /// Returns the weight of the features that each row has in common with the last row, as a share of the weight of
    /// both rows (the Dice coefficient), from 0 to 1.
    #[must_use]
    pub fn likenesses_to_last(&self) -> Vec<f32> {
        let weight = |row: &[(u32, f32)]| row.iter().map(|(_, weight)| weight).sum::<f32>();
        let mut rows: Vec<_> = self.rows().collect();
        let last = rows.pop().unwrap_or_default();
        let (of_last, in_last) = (weight(last), self.spread(last));
        let likeness = |row: &[(u32, f32)]| {
            let common: f32 = row.iter().map(|&(feature, _)| in_last[feature as usize]).sum();
            // Sums in another order may differ slightly.
            (2.0 * common / (weight(row) + of_last).max(f32::MIN_POSITIVE)).min(1.0)
        };
        rows.into_iter().map(likeness).collect()
    }

    /// Returns a matrix of some of the rows.
    #[must_use]
    pub fn rows_at(self, places: &[usize]) -> Self {
        let (mut entries, mut ends) = (Vec::new(), Vec::new());
        for &place in places {
            entries.extend_from_slice(self.row(place));
            ends.push(entries.len());
        }
        Self { entries, ends, ..self }
    }

    /// Returns the entries of a row: the number and weight of each of its features.
    #[must_use]
    pub fn row(&self, row: usize) -> &[(u32, f32)] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.entries[start..self.ends[row]]
    }

    fn rows(&self) -> impl Iterator<Item = &[(u32, f32)]> {
        (0..self.ends.len()).map(|row| self.row(row))
    }

    /// Removes the last row and returns it.
    pub fn pop(&mut self) -> Vec<(u32, f32)> {
        self.ends.pop();
        self.entries.split_off(self.ends.last().copied().unwrap_or_default())
    }

    /// Returns a row with all of its zeros.
    fn spread(&self, row: &[(u32, f32)]) -> Vec<f32> {
        let mut vector = vec![0.0; self.columns.len()];
        for &(feature, weight) in row {
            vector[feature as usize] = weight;
        }
        vector
    }

    /// Returns the product of each row with a vector over all features.
    #[must_use]
    pub fn times(&self, vector: &[f32]) -> Vec<f32> {
        let product =
            |row: &[(u32, f32)]| row.iter().map(|&(feature, weight)| weight * vector[feature as usize]).sum();
        self.rows().map(product).collect()
    }

    /// Returns the product of each row with one row, of this matrix or removed from it.
    #[must_use]
    pub fn times_row(&self, row: &[(u32, f32)]) -> Vec<f32> {
        self.times(&self.spread(row))
    }

    /// Returns the sum of the rows, each multiplied by its member of a vector.
    #[must_use]
    pub fn transposed_times(&self, vector: &[f32]) -> Vec<f32> {
        let mut product = vec![0.0; self.columns.len()];
        for (row, factor) in self.rows().zip(vector) {
            for &(feature, weight) in row {
                product[feature as usize] += weight * factor;
            }
        }
        product
    }
}

/// Solves (F Fᵀ + ridge) x = b approximately, by some iterations of the conjugate gradient method. The columns of F
/// are those of all blocks.
#[must_use]
pub fn solve(features: &[Matrix], ridge: f32, b: &[f32], iterations: usize) -> Vec<f32> {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>();
    let mut x = vec![0.0; b.len()];
    let (mut residual, mut direction) = (b.to_vec(), b.to_vec());
    let mut error = dot(b, b);
    let enough = error * 1e-6;
    for _ in 0..iterations {
        if error <= enough {
            break;
        }
        let mut step = sum(features.iter().map(|block| block.times(&block.transposed_times(&direction))));
        step.iter_mut().zip(&direction).for_each(|(step, direction)| *step += ridge * direction);
        let length = error / dot(&direction, &step);
        x.iter_mut().zip(&direction).for_each(|(x, direction)| *x += length * direction);
        residual.iter_mut().zip(&step).for_each(|(residual, step)| *residual -= length * step);
        let before = std::mem::replace(&mut error, dot(&residual, &residual));
        let turn = error / before;
        direction
            .iter_mut()
            .zip(&residual)
            .for_each(|(direction, residual)| *direction = residual + turn * *direction);
    }
    x
}

/// Adds vectors of the same length.
pub fn sum(vectors: impl Iterator<Item = Vec<f32>>) -> Vec<f32> {
    let add = |mut sum: Vec<f32>, vector: Vec<f32>| {
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
        sum
    };
    vectors.reduce(add).unwrap_or_default()
}
