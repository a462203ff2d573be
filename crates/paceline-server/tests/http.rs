//! The HTTP server, over connections in memory and on a clock that a test moves.

#[path = "http/events.rs"]
mod events;
#[path = "http/framing.rs"]
mod framing;
#[path = "http/life.rs"]
mod life;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/routes.rs"]
mod routes;
#[path = "http/routing.rs"]
mod routing;
#[path = "http/socket_cases.rs"]
mod socket_cases;
#[path = "http/sockets.rs"]
mod sockets;
#[path = "http/support.rs"]
mod support;
#[path = "http/table.rs"]
mod table;
#[cfg(feature = "_tls")]
#[path = "http/tls.rs"]
mod tls;
#[allow(dead_code, reason = "a viewer of the page has more to do elsewhere")]
#[path = "page/viewer.rs"]
mod viewer;
