//! The answers that no handler gives.

use http::Method;

use super::{protocol::Head, Error, Response};

pub(super) fn too_long(limit: u64) -> Response {
    Error::new(413, format!("the body is longer than {limit} bytes")).into_response()
}

pub(super) fn overloaded(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Response {
    let error = Error::new(503, "try again later").because(why);
    error.into_response().header("retry-after", "1").close()
}

pub(super) fn not_found(head: &Head<'_>) -> Response {
    if head.method() == "OPTIONS" && head.path() == "*" {
        return Response::empty(204);
    }
    Error::new(404, "not found").into_response()
}

/// The path has other methods. A method that no server knows is answered as such.
pub(super) fn no_such_method(head: &Head<'_>, allow: &str) -> Response {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
        Method::TRACE,
        Method::CONNECT,
    ];
    if head.method() == "OPTIONS" {
        return Response::empty(204).header("allow", allow);
    }
    let is_known = KNOWN.iter().any(|known| known.as_str() == head.method());
    let (status, text) = if is_known {
        (405, "this path has other methods")
    } else {
        (501, "the method is not known")
    };
    Error::new(status, text)
        .into_response()
        .header("allow", allow)
}
