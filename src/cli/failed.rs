use std::error::Error;

#[derive(Debug)]
pub struct Failed(pub(super) String);

impl Failed {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl<E: Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
