//! Text in a page of HTML.

/// The text with entities in place of the characters that HTML reserves.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
