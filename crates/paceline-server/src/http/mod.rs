//! An HTTP/1.1 server.

#[allow(dead_code, unused_imports, reason = "its session follows")]
mod protocol;
