//! The operations of a kernel, written once for all vector instructions.

/// Defines the operations of a kernel and its [`super::Kernel`] `KERNEL`, for processors that have
/// `$features`. The module that invokes this macro defines the vector:
/// ```text
/// Vector, load, store          whole vectors of bytes, wherever they lie
/// add(a, b)                    sum over bits
/// Factor, factor(c), times     product of a byte with each byte of a vector
/// ```
///
/// The plain kernel does the bytes after the last whole vector; its loops over bits and doubles become
/// such vectors when they are compiled for the processor.
macro_rules! operations {
    ($name:literal, $features:literal) => {
        /// The operations with these vectors, for processors that have them.
        const KERNEL: Kernel = Kernel { name: $name, xor, gf_fma, gf_mul, real_fma };

        const WIDTH: usize = size_of::<Vector>();

        /// `out = result(out, src)` on whole vectors. Returns their bytes.
        ///
        /// # Safety
        /// The conditions of [`scalar::xor`], on a processor with these vectors.
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn update(
            src: *const u8,
            out: *mut u8,
            bytes: usize,
            result: impl Fn(Vector, Vector) -> Vector,
        ) -> usize {
            let whole = bytes - bytes % WIDTH;
            for i in (0..whole).step_by(WIDTH) {
                // SAFETY: i + WIDTH <= bytes.
                unsafe { store(out.add(i), result(load(out.add(i)), load(src.add(i)))) };
            }
            whole
        }

        /// # Safety
        /// The conditions of [`update`].
        #[target_feature(enable = $features)]
        unsafe fn xor(src: *const u8, out: *mut u8, bytes: usize) {
            // SAFETY: the caller's conditions.
            unsafe { scalar::xor(src, out, bytes) }
        }

        /// # Safety
        /// The conditions of [`update`].
        #[target_feature(enable = $features)]
        unsafe fn gf_fma(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
            let factor = factor(c);
            // SAFETY: the caller's conditions; whole <= bytes.
            unsafe {
                let whole = update(src, out, bytes, |sum, x| add(sum, times(&factor, x)));
                scalar::gf_fma(c, src.add(whole), out.add(whole), bytes - whole);
            }
        }

        /// # Safety
        /// The conditions of [`update`].
        #[target_feature(enable = $features)]
        unsafe fn gf_mul(c: u8, src: *const u8, out: *mut u8, bytes: usize) {
            let factor = factor(c);
            // SAFETY: the caller's conditions; whole <= bytes. The old contents of `out` are not
            // used.
            unsafe {
                let whole = update(src, out, bytes, |_, x| times(&factor, x));
                scalar::gf_mul(c, src.add(whole), out.add(whole), bytes - whole)
            }
        }

        /// # Safety
        /// The conditions of [`scalar::real_fma`], on a processor with these vectors.
        #[target_feature(enable = $features)]
        unsafe fn real_fma(c: f64, src: *const u8, out: *mut u8, bytes: usize) {
            // SAFETY: the caller's conditions.
            unsafe { scalar::real_fma(c, src, out, bytes) }
        }
    };
}

pub(super) use operations;
