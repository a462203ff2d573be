//! The life of sessions, over both engines: calls, replies, limits, ends, listeners.

mod support;

mod life {
    mod builder;
    mod calls;
    mod chance;
    mod chance_session;
    mod connections;
    mod drains;
    mod endings;
    mod engines;
    mod levels;
    mod limits;
    mod listeners;
    mod observed;
    mod output;
    mod remote;
    mod slow;
}
