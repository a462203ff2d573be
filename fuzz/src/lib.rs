//! What the parsers promise for any input.
//!
//! A [`Target`] takes any bytes, and panics if a promise is broken. `cargo xtask fuzz` searches for
//! such bytes; `cargo test` replays those in `corpus/`.
#![forbid(unsafe_code)]

mod codecs;
mod pg;
mod pg_config;
mod pg_front;
mod relay;
mod script;

/// A promise that must hold for any input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and the name of its folder in `corpus/`.
    pub name: &'static str,
    /// Panics if the promise is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 9] = [
    Target {
        name: "codecs",
        run: codecs::any_split_gives_the_same_items,
    },
    Target {
        name: "frames",
        run: codecs::a_framed_payload_is_read_back,
    },
    Target {
        name: "pg-messages",
        run: pg::a_stream_of_messages_may_be_cut_anywhere,
    },
    Target {
        name: "pg-login",
        run: pg::no_login_breaks_the_reader,
    },
    Target {
        name: "pg-client-login",
        run: pg_front::no_client_logs_in_by_chance,
    },
    Target {
        name: "pg-server-login",
        run: pg_front::no_server_breaks_a_login,
    },
    Target {
        name: "pg-config",
        run: pg_config::any_bytes_are_files_or_an_error_with_its_line,
    },
    Target {
        name: "pg-console",
        run: pg_config::any_text_is_a_command_or_refused,
    },
    Target {
        name: "pg-relay",
        run: relay::no_peer_breaks_the_relay,
    },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
