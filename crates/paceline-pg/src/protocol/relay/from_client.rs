//! From the client to the server.

use paceline_pg_wire::{frontend, Header, Need, Step};

use super::{
    super::{
        client::Rest,
        keyword::{self, Class},
        output::{Output, Stream},
        server::{
            model::{Entry, Whose},
            Unnamed,
        },
        Violation,
    },
    Counts, FromClient, Next, Relay,
};

/// A message of the client, or the start of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'b> {
    pub(super) header: Header,
    /// The body so far.
    pub(super) body: &'b [u8],
}

impl Request<'_> {
    pub(super) fn is_whole(&self) -> bool {
        self.body.len() == self.header.body
    }

    /// How many bytes of the input are the message, or its start.
    pub(super) fn length(&self) -> usize {
        Header::LENGTH + self.body.len()
    }
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    GoOn,
    Terminate,
}

/// The relay waits for all of a query up to this length, to see its first keyword.
const SHORT_QUERY: usize = 1024;

/// The relay waits for a statement without a name up to this length, to see its first keyword.
const START_OF_PARSE: usize = 4096;

/// The relay waits for the names at the start of a message up to this length.
pub(super) const LONGEST_NAMES: usize = 40_000;

impl Relay<'_> {
    /// Takes bytes of the client. It leaves the incomplete start of a message, and bytes that must
    /// wait.
    ///
    /// # Errors
    /// [`Violation`] if the client breaks the protocol. Earlier messages are in `out`.
    pub fn from_client(
        &mut self,
        input: &[u8],
        out: &mut Output<'_>,
    ) -> Result<FromClient, Violation> {
        let mut stream = Stream::new(input, out.to_server);
        let mut counts = Counts::default();
        let next = match self.steps(&mut stream, out.to_client, &mut counts) {
            Ok(next) => next,
            Err(violation) => {
                stream.copy_direct();
                if violation != Violation::SimpleQuery {
                    self.server.model.pin();
                }
                return Err(violation);
            }
        };
        self.client.is_waiting = next == Next::Wait;
        Ok(FromClient {
            consumed: stream.taken(),
            direct: stream.direct(),
            next,
            release: self.release(),
            counts,
        })
    }

    /// Takes as much of the input as it can.
    fn steps(
        &mut self,
        stream: &mut Stream<'_, '_>,
        to_client: &mut Vec<u8>,
        counts: &mut Counts,
    ) -> Result<Next, Violation> {
        loop {
            if self.has_to_wait(stream.rest()) {
                self.flush_once(stream);
                return Ok(Next::Wait);
            }
            match self.step(stream, to_client, counts)? {
                None => return Ok(Next::More),
                Some(After::Terminate) => return Ok(Next::Terminate),
                Some(After::GoOn) => {}
            }
        }
    }

    /// Whether the next message has to wait for replies.
    fn has_to_wait(&self, rest: &[u8]) -> bool {
        let Some(tag) = rest
            .first()
            .filter(|_| self.client.walk.is_between_messages())
        else {
            return false;
        };
        self.must_wait() || self.must_wait_with(*tag)
    }

    /// Takes the next part of the input; `None` if there is none.
    fn step(
        &mut self,
        stream: &mut Stream<'_, '_>,
        to_client: &mut Vec<u8>,
        counts: &mut Counts,
    ) -> Result<Option<After>, Violation> {
        let settings = self.settings;
        let (renames, longest) = (settings.renames(), settings.longest_statement);
        let mut violation = None;
        let body = stream.rest().get(Header::LENGTH..).unwrap_or_default();
        let need = |header: Header| {
            let need = need(header, body, renames);
            let is_too_long = need == Need::Whole && header.message() > longest;
            violation = settings
                .violation(header)
                .or(is_too_long.then_some(Violation::LongStatement));
            need
        };
        let (step, length) = self.client.walk.step(stream.rest(), need)?;
        if let Some(violation) = violation {
            return Err(violation);
        }
        let request = match step {
            Step::Incomplete => return Ok(None),
            Step::More { .. } => {
                self.rest(stream, length);
                return Ok(Some(After::GoOn));
            }
            Step::Message(message) => Request {
                header: Header {
                    tag: message.tag,
                    body: message.body.len(),
                },
                body: message.body,
            },
            Step::Begin { header, bytes } => Request {
                header,
                body: &bytes[Header::LENGTH..],
            },
        };
        self.client.rest = Rest::Passes;
        self.request(request, stream, to_client, counts).map(Some)
    }

    /// Takes more of a message that arrives in pieces.
    fn rest(&mut self, stream: &mut Stream<'_, '_>, length: usize) {
        match self.client.rest {
            Rest::Passes => stream.pass(length),
            Rest::Dropped => stream.skip(length),
        }
    }

    fn request(
        &mut self,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        to_client: &mut Vec<u8>,
        counts: &mut Counts,
    ) -> Result<After, Violation> {
        let tag = request.header.tag;
        if tag == b'X' {
            stream.skip(request.length());
            return Ok(After::Terminate);
        }
        if let Some(loss) = self.client.lost {
            self.answer_lost(loss, request, stream, to_client);
        } else if self.client.is_skipping && tag != b'S' {
            self.drop_request(request, stream);
        } else if !is_known(tag) {
            return Err(Violation::Type(tag));
        } else if self.passes_unmodelled(tag) {
            stream.pass(request.length());
        } else {
            self.modelled(request, stream, counts)?;
            self.send_answers(to_client);
        }
        Ok(After::GoOn)
    }

    /// Takes a message without sending it on.
    pub(super) fn drop_request(&mut self, request: Request<'_>, stream: &mut Stream<'_, '_>) {
        stream.skip(request.length());
        self.drop_rest();
    }

    /// Drops the rest of the message.
    pub(super) fn drop_rest(&mut self) {
        self.client.rest = Rest::Dropped;
    }

    /// Whether a message passes without an entry: the server skips it, takes it for data, or is
    /// beyond the model.
    fn passes_unmodelled(&self, tag: u8) -> bool {
        let model = &self.server.model;
        let is_beyond = model.is_pinned() && !self.settings.renames();
        is_beyond || matches!(tag, b'd' | b'H') || (model.is_skipping() && tag != b'S')
    }

    fn modelled(
        &mut self,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<(), Violation> {
        match request.header.tag {
            b'Q' => self.query(request, stream),
            b'B' => return self.bind(request, stream, counts),
            b'D' => return self.describe(request, stream, counts),
            b'P' if self.settings.renames() => return self.parse(request, stream, counts),
            b'C' if self.settings.renames() => return self.close(request, stream),
            b'P' => self.parse_as_it_is(request, stream),
            b'C' => self.extended(Entry::Close, request, stream),
            b'E' => self.execute(request, stream),
            b'F' => {
                self.server.model.sent_query(Entry::Function);
                stream.pass(request.length());
            }
            b'S' => {
                self.client.is_skipping = false;
                self.server.model.sent_sync(Whose::Client);
                stream.pass(request.length());
            }
            _ => {
                self.server.model.sent_copy_end();
                stream.pass(request.length());
            }
        }
        Ok(())
    }

    fn query(&mut self, request: Request<'_>, stream: &mut Stream<'_, '_>) {
        let sql = request.body.strip_suffix(&[0]).unwrap_or(request.body);
        if self.is_own_deallocate(sql) {
            return self.deallocate(sql, request, stream);
        }
        let class = keyword::class(sql, request.is_whole());
        self.server
            .model
            .sent_query(Entry::Query(Whose::Client, class));
        if class.may_forget() {
            self.server.model.may_forget();
        }
        stream.pass(request.length());
    }

    /// A message of the extended protocol that passes unchanged.
    pub(super) fn extended(
        &mut self,
        entry: Entry,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
    ) {
        self.server.model.sent_extended(entry);
        stream.pass(request.length());
    }

    pub(super) fn parse_as_it_is(&mut self, request: Request<'_>, stream: &mut Stream<'_, '_>) {
        if let Some(text) = request.body.strip_prefix(&[0]) {
            self.server.unnamed = Unnamed {
                client: self.client.id,
                class: class_of_definition(text),
            };
        }
        let entry = Entry::Parse {
            whose: Whose::Client,
            statement: None,
            is_named: false,
        };
        self.extended(entry, request, stream);
    }

    fn execute(&mut self, request: Request<'_>, stream: &mut Stream<'_, '_>) {
        // The portal may be from an earlier batch, and of any statement.
        let class = self.server.bound.unwrap_or(Class::MayCommit);
        self.extended(Entry::Execute(class), request, stream);
        if class.may_forget() {
            self.server.model.may_forget();
        }
    }

    /// Sends a Flush, so that the server answers and a client that waits for the queue resumes.
    fn flush_once(&mut self, stream: &mut Stream<'_, '_>) {
        if !self.server.is_flushed && self.server.model.is_open() {
            self.server.is_flushed = true;
            frontend::flush(stream.insert());
        }
    }
}

