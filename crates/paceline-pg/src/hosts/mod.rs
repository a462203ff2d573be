//! Roles and health of the hosts behind a database.
