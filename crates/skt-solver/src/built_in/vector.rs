//! Products of a matrix and a vector, at the speed of memory.

use skt_host::vectors::Vectors;

use super::kernel::Number;
use super::strided::Strided;

/// `y := alpha A x + beta y`. Neighbours in a row or in a column of A are neighbours in memory. A
/// is not read if alpha is 0, and y not if beta is 0.
/// Safety: the processor has these vectors, and A as many rows as `y` and columns as `x`.
pub(crate) unsafe fn gemv<T: Number>(
    vectors: Vectors,
    alpha: T,
    a: Strided<T>,
    x: &[T],
    beta: T,
    y: &mut [T],
) {
    let kernel = T::kernel(vectors);
    if beta == T::ZERO {
        y.fill(T::ZERO);
    } else if beta != T::ONE {
        y.iter_mut().for_each(|y| *y = beta * *y);
    }
    if alpha == T::ZERO || x.is_empty() || y.is_empty() {
        return;
    }
    // SAFETY: rows or columns of A, which are contiguous.
    unsafe {
        if a.down == 1 {
            for (j, &x) in x.iter().enumerate() {
                let column = std::slice::from_raw_parts(a.at(0, j), y.len());
                (kernel.axpy)(alpha * x, column, y);
            }
        } else {
            for (i, y) in y.iter_mut().enumerate() {
                let row = std::slice::from_raw_parts(a.at(i, 0), x.len());
                *y = *y + alpha * (kernel.dot)(row, x);
            }
        }
    }
}
