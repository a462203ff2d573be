//! Rooms: one message to many connections, with exact receipts.

mod support;

mod rooms {
    mod chance;
    mod members;
    mod messages;
}
