//! Log lines in the form that users of PgBouncer know.
