//! The head of a request: the request line and the fields, borrowed from the input.

use std::{mem::MaybeUninit, ops::Range, str};

use super::{authority::is_authority, framing::is_token, target::Target, HeadLimits, Refusal};

/// The most fields that the parser takes, whatever the limits say.
const MOST_FIELDS: usize = 256;
/// So many fields need no memory of their own.
const FEW_FIELDS: usize = 24;

const REQUEST_LINE: Refusal = Refusal::bad("the request line is not: method, target, version");
const METHOD: Refusal = Refusal::bad("the method is no token");
const ODD_VERSION: Refusal = Refusal::bad("the version of the protocol is malformed");
const OTHER_VERSION: Refusal = Refusal::new(505, "this server speaks HTTP/1.0 and HTTP/1.1");
const LONG_TARGET: Refusal = Refusal::new(414, "the request-target is too long");
const ODD_FIELD: Refusal = Refusal::bad("a field line is malformed");
const MANY_FIELDS: Refusal = Refusal::new(431, "the head has too many fields");
const NO_HOST: Refusal = Refusal::bad("no Host");
const TWO_HOSTS: Refusal = Refusal::bad("more than one Host");
const ODD_HOST: Refusal = Refusal::bad("the Host is doubtful");
const EXPECTATION: Refusal = Refusal::new(417, "an expectation that is not known");

/// The version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
}

/// The head of a request.
#[derive(Clone, Debug)]
pub(crate) struct Head<'b> {
    bytes: &'b [u8],
    index: Index,
}

/// A head that outlives the input.
#[derive(Clone, Debug)]
pub(crate) struct KeptHead {
    bytes: Box<[u8]>,
    index: Index,
}

/// Where the parts of a head are.
#[derive(Clone, Debug)]
struct Index {
    method: Span,
    target: Span,
    path: Span,
    query: Option<Span>,
    /// Of the target, or of the field Host.
    authority: Option<Span>,
    is_root: bool,
    version: Version,
    keeps_alive: bool,
    expects_continue: bool,
    fields: Fields,
}

/// A part of a head, whose length fits into 16 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u16,
    length: u16,
}

impl Span {
    fn new(range: Range<usize>) -> Self {
        let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        Self {
            start: short(range.start),
            length: short(range.len()),
        }
    }

    /// Where `part`, which borrows from `whole`, is in it.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
        Self::new(start..start + part.len())
    }

    fn within(self, bytes: &[u8]) -> &[u8] {
        let start = usize::from(self.start);
        bytes
            .get(start..start + usize::from(self.length))
            .unwrap_or_default()
    }
}

/// The fields of a head: a few of them in place, or more of them in memory of their own.
#[derive(Clone, Debug)]
struct Fields {
    few: [(Span, Span); FEW_FIELDS],
    count: usize,
    many: Vec<(Span, Span)>,
}

impl Fields {
    fn collect(headers: &[httparse::Header<'_>], whole: &[u8]) -> Self {
        let spans = headers.iter().map(|header| {
            let name = Span::of(header.name.as_bytes(), whole);
            (name, Span::of(header.value, whole))
        });
        let mut few = [(Span::default(), Span::default()); FEW_FIELDS];
        if headers.len() > FEW_FIELDS {
            let many = spans.collect();
            return Self {
                few,
                count: 0,
                many,
            };
        }
        for (place, span) in few.iter_mut().zip(spans) {
            *place = span;
        }
        Self {
            few,
            count: headers.len(),
            many: Vec::new(),
        }
    }

    fn all(&self) -> &[(Span, Span)] {
        if self.many.is_empty() {
            &self.few[..self.count]
        } else {
            &self.many
        }
    }
}

impl<'b> Head<'b> {
    /// Parses a whole head: from the request line to the empty line. The scan has checked the line
    /// ends and the lengths.
    pub(super) fn parse(
        bytes: &'b [u8],
        request_line: &[u8],
        limits: &HeadLimits,
    ) -> Result<Self, Refusal> {
        let line = RequestLine::parse(request_line, limits)?;
        let mut places = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(bytes, &mut places) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Err(httparse::Error::TooManyHeaders) => return Err(MANY_FIELDS),
            _ => return Err(ODD_FIELD),
        }
        let mut head = Self {
            bytes,
            index: line.index(bytes, Fields::collect(request.headers, bytes)),
        };
        head.note_host()?;
        head.note_connection();
        head.note_expectation()?;
        Ok(head)
    }

    /// A request has one host (RFC 9112, 3.2): that of the target, if it names one.
    fn note_host(&mut self) -> Result<(), Refusal> {
        let (host, other) = {
            let mut hosts = self.values("host");
            (hosts.next(), hosts.next())
        };
        if other.is_some() {
            return Err(TWO_HOSTS);
        }
        match host {
            None if self.index.version == Version::Http11 => return Err(NO_HOST),
            Some(host) if !is_authority(host) => return Err(ODD_HOST),
            _ => {}
        }
        if self.index.authority.is_none() {
            self.index.authority = host.map(|host| Span::of(host, self.bytes));
        }
        Ok(())
    }

