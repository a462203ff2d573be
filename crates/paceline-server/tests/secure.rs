//! TLS: handshakes that hold no thread, records that carry several items or a part of one, ends,
//! certificates. On streams in memory and virtual time, with rustls as the client.
#![cfg(feature = "_tls")]

mod support;

mod secure {
    mod certificates;
    mod handshakes;
    mod records;
    mod start_tls;
}
