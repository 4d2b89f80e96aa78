//! The built-in BLAS: the six functions that the solver calls, so that skt-hpl runs where no BLAS
//! is installed.
//!
//! A call computes on the calling thread alone. An element of a result is a sum in an order that
//! depends on the depth of the product (k, or the order of the triangle) and the instruction set,
//! not on the other dimensions or on where the element is: however a product is cut into parts, the
//! bits are the same.

mod blocks;
pub(crate) mod fortran;
mod gemm;
mod kernel;
mod pack;
mod room;
mod strided;
mod triangle;
mod vector;

pub(crate) use room::work_space_bytes;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests;
