//! The triad of STREAM, by which the rate of a memory is measured.

/// `a = scale * c + b`, element by element, up to the end of the shortest.
pub fn pass(scale: f64, c: &[f64], b: &[f64], a: &mut [f64]) {
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = scale * c + b;
    }
}

#[cfg(test)]
mod tests {
    use super::pass;

    #[test]
    fn pass_computes_the_triad() {
        let mut a = [0.0; 3];
        pass(3.0, &[1.0, 2.0, 4.0], &[0.5, -1.0, 0.0], &mut a);
        assert_eq!(a, [3.5, 5.0, 12.0]);
    }
}
