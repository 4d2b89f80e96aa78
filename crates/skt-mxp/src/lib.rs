//! HPL-MxP: what surrounds the factorization in low precision.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]
