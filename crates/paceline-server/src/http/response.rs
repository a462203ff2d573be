//! The answer to a request.

use http::{header, HeaderName, HeaderValue, StatusCode};

use super::{upgrade::Upgrade, Content, Error};

/// The answer to a request. It owns its bytes.
///
/// ```
/// use paceline_server::http::Response;
///
/// let answer = Response::text("not today\n").status(503).header("retry-after", "3600");
/// assert_eq!(answer.code(), 503);
/// ```
///
/// A name or a value that can't be in a header, such as one with a line end, makes the answer a
/// failure: the client gets 500, and nothing of the answer. So do the headers that frame the answer
/// (`content-length`, `transfer-encoding`, `connection`), which the server sets itself.
#[derive(Debug)]
#[must_use = "a handler returns it"]
pub struct Response {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) content: Content,
    /// The connection closes behind it.
    pub(super) closes: bool,
    /// What it tells of.
    error: Option<Box<Error>>,
    /// Why it can't be sent.
    fault: Option<String>,
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
#[cfg(feature = "json")]
const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl Response {
    /// An empty answer with this status.
    pub fn empty(status: u16) -> Self {
        Self::new(Content::default()).status(status)
    }

    /// Bytes, a file, or parts, with status 200 and no type.
    pub fn new(content: impl Into<Content>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: None,
            fields: Vec::new(),
            content: content.into(),
            closes: false,
            error: None,
            fault: None,
        }
    }

    /// Plain text.
    pub fn text(text: impl Into<Content>) -> Self {
        let mut response = Self::new(text);
        response.content_type = Some(TEXT);
        response
    }

    /// HTML.
    pub fn html(text: impl Into<Content>) -> Self {
        let mut response = Self::new(text);
        response.content_type = Some(HTML);
        response
    }

    /// `value` as JSON.
    ///
    /// # Errors
    /// `value` can't be written as JSON.
    #[cfg(feature = "json")]
    pub fn json(value: &(impl serde::Serialize + ?Sized)) -> super::Result<Self> {
        let mut response = Self::new(serde_json::to_vec(value)?);
        response.content_type = Some(JSON);
        Ok(response)
    }

    /// Sends the client to another address: 303, which is fetched with GET.
    pub fn see_other(to: &str) -> Self {
        Self::empty(303).header(header::LOCATION, to)
    }

    /// Another status, from 200 to 599.
    pub fn status(mut self, status: u16) -> Self {
        match StatusCode::from_u16(status) {
            Ok(known) if (200..600).contains(&status) => self.status = known,
            _ => self.fail(format!("{status} is no status of an answer")),
        }
        self
    }

    /// The type of the content, such as `image/png`.
    pub fn content_type(self, kind: impl TryInto<HeaderValue>) -> Self {
        self.header(header::CONTENT_TYPE, kind)
    }

    /// Adds a header; a `content-type` replaces the one that is there.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName>,
        V: TryInto<HeaderValue>,
    {
        let Ok(name) = name.try_into() else {
            self.fail("the name of a header is no token".to_owned());
            return self;
        };
        let Ok(value) = value.try_into() else {
            self.fail(format!("the header {name} can't have this value"));
            return self;
        };
        if name == header::CONTENT_TYPE {
            self.content_type = Some(value);
        } else if is_framing(&name) {
            self.fail(format!("the server sets the header {name} itself"));
        } else {
            self.fields.push((name, value));
        }
        self
    }

    /// Sets a header, in place of all with this name: for [hooks](super::Router::after), which see an
    /// answer that is made already. As with [`header`](Self::header), what can't be makes the answer
    /// a failure.
    pub fn set_header<N, V>(&mut self, name: N, value: V)
    where
        N: TryInto<HeaderName>,
        V: TryInto<HeaderValue>,
    {
        let Ok(name) = name.try_into() else {
            self.fail("the name of a header is no token".to_owned());
            return;
        };
        self.fields.retain(|(known, _)| *known != name);
        let emptied = std::mem::replace(self, Self::empty(200));
        *self = emptied.header(name, value);
    }

    /// Closes the connection behind this answer.
    pub fn close(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Its status.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.status.as_u16()
    }

    /// The first header with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&HeaderValue> {
        if name.eq_ignore_ascii_case("content-type") {
            return self.content_type.as_ref();
        }
        let mut fields = self.fields.iter();
        let found = fields.find(|(field, _)| field.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// The failure that it tells the client of.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.error.as_deref()
    }

    pub(super) fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    pub(super) fn set_error(&mut self, error: Error) {
        self.error = Some(Box::new(error));
    }

    /// The first fault counts.
    fn fail(&mut self, why: String) {
        self.fault.get_or_insert(why);
    }

    /// Becomes what is sent in its place, if it can't be sent.
    pub(super) fn check(&mut self) {
        if let Some(why) = self.fault.take() {
            *self = Error::new(500, "").because(why).into_response();
        }
    }
}

