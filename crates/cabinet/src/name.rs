//! Database names with tuning.

/// A name that does not say which database is meant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Placeholder.
    #[error("bad name {0}")]
    Bad(String),
}
