//! PostgreSQL's catalogue, as temporary views over SQLite's schema.

use super::link::Link;
use crate::failure::Failure;

/// Makes the views and functions on a connection.
pub(super) fn define(link: &Link) -> Result<(), Failure> {
    link.batch(include_str!("catalogue.sql"))
}