    fn note_connection(&mut self) {
        let options = || {
            self.values("connection")
                .flat_map(|value| value.split(|byte| *byte == b','))
                .map(<[u8]>::trim_ascii)
        };
        let has = |name: &[u8]| options().any(|option| option.eq_ignore_ascii_case(name));
        let keeps_alive = match self.index.version {
            Version::Http11 => !has(b"close"),
            Version::Http10 => has(b"keep-alive") && !has(b"close"),
        };
        self.index.keeps_alive = keeps_alive;
    }

    /// A server ignores the expectations of HTTP/1.0 (RFC 9110, 10.1.1).
    fn note_expectation(&mut self) -> Result<(), Refusal> {
        let mut expects_continue = false;
        if self.index.version == Version::Http11 {
            for value in self.values("expect") {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(EXPECTATION);
                }
                expects_continue = true;
            }
        }
        self.index.expects_continue = expects_continue;
        Ok(())
    }

    pub(crate) fn method(&self) -> &'b str {
        match self.index.method.within(self.bytes) {
            b"GET" => "GET",
            b"HEAD" => "HEAD",
            b"POST" => "POST",
            _ => self.text(self.index.method),
        }
    }

    pub(crate) fn target(&self) -> &'b str {
        self.text(self.index.target)
    }

    pub(crate) fn path(&self) -> &'b str {
        if self.index.is_root {
            "/"
        } else {
            self.text(self.index.path)
        }
    }

    pub(crate) fn query(&self) -> Option<&'b str> {
        self.index.query.map(|query| self.text(query))
    }

    /// The host and the port.
    pub(crate) fn authority(&self) -> Option<&'b str> {
        self.index.authority.map(|authority| self.text(authority))
    }

    pub(crate) fn version(&self) -> Version {
        self.index.version
    }

    /// Whether the client wants to send another request on this connection.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.index.keeps_alive
    }

    /// Whether the client waits for an interim answer before it sends the body.
    pub(crate) fn expects_continue(&self) -> bool {
        self.index.expects_continue
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + '_ {
        let fields = self.index.fields.all().iter();
        fields.map(|(name, value)| (self.text(*name), value.within(self.bytes)))
    }

    /// The values of all fields with this name, in their order.
    pub(crate) fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'b [u8]> + 'h {
        let fields = self.index.fields.all().iter();
        let named = move |(field, _): &&(Span, Span)| {
            let field = field.within(self.bytes);
            field.eq_ignore_ascii_case(name.as_bytes())
        };
        fields
            .filter(named)
            .map(|(_, value)| value.within(self.bytes))
    }

    /// A copy that outlives the input.
    pub(crate) fn keep(self) -> KeptHead {
        KeptHead {
            bytes: Box::from(self.bytes),
            index: self.index,
        }
    }

    /// A part that the parser has found to be ASCII.
    fn text(&self, span: Span) -> &'b str {
        str::from_utf8(span.within(self.bytes)).unwrap_or_default()
    }
}

impl KeptHead {
    pub(crate) fn head(&self) -> Head<'_> {
        Head {
            bytes: &self.bytes,
            index: self.index.clone(),
        }
    }
}

/// The three words of a request line.
struct RequestLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    parts: Target,
    version: Version,
}

impl<'b> RequestLine<'b> {
    fn parse(line: &'b [u8], limits: &HeadLimits) -> Result<Self, Refusal> {
        let mut words = line.split(|byte| *byte == b' ');
        let words = (words.next(), words.next(), words.next(), words.next());
        let (Some(method), Some(target), Some(version), None) = words else {
            return Err(REQUEST_LINE);
        };
        let version = parse_version(version)?;
        if !is_token(method) {
            return Err(METHOD);
        }
        if target.len() > limits.target() {
            return Err(LONG_TARGET);
        }
        Ok(Self {
            method,
            target,
            parts: Target::parse(method, target)?,
            version,
        })
    }

    /// The same as places in a head.
    fn index(self, bytes: &[u8], fields: Fields) -> Index {
        let method = Span::new(0..self.method.len());
        let start = self.method.len() + 1;
        let part = |range: Range<usize>| Span::new(start + range.start..start + range.end);
        debug_assert_eq!(method.within(bytes), self.method);
        Index {
            method,
            target: part(0..self.target.len()),
            path: part(self.parts.path),
            query: self.parts.query.map(part),
            authority: self.parts.authority.map(part),
            is_root: self.parts.is_root,
            version: self.version,
            keeps_alive: false,
            expects_continue: false,
            fields,
        }
    }
}

/// `HTTP/1.1` or `HTTP/1.0`; other versions of this form are no doubt, but not spoken here.
fn parse_version(version: &[u8]) -> Result<Version, Refusal> {
    match version {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(OTHER_VERSION)
        }
        _ => Err(ODD_VERSION),
    }
}
