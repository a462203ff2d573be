//! The examples, run as programs of their own, and driven by clients that others have written: `nc`,
//! `socat`, `openssl`, `sslscan`, `swaks`, and Python's smtplib, ssl and websockets. A test whose
//! tool is missing says so, and passes.
#![cfg(feature = "_tls")]

mod examples {
    mod certificates;
    mod chat_rooms;
    mod dispatcher;
    mod hello;
    mod line_echo;
    mod memory;
    mod program;
    mod smtp;
    mod smtp_dialog;
    mod threads;
    mod tls_clients;
    mod tls_tunnel;
    mod unp;
    mod web_chat;
}
