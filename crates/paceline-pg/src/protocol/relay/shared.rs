//! Requests of several clients on one server connection (`multiplex`).
//!
//! A request is a batch of the extended protocol with its Sync: [`batch`] finds it in the client's
//! input. It is sent as a whole, or not at all, and each batch is a transaction of its own. The
//! server answers the batches in their order, and a `Z` ends the replies to each one, so every
//! reply is that of the oldest batch without its `Z`.
//!
//! Nothing that one batch leaves behind means anything to the next one: a batch that uses the
//! unnamed statement or portal has made it itself, and names of statements are renamed.

use paceline_pg_wire::{
    frontend::{Parse, Target},
    Header, Message,
};

use super::{
    super::{
        client::{ClientHalf, LostBlock},
        keyword, RelaySettings, Violation,
    },
    parameters::{self, Comparison},
    statements::names_of_bind,
    FromClient, Relay,
};
use crate::protocol::Output;

/// What the start of a client's input is, for a server connection that it shares.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// So many bytes are a batch that may be shared.
    Whole(usize),
    /// The start of a batch: more bytes are needed.
    Partial,
    /// The client needs a server connection for itself.
    Alone,
}

/// The longest batch that is shared: a longer one would hold the others up.
const LONGEST_BATCH: usize = 64 << 10;

/// Judges the start of a client's input.
pub fn batch(client: &ClientHalf, settings: &RelaySettings, input: &[u8]) -> Batch {
    if !client.may_share() {
        return Batch::Alone;
    }
    let mut reader = Reader {
        client,
        settings,
        has_unnamed: false,
        has_portal: false,
        parsed: None,
    };
    let mut length = 0;
    loop {
        let rest = &input[length..];
        let header = match Header::first(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return Batch::Partial,
            Err(_) => return Batch::Alone,
        };
        let tag = header.tag;
        let is_known = matches!(tag, b'P' | b'B' | b'D' | b'E' | b'C' | b'S');
        let is_long = length + header.message() > LONGEST_BATCH;
        if !is_known || is_long || settings.violation(header).is_some() {
            return Batch::Alone;
        }
        let Some(body) = rest.get(Header::LENGTH..header.message()) else {
            return Batch::Partial;
        };
        length += header.message();
        if tag == b'S' {
            return Batch::Whole(length);
        }
        if reader.read(Message { tag, body }).is_none() {
            return Batch::Alone;
        }
    }
}

/// Reads the messages of a batch.
struct Reader<'c> {
    client: &'c ClientHalf,
    settings: &'c RelaySettings,
    /// The batch has parsed the unnamed statement.
    has_unnamed: bool,
    /// It has bound the unnamed portal.
    has_portal: bool,
    /// The named statement that it has parsed.
    parsed: Option<Box<[u8]>>,
}

impl Reader<'_> {
    /// `None`: a batch with this message is not shared.
    fn read(&mut self, message: Message<'_>) -> Option<()> {
        match message.tag {
            b'P' => self.parse(Parse::of(message).ok()?),
            b'B' => {
                let (portal, name) = names_of_bind(message.body)?;
                self.has_portal = true;
                allow(portal.is_empty() && self.has(name))
            }
            b'D' => match Target::of(message).ok()? {
                Target::Statement(name) => allow(self.has(name)),
                Target::Portal(portal) => allow(portal.is_empty() && self.has_portal),
            },
            b'E' => allow(message.body.first() == Some(&0) && self.has_portal),
            _ => match Target::of(message).ok()? {
                Target::Statement(b"") => {
                    self.has_unnamed = false;
                    Some(())
                }
                Target::Statement(_) => allow(self.settings.renames()),
                Target::Portal(portal) => {
                    self.has_portal = false;
                    allow(portal.is_empty())
                }
            },
        }
    }

    fn parse(&mut self, parse: Parse<'_>) -> Option<()> {
        allow(is_shareable(parse.definition()))?;
        if parse.statement.is_empty() {
            self.has_unnamed = true;
            return Some(());
        }
        let names = self.client.names.as_ref();
        let has_room = names.is_none_or(|names| names.has_room(parse.definition().len()));
        allow(self.settings.renames() && has_room && self.parsed.is_none())?;
        self.parsed = Some(parse.statement.into());
        Some(())
    }

    /// Whether the batch may use this statement.
    fn has(&self, name: &[u8]) -> bool {
        if name.is_empty() {
            return self.has_unnamed;
        }
        let is_own = self.parsed.as_deref() == Some(name);
        let names = self.client.names.as_ref();
        let held = names.and_then(|names| names.get(name));
        let is_held = held.is_some_and(|held| is_shareable(&held.definition));
        self.settings.renames() && (is_own || is_held)
    }
}

fn allow(is_allowed: bool) -> Option<()> {
    is_allowed.then_some(())
}

/// Whether a statement is one that runs in a transaction of its own and leaves no session state.
fn is_shareable(definition: &[u8]) -> bool {
    let end = definition.iter().position(|byte| *byte == 0);
    end.is_some_and(|end| keyword::is_shareable(&definition[..end]))
}

impl ClientHalf {
    /// Whether the client is at rest, and wants nothing of a server that others must not have.
    fn may_share(&self) -> bool {
        let is_at_rest = self.walk.is_between_messages() && !self.is_waiting && !self.is_skipping;
        let is_whole = self.lost.is_none() && self.lost_block == LostBlock::None;
        is_at_rest && is_whole && self.others.is_none()
    }
}