impl From<Error> for Response {
    fn from(error: Error) -> Self {
        error.into_response()
    }
}

/// Whether a header says where the answer ends, or what becomes of the connection.
fn is_framing(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH
        || *name == header::TRANSFER_ENCODING
        || *name == header::CONNECTION
        || *name == header::DATE
        || name.as_str() == "keep-alive"
}

/// What becomes a request's answer.
pub trait IntoAnswer {
    /// The answer.
    fn into_answer(self) -> Answer;
}

/// The answer of a handler: at once, or when the body is there.
#[derive(Debug)]
pub struct Answer(pub(super) Decided);

/// What a handler has decided.
pub(super) enum Decided {
    Now(Response),
    /// This takes the body, and answers then.
    Push(Box<dyn Push>),
    /// The connection becomes something else.
    Upgrade(Box<Upgrade>),
}

impl Decided {
    /// The status of the answer; 0 if it is not known yet.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Now(response) => response.code(),
            Self::Push(_) => 0,
            Self::Upgrade(upgrade) => upgrade.response.code(),
        }
    }
}

impl std::fmt::Debug for Decided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(response) => response.fmt(f),
            Self::Push(_) => f.write_str("Push"),
            Self::Upgrade(_) => f.write_str("Upgrade"),
        }
    }
}

/// Takes the body of a request as it comes, and answers at its end: what a handler of a route with
/// [`Body::Push`](super::Body::Push) returns.
///
/// ```
/// use paceline_server::http::{Body, Push, Request, Response, Result, Router};
///
/// struct Count(u64);
///
/// impl Push for Count {
///     fn piece(&mut self, bytes: &[u8]) -> Result<()> {
///         self.0 += bytes.len() as u64;
///         Ok(())
///     }
///     fn end(self: Box<Self>) -> Result<Response> {
///         Ok(Response::text(format!("{} bytes\n", self.0)))
///     }
/// }
///
/// let app = Router::new(()).put("/count", |_, _| Count(0)).body(Body::Push);
/// ```
pub trait Push: Send + 'static {
    /// A part of the body has come.
    ///
    /// # Errors
    /// The client gets the error as its answer, and the rest of the body is dropped.
    fn piece(&mut self, bytes: &[u8]) -> super::Result<()>;

    /// The body has ended.
    ///
    /// # Errors
    /// The client gets the error as its answer.
    fn end(self: Box<Self>) -> super::Result<Response>;
}

impl<P: Push> IntoAnswer for P {
    fn into_answer(self) -> Answer {
        Answer(Decided::Push(Box::new(self)))
    }
}

impl IntoAnswer for Answer {
    fn into_answer(self) -> Answer {
        self
    }
}

impl IntoAnswer for Response {
    fn into_answer(self) -> Answer {
        Answer(Decided::Now(self))
    }
}

impl IntoAnswer for &'static str {
    fn into_answer(self) -> Answer {
        Response::text(self).into_answer()
    }
}

impl IntoAnswer for String {
    fn into_answer(self) -> Answer {
        Response::text(self).into_answer()
    }
}

impl IntoAnswer for () {
    fn into_answer(self) -> Answer {
        Response::empty(204).into_answer()
    }
}

impl<T: IntoAnswer, E: Into<Error>> IntoAnswer for std::result::Result<T, E> {
    fn into_answer(self) -> Answer {
        match self {
            Ok(answer) => answer.into_answer(),
            Err(error) => error.into().into_response().into_answer(),
        }
    }
}
