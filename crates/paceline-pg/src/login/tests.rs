//! Tests of both logins.
