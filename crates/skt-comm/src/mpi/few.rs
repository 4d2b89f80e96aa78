//! A list whose first entries need no allocation: most messages have one request.

use std::ops::{Deref, DerefMut};

/// As many as an exchange with one rank has.
const INLINE: usize = 2;

pub(super) struct Few<T> {
    inline: [T; INLINE],
    len: usize,
    /// All entries, once there are more than `INLINE`.
    many: Vec<T>,
}

impl<T: Copy> Few<T> {
    /// An empty list; `value` is in the places without an entry.
    pub(super) fn new(value: T) -> Self {
        Self { inline: [value; INLINE], len: 0, many: Vec::new() }
    }

    pub(super) fn filled(value: T, len: usize) -> Self {
        let many = if len > INLINE { vec![value; len] } else { Vec::new() };
        Self { inline: [value; INLINE], len, many }
    }

    pub(super) fn push(&mut self, value: T) -> &mut T {
        if self.len < INLINE {
            self.inline[self.len] = value;
        } else {
            if self.len == INLINE {
                self.many.extend(self.inline);
            }
            self.many.push(value);
        }
        self.len += 1;
        self.last_mut().expect("just pushed")
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.len <= INLINE { &self.inline[..self.len] } else { &self.many }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.len <= INLINE { &mut self.inline[..self.len] } else { &mut self.many }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_however_many() {
        let mut few = Few::new(usize::MAX);
        for len in 0..3 * INLINE {
            assert_eq!(*few, *(0..len).collect::<Vec<_>>());
            assert_eq!(*Few::filled(7, len), *vec![7; len]);
            assert_eq!(*few.push(len), len);
        }
        few[2 * INLINE] = 1;
        assert_eq!(few[2 * INLINE], 1);
    }
}