/// The class of a statement, by its text at the start of `definition`.
pub(super) fn class_of_definition(definition: &[u8]) -> Class {
    let end = definition.iter().position(|byte| *byte == 0);
    let text = &definition[..end.unwrap_or(definition.len())];
    keyword::class(text, end.is_some())
}

fn is_known(tag: u8) -> bool {
    matches!(
        tag,
        b'Q' | b'P' | b'B' | b'D' | b'C' | b'E' | b'F' | b'S' | b'H' | b'd' | b'c' | b'f'
    )
}

/// How much of a message the relay needs at once. `body` is what has come of its body.
fn need(header: Header, body: &[u8], renames: bool) -> Need {
    let name = body.first().copied();
    match header.tag {
        b'Q' if header.body <= SHORT_QUERY => Need::Whole,
        b'Q' => Need::First(SHORT_QUERY),
        b'P' if renames && name.is_none() => Need::First(1),
        b'P' if renames && name != Some(0) => Need::Whole,
        b'C' if renames => Need::Whole,
        b'P' => Need::First(START_OF_PARSE),
        b'B' => Need::First(end_of_names(body).unwrap_or(LONGEST_NAMES)),
        b'D' | b'c' | b'S' | b'X' => Need::Whole,
        _ => Need::Pieces,
    }
}

/// Where the two texts at the start of a message end, if that has come.
fn end_of_names(body: &[u8]) -> Option<usize> {
    let start = &body[..body.len().min(LONGEST_NAMES)];
    let mut ends = start.iter().enumerate().filter(|(_, byte)| **byte == 0);
    ends.nth(1).map(|(at, _)| at + 1)
}
