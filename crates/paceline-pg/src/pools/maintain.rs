//! What happens a few times a second.
