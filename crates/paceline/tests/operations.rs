//! What a pool and its handles are asked to do: register, listen, connect, close, move, observe.

mod support;

mod operations {
    mod after_release;
    mod age_limits;
    mod bad_input;
    mod boxed_handlers;
    mod connect;
    mod deadlines;
    mod farewells;
    mod group_calls;
    mod group_moves;
    mod groups;
    mod handle_requests;
    mod hooks;
    mod how_long;
    mod listener;
    mod listener_settings;
    mod observers_come_and_go;
    mod open_connections;
    mod open_metrics;
    mod posts;
    mod scratch;
    mod shutdown_report;
    mod streams;
    mod stuck_handlers;
    mod thread_settings;
    mod thread_state;
    mod time_outs;
    mod timers;
    mod times;
    #[cfg(feature = "tracing")]
    mod traces;
    mod unread;
    mod values_compare;
    mod who_does_what;
}
