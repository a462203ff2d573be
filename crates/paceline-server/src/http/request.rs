//! A request, as its handler sees it: borrowed from the input buffer.

use std::{
    borrow::Cow,
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    str::FromStr,
};

use http::Method;
use matchit::Params;

use super::{
    form::{self, Pairs},
    protocol::{Head, Version},
    Error, Result,
};
use crate::{link::ConnectionId, moment::Moment, peer::PeerAddress, remote::Remote};

/// A request. It borrows the input buffer: nothing is copied to make it.
///
/// Names of headers are compared without case. Names and values of the query, of forms and of
/// parameters are decoded.
pub struct Request<'r> {
    pub(super) head: &'r Head<'r>,
    pub(super) params: Params<'r, 'r>,
    pub(super) body: Given<'r>,
    pub(super) around: &'r mut dyn Around,
}

/// The body that a handler gets.
pub(super) enum Given<'r> {
    Bytes(&'r [u8]),
    File(&'r mut File, u64),
    Stream(&'r mut dyn Read),
}

/// What a request knows of its connection, and of the thread that handles it.
pub(super) trait Around {
    fn blocking(&mut self, block: &mut dyn FnMut());
    fn wake_follower(&mut self);
    /// The clock of the pool.
    fn clock(&self) -> Moment;
    /// The connection, for rooms.
    fn remote(&self) -> Remote;
    fn address(&self) -> &PeerAddress;
    fn connection(&self) -> ConnectionId;
    /// The number of the request on its connection.
    fn number(&self) -> u64;
    #[cfg(feature = "_tls")]
    fn tls(&self) -> Option<&crate::tls::TlsInfo>;
}

impl<'r> Request<'r> {
    /// The method as it was sent.
    #[must_use]
    pub fn method(&self) -> &'r str {
        self.head.method()
    }

    /// The path as it was sent, not decoded.
    #[must_use]
    pub fn path(&self) -> &'r str {
        self.head.path()
    }

    /// The query as it was sent, without its question mark.
    #[must_use]
    pub fn query(&self) -> Option<&'r str> {
        self.head.query()
    }

    /// The host and the port that the client asks for. `None` is possible in HTTP/1.0 only.
    #[must_use]
    pub fn host(&self) -> Option<&'r str> {
        self.head.authority()
    }

    /// Whether the client speaks HTTP/1.1: otherwise HTTP/1.0.
    #[must_use]
    pub fn is_http11(&self) -> bool {
        self.head.version() == Version::Http11
    }

    /// The parameter of the path with this name, such as `id` in `/user/{id}`.
    ///
    /// # Errors
    /// 400 if it can't be read as a `T`; 500 if the route has no such parameter.
    pub fn param<T: FromStr>(&self, name: &str) -> Result<T> {
        let Some(raw) = self.params.get(name) else {
            let why = format!("the route has no parameter {name}");
            return Err(Error::new(500, "").because(why));
        };
        let text = form::decode(raw);
        let value = text.as_deref().and_then(|text| text.parse().ok());
        value.ok_or_else(|| Error::new(400, format!("the parameter {name} can't be read")))
    }

    /// The first header with this name, if its value is ASCII.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'r str> {
        let first = self.head.values(name).next()?;
        std::str::from_utf8(first)
            .ok()
            .filter(|text| text.is_ascii())
    }

    /// All headers in their order, with the bytes of their values.
    pub fn headers(&self) -> impl Iterator<Item = (&'r str, &'r [u8])> + '_ {
        self.head.fields()
    }

    /// The value of the first cookie with this name, as it was sent.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&'r str> {
        let lines = self.head.values("cookie");
        let mut cookies = lines
            .filter_map(|line| std::str::from_utf8(line).ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='));
        cookies
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// The first value of the query with this name, decoded.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<Cow<'r, str>> {
        let mut pairs = self.query_pairs();
        pairs
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// All names and values of the query, decoded. A pair that is not UTF-8 is left out.
    #[must_use]
    pub fn query_pairs(&self) -> Pairs<'r> {
        Pairs::new(self.query().unwrap_or_default())
    }

    /// The body. Borrowed if it is in memory; a body that is in a file is read.
    ///
    /// # Errors
    /// The body can't be read: of a route with [`Body::Pull`](super::Body::Pull), because the
    /// client is too slow or gone.
    pub fn bytes(&mut self) -> io::Result<Cow<'r, [u8]>> {
        match &mut self.body {
            Given::Bytes(bytes) => Ok(Cow::Borrowed(*bytes)),
            _ => {
                let mut all = Vec::new();
                self.stream().read_to_end(&mut all)?;
                Ok(Cow::Owned(all))
            }
        }
    }

    /// How long the body is, if it is all there.
    #[must_use]
    pub fn body_length(&self) -> Option<u64> {
        match &self.body {
            Given::Bytes(bytes) => Some(bytes.len() as u64),
            Given::File(_, length) => Some(*length),
            Given::Stream(_) => None,
        }
    }

    /// The body as a stream: what was not read yet. In a route with
    /// [`Body::Pull`](super::Body::Pull) it waits for the client.
    pub fn stream(&mut self) -> impl Read + use<'_, 'r> {
        match &mut self.body {
            Given::Bytes(bytes) => Stream::Bytes(bytes),
            Given::File(file, _) => Stream::File(file),
            Given::Stream(stream) => Stream::Other(*stream),
        }
    }

    /// Reads the body as JSON.
    ///
    /// # Errors
    /// 400 if it is no JSON, or not that of a `T`.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        let bytes = self.bytes()?;
        let read = serde_json::from_slice(&bytes);
        read.map_err(|why| Error::new(400, format!("the body is not the JSON expected: {why}")))
    }

    /// The names and values of a form (`application/x-www-form-urlencoded`), decoded.
    ///
    /// # Errors
    /// 415 if the body is of another type, 400 if a pair is not UTF-8 or there are more than 1,000.
    pub fn form(&mut self) -> Result<Vec<(String, String)>> {
        let kind = self.header("content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Error::new(415, "the body is no form"));
        }
        form::parse(&self.bytes()?)
    }

    /// The address of the client.
    #[must_use]
    pub fn address(&self) -> &PeerAddress {
        self.around.address()
    }

    /// What the TLS handshake has agreed on; `None` if the connection has no TLS.
    #[cfg(feature = "_tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&crate::tls::TlsInfo> {
        self.around.tls()
    }

    /// A name for this request in logs: the client's `x-request-id`, if it is short and harmless;
    /// otherwise the numbers of the connection and of the request.
    #[must_use]
    pub fn id(&self) -> Cow<'r, str> {
        let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let given = self.header("x-request-id");
        let given = given.filter(|id| matches!(id.len(), 1..=64) && id.bytes().all(is_harmless));
        match given {
            Some(id) => Cow::Borrowed(id),
            None => {
                let (connection, number) = (self.around.connection(), self.around.number());
                Cow::Owned(format!("{connection}-{number}"))
            }
        }
    }

    /// Runs `block`, which may block: another thread leads meanwhile.
    pub fn blocking<R>(&mut self, block: impl FnOnce() -> R) -> R {
        let (mut block, mut result) = (Some(block), None);
        self.around
            .blocking(&mut || result = block.take().map(|block| block()));
        result.expect("a request runs what it is given")
    }

    /// Says that the rest of this call takes long: another thread leads meanwhile.
    pub fn wake_follower(&mut self) {
        self.around.wake_follower();
    }

    /// The head as a value of the crate `http`, for libraries that take one.
    ///
    /// # Errors
    /// 400 if that crate refuses the request.
    pub fn to_http(&self) -> Result<http::Request<()>> {
        let version = match self.head.version() {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
        };
        let method = Method::from_bytes(self.method().as_bytes());
        let mut request = http::Request::builder()
            .method(method.map_err(|why| Error::new(400, why.to_string()))?)
            .uri(self.head.target())
            .version(version);
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        request
            .body(())
            .map_err(|why| Error::new(400, why.to_string()))
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method())
            .field("target", &self.head.target())
            .field("host", &self.host())
            .finish_non_exhaustive()
    }
}

/// The body of a request, as a stream.
enum Stream<'s, 'r> {
    Bytes(&'s mut &'r [u8]),
    File(&'s mut File),
    Other(&'s mut dyn Read),
}

impl Read for Stream<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bytes(bytes) => bytes.read(buffer),
            Self::File(file) => file.read(buffer),
            Self::Other(stream) => stream.read(buffer),
        }
    }
}

/// A file of a body, from its beginning.
pub(super) fn rewound(file: &mut File, length: u64) -> io::Result<Given<'_>> {
    file.seek(SeekFrom::Start(0))?;
    Ok(Given::File(file, length))
}