impl Relay<'_> {
    /// Whether the server has other parameters than the client wants, or is about to get those of
    /// another client: [`begin`](Self::begin) sets them, at a boundary.
    pub fn needs_parameters(&mut self) -> bool {
        if self.server.own.is_running() {
            return true;
        }
        let wanted = self.client.parameters_mut();
        let present = &self.server.parameters;
        parameters::compare(&self.settings.tracked, wanted, present) != Comparison::Equal
    }

    /// Whether a whole batch may be sent now: its meaning depends on no outstanding reply.
    pub fn can_share(&self, batch: &[u8]) -> bool {
        let begins_with_unnamed = matches!(batch, [b'P', _, _, _, _, 0, ..]);
        let model = &self.server.model;
        let is_in_doubt =
            model.are_names_in_doubt() || (model.is_unnamed_in_doubt() && !begins_with_unnamed);
        !(self.must_wait() || model.is_pinned() || is_in_doubt)
    }

    /// Sends a whole batch behind those of other clients, if [`can_share`](Self::can_share).
    ///
    /// # Errors
    /// [`Violation`] if it is no batch that [`batch`] has found. The server is never free again.
    pub fn share(&mut self, batch: &[u8], out: &mut Output<'_>) -> Result<FromClient, Violation> {
        let sent = self.from_client(batch, out)?;
        if sent.consumed == batch.len() {
            return Ok(sent);
        }
        self.server.model.pin();
        Err(Violation::Type(batch.first().copied().unwrap_or_default()))
    }

    /// Appends the front-end's own answers that are due, now that the client's batch is the oldest.
    pub fn answer_oldest(&mut self, to_client: &mut Vec<u8>) {
        self.send_answers(to_client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Mode, Values};
    use paceline_pg_wire::frontend as f;

    fn judged(write: impl FnOnce(&mut Vec<u8>)) -> Batch {
        let client = ClientHalf::new(Values::new(), true);
        let mut input = Vec::new();
        write(&mut input);
        let judged = batch(&client, &RelaySettings::new(Mode::Statement), &input);
        if let Batch::Whole(length) = judged {
            assert_eq!(length, input.len());
        }
        judged
    }

    fn query(out: &mut Vec<u8>, name: &[u8], sql: &str) {
        f::parse(out, name, sql.as_bytes(), &[]);
        f::bind(out, b"", name, &[]);
        f::describe(out, f::Target::Portal(b""));
        f::execute(out, b"", 0);
    }

    /// What changes a session, or takes a connection for long, must not be among the requests of
    /// others.
    #[test]
    fn only_plain_statements_are_shared() {
        let of = |sql: &str| {
            judged(|out| {
                query(out, b"", sql);
                f::sync(out);
            })
        };
        for sql in [
            "SELECT 1",
            " /* x */ insert into t values (1)",
            "UPDATE t SET a = 1",
            "delete from t",
            "VALUES (1)",
        ] {
            assert!(matches!(of(sql), Batch::Whole(_)), "{sql}");
        }
        for sql in [
            "BEGIN",
            "COPY t FROM STDIN",
            "SET a = 1",
            "SELECT 1; SET a = 1",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "CALL f()",
            "LISTEN a",
            "PREPARE a AS SELECT 1",
            "",
        ] {
            assert_eq!(of(sql), Batch::Alone, "{sql}");
        }
    }

    /// The unnamed statement and portal of a shared connection are those of any client.
    #[test]
    fn a_batch_uses_only_what_it_has_made() {
        let alone = |write: fn(&mut Vec<u8>)| {
            let judged = judged(|out| {
                write(out);
                f::sync(out);
            });
            assert_eq!(judged, Batch::Alone);
        };
        alone(|out| f::bind(out, b"", b"", &[]));
        alone(|out| f::bind(out, b"", b"unknown", &[]));
        alone(|out| f::execute(out, b"", 0));
        alone(|out| f::describe(out, f::Target::Portal(b"")));
        alone(|out| f::describe(out, f::Target::Statement(b"")));
        alone(|out| {
            f::parse(out, b"", b"SELECT 1", &[]);
            f::bind(out, b"portal", b"", &[]);
        });
        alone(|out| {
            f::parse(out, b"", b"SELECT 1", &[]);
            f::close(out, f::Target::Statement(b""));
            f::bind(out, b"", b"", &[]);
        });
        alone(f::flush);
        alone(|out| f::query(out, b"SELECT 1"));
        alone(f::terminate);
        let own = judged(|out| {
            query(out, b"mine", "SELECT 1");
            f::sync(out);
        });
        assert!(matches!(own, Batch::Whole(_)));
    }

    /// A client that has lost its transaction block gets the error of a failed block first.
    #[test]
    fn a_client_with_a_lost_block_shares_nothing() {
        let mut client = ClientHalf::new(Values::new(), true);
        client.lost_block = LostBlock::Due;
        let mut input = Vec::new();
        query(&mut input, b"", "SELECT 1");
        f::sync(&mut input);
        let settings = RelaySettings::new(Mode::Statement);
        assert_eq!(batch(&client, &settings, &input), Batch::Alone);
    }

    /// A batch waits for its end, but not for ever.
    #[test]
    fn a_batch_is_whole_and_short() {
        assert_eq!(judged(|out| query(out, b"", "SELECT 1")), Batch::Partial);
        assert_eq!(
            judged(|out| out.extend_from_slice(b"P\0\0")),
            Batch::Partial
        );
        let long = "SELECT '".to_owned() + &"x".repeat(LONGEST_BATCH) + "'";
        assert_eq!(judged(|out| query(out, b"", &long)), Batch::Alone);
        let mut client = ClientHalf::new(Values::new(), true);
        client.is_skipping = true;
        let settings = RelaySettings::new(Mode::Statement);
        assert_eq!(batch(&client, &settings, b"S\0\0\0\x04"), Batch::Alone);
    }
}
