//! The examples, run as programs of their own.

mod support;

mod examples {
    mod bound_client;
    mod chat;
    mod echo;
    mod front_page;
    mod kv;
    mod relay;
    mod scale;
    mod source_examples;
    mod stopped_thread;
}
