//! An HTTP/1.1 server for handlers that may block: strict about requests, hard to hold up.
//!
//! ```no_run
//! use paceline_server::{http::Router, Server};
//!
//! let app = Router::new(())
//!     .get("/", |_, _| "hello\n")
//!     .get("/user/{id}", |_, req| req.param::<u64>("id").map(|id| format!("user {id}\n")));
//! Server::http("127.0.0.1:8080", app).run()?;
//! # std::io::Result::Ok(())
//! ```
//!
//! ```text
//!   bytes --> protocol    heads, bodies, refusals (no I/O)
//!               |
//!             session     one connection: which body goes where, which answer is on its way
//!               |
//!             router      the handler of a path and a method, and its settings
//! ```
//!
//! Limits, time-outs, TLS, drain, the pool and both engines are those of every server of this
//! crate. The [guide] has a program for each task.

#[doc = include_str!("guide.md")]
pub mod guide {}

mod app;
mod calls;
mod content;
mod counted;
mod error;
mod events;
mod files;
mod form;
mod gather;
mod memory;
mod moving;
mod outgoing;
mod protocol;
mod pull;
mod refusals;
mod request;
mod response;
mod router;
mod server;
mod session;
mod socket;
mod upgrade;

#[doc(hidden)]
pub use self::protocol::{Trial, TrialRequest};
pub use self::{
    content::Content,
    error::{Error, Result},
    events::{Events, IntoEvents},
    form::Pairs,
    request::Request,
    response::{Answer, IntoAnswer, Push, Response},
    router::{Body, Router},
    server::HttpServer,
    upgrade::IntoSocket,
};
