//! Messages that name prepared statements, where each server connection has names of its own.
//!
//! ```text
//!   Parse name     the server has the text: answer `1` at its place. Else send Parse, renamed
//!   Bind name      the server lacks it: send our Parse first, and swallow its `1`
//!   Close name     answer `3` at its place
//!   refused        send a Bind that can only fail, and replace the server's error by ours: so
//!                  the transaction fails, and messages are skipped, as in a direct session
//! ```

use paceline_pg_wire::{
    backend,
    frontend::{self, Bind, Parse, Target},
    Message, NewReport, Severity, TransactionStatus,
};

use super::{
    super::{
        keyword::{self, Class},
        output::Stream,
        prepared::{Held, Names},
        server::{
            model::{Answer, Entry, Refusal, Whose},
            Unnamed,
        },
        Violation,
    },
    from_client::{class_of_definition, Request, LONGEST_NAMES},
    Counts, Relay,
};

/// The name of a statement that no server has.
const NOTHING: &[u8] = b"paceline_none";

/// What a name of the client means on its server.
enum On<'n> {
    /// The name passes unchanged. What its statement can do.
    AsItIs(Class),
    /// This statement, which has another name there.
    Server(&'n Held),
    /// The client has no such statement.
    Nothing,
}

impl Relay<'_> {
    /// A Parse.
    pub(super) fn parse(
        &mut self,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<(), Violation> {
        if let Some(definition) = request.body.strip_prefix(&[0]) {
            let text = definition.split(|byte| *byte == 0).next();
            match text.and_then(keyword::deallocated) {
                Some(name) if request.is_whole() && self.has_name(name) => {
                    self.parse_deallocate(name, request, stream, counts);
                }
                _ => self.parse_as_it_is(request, stream),
            }
            return Ok(());
        }
        let parse = Parse::of(message(request))?;
        counts.client_parses += 1;
        self.drop_request(request, stream);
        self.close_stale(stream);
        let names = self.client.names();
        if names.get(parse.statement).is_some() && !self.server.model.is_pinned() {
            self.refuse(Refusal::Taken(parse.statement.into()), stream);
            return Ok(());
        }
        if !names.has_room(parse.definition().len()) {
            return Err(Violation::ManyStatements);
        }
        self.parse_new(parse, stream, counts);
        Ok(())
    }

    /// A Parse with a free name.
    fn parse_new(&mut self, parse: Parse<'_>, stream: &mut Stream<'_, '_>, counts: &mut Counts) {
        let class = class_of_definition(parse.definition());
        let table = &self.settings.statements;
        if self.server.model.is_pinned() {
            // The server answers by itself: so it gets a name that it does not have.
            let statement = table.unshared(parse.definition(), class);
            frontend::parse_definition(stream.insert(), &statement.name, parse.definition());
            self.server.statements.insert(statement.clone());
            self.client
                .names()
                .insert_for_good(parse.statement, statement);
            return;
        }
        let statement = table.get(parse.definition(), class);
        if self.server.statements.touch(statement.number) {
            self.server.model.answers(Answer::Parsed);
        } else {
            self.send_parse(&statement, Whose::Client, stream, counts);
        }
        self.client.names().insert(parse.statement, statement);
    }

    /// A Bind.
    pub(super) fn bind(
        &mut self,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<(), Violation> {
        counts.binds += 1;
        let (portal, name) = names_of_bind(request.body).ok_or(Violation::LongNames)?;
        // Out of the client, so that a statement can be borrowed while the relay changes.
        let names = self.client.names.take();
        match self.target(name, names.as_deref(), stream, counts) {
            On::AsItIs(class) => {
                self.bound(class);
                self.extended(Entry::Bind(0), request, stream);
            }
            On::Server(statement) => {
                // Later pieces of the message follow the renamed start.
                let length = request.header.body - name.len() + statement.name.len();
                let values = &request.body[portal.len() + name.len() + 2..];
                stream.skip(request.length());
                Bind::head(stream.insert(), length, portal, &statement.name);
                stream.insert().extend_from_slice(values);
                self.bound(statement.class);
                self.server
                    .model
                    .sent_extended(Entry::Bind(statement.number));
            }
            On::Nothing => self.refuse_unknown(request, stream),
        }
        self.client.names = names;
        Ok(())
    }

    /// A Describe.
    pub(super) fn describe(
        &mut self,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<(), Violation> {
        let Target::Statement(name) = Target::of(message(request))? else {
            self.extended(Entry::Describe(0), request, stream);
            return Ok(());
        };
        let names = self.client.names.take();
        match self.target(name, names.as_deref(), stream, counts) {
            On::AsItIs(_) => self.extended(Entry::Describe(0), request, stream),
            On::Server(statement) => {
                self.drop_request(request, stream);
                frontend::describe(stream.insert(), Target::Statement(&statement.name));
                let entry = Entry::Describe(statement.number);
                self.server.model.sent_extended(entry);
            }
            On::Nothing => self.refuse_unknown(request, stream),
        }
        self.client.names = names;
        Ok(())
    }

    /// A Close.
    pub(super) fn close(
        &mut self,
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
    ) -> Result<(), Violation> {
        match Target::of(message(request))? {
            Target::Statement(name) if !name.is_empty() => {
                self.drop_request(request, stream);
                self.close_statement(name, stream);
            }
            _ => self.extended(Entry::Close, request, stream),
        }
        Ok(())
    }

    /// What a name of the client means on this server.
    fn target<'n>(
        &mut self,
        name: &[u8],
        names: Option<&'n Names>,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> On<'n> {
        if name.is_empty() {
            let unnamed = self.server.unnamed;
            return if unnamed.client == self.client.id {
                On::AsItIs(unnamed.class)
            } else {
                On::Nothing
            };
        }
        if !self.settings.renames() {
            return On::AsItIs(Class::MayCommit);
        }
        let statement = names.and_then(|names| names.get(name));
        match statement {
            Some(statement) if self.bring(statement, stream, counts) => On::Server(statement),
            _ => On::Nothing,
        }
    }

    fn close_statement(&mut self, name: &[u8], stream: &mut Stream<'_, '_>) {
        if self.server.model.is_pinned() {
            let statement = self.client.names().remove_for_good(name);
            let name = statement
                .as_ref()
                .map_or(NOTHING, |statement| &statement.name);
            frontend::close(stream.insert(), Target::Statement(name));
            return;
        }
        let is_named = self.client.names().remove(name);
        self.server.model.answers(Answer::Closed { is_named });
    }

    /// Whether the server has the statement, once it has read what was sent.
    fn bring(
        &mut self,
        statement: &Held,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> bool {
        self.close_stale(stream);
        if self.server.statements.touch(statement.number) {
            return true;
        }
        if self.server.model.is_pinned() {
            // The model could not distinguish the reply to its own Parse from the client's.
            return false;
        }
        self.send_parse(statement, Whose::Own, stream, counts);
        true
    }

    /// Sends a Parse of a statement that the server lacks, and first closes one too many.
    fn send_parse(
        &mut self,
        statement: &Held,
        whose: Whose,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) {
        counts.server_parses += 1;
        let limit = self.settings.max_prepared_statements;
        while let Some(evicted) = self.server.statements.evict(limit) {
            self.send_close(evicted, stream);
        }
        frontend::parse_definition(stream.insert(), &statement.name, &statement.definition);
        self.server.statements.insert(statement.clone());
        self.server.model.sent_extended(Entry::Parse {
            whose,
            statement: Some(statement.clone()),
            is_named: whose == Whose::Client,
        });
    }

    /// Closes statements on the server with changed result types.
    fn close_stale(&mut self, stream: &mut Stream<'_, '_>) {
        if self.server.model.is_pinned() {
            return;
        }
        while let Some(stale) = self.server.statements.next_stale() {
            self.send_close(stale, stream);
        }
    }

    fn send_close(&mut self, statement: Held, stream: &mut Stream<'_, '_>) {
        frontend::close(stream.insert(), Target::Statement(&statement.name));
        self.server.model.sent_extended(Entry::Evict(statement));
    }

    /// Refuses a message that names no statement of the client.
    fn refuse_unknown(&mut self, request: Request<'_>, stream: &mut Stream<'_, '_>) {
        self.drop_request(request, stream);
        self.refuse(Refusal::Unknown, stream);
    }

    /// Sends a Bind that can only fail.
    fn refuse(&mut self, refusal: Refusal, stream: &mut Stream<'_, '_>) {
        frontend::bind(stream.insert(), b"", NOTHING, &[]);
        self.server.model.sent_extended(Entry::Refused(refusal));
    }

    /// A statement that can do this is bound.
    pub(super) fn bound(&mut self, class: Class) {
        self.server.bound = self.server.bound.max(Some(class));
    }

    /// The refusal in PgBouncer's words.
    pub(super) fn logged(refusal: &Refusal) -> Box<str> {
        match refusal {
            Refusal::Unknown => "prepared statement did not exist".into(),
            Refusal::Taken(name) => {
                let name = String::from_utf8_lossy(name);
                format!("prepared statement '{name}' was already prepared").into()
            }
        }
    }

    /// What the client gets instead of the server's error.
    pub(super) fn append_refusal(refusal: &Refusal, to_client: &mut Vec<u8>) {
        let report = match refusal {
            Refusal::Unknown => {
                let text = "prepared statement did not exist";
                NewReport::new(Severity::Error, "26000", text)
            }
            Refusal::Taken(name) => {
                let name = String::from_utf8_lossy(name);
                let text = format!("prepared statement \"{name}\" already exists");
                NewReport::new(Severity::Error, "42P05", text)
            }
        };
        backend::error(to_client, &report);
    }
}

/// A simple query that deallocates one of the client's statements.
impl Relay<'_> {
    fn has_name(&self, name: &[u8]) -> bool {
        let names = self.client.names.as_ref();
        !self.server.model.is_pinned() && names.is_some_and(|names| names.get(name).is_some())
    }

    /// The same among messages of the extended protocol: the server deallocates a statement that
    /// was made for that, so that its replies and its errors are those of the real thing.
    fn parse_deallocate(
        &mut self,
        name: &[u8],
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) {
        self.drop_request(request, stream);
        let statement = self
            .settings
            .statements
            .unshared(b"SELECT 1\0\0\0", Class::Inside);
        self.send_parse(&statement, Whose::Own, stream, counts);
        let sql = [b"DEALLOCATE ", &*statement.name].concat();
        frontend::parse(stream.insert(), b"", &sql, &[]);
        self.client.names().remove(name);
        self.server.unnamed = Unnamed {
            client: self.client.id,
            class: Class::Inside,
        };
        self.server.model.sent_extended(Entry::Parse {
            whose: Whose::Client,
            statement: None,
            is_named: true,
        });
    }

    /// Whether the query is exactly `DEALLOCATE name`, of a name that the client has given to a
    /// statement. Among messages without a Sync the query is left to the server.
    pub(super) fn is_own_deallocate(&self, sql: &[u8]) -> bool {
        let model = &self.server.model;
        let is_apart = !model.is_pinned() && !model.is_open() && !model.is_copying_in();
        let Some(names) = self.client.names.as_ref().filter(|_| is_apart) else {
            return false;
        };
        let name = keyword::deallocated(sql);
        self.settings.renames() && name.is_some_and(|name| names.get(name).is_some())
    }

    /// Answers the query at its place. A Sync makes the server say its status.
    pub(super) fn deallocate(
        &mut self,
        sql: &[u8],
        request: Request<'_>,
        stream: &mut Stream<'_, '_>,
    ) {
        self.drop_request(request, stream);
        let name = keyword::deallocated(sql).unwrap_or_default();
        self.client.names().remove(name);
        self.server.model.answers(Answer::Deallocated);
        self.sync(stream.insert());
    }

    /// The query's place is reached: in a failed block the server would refuse it.
    pub(super) fn answer_deallocate(&mut self, to_client: &mut Vec<u8>) {
        if self.server.model.status() == TransactionStatus::Failed {
            self.client.names().undo_oldest();
            let text = "current transaction is aborted, commands ignored until end of transaction \
                        block";
            let report = NewReport::new(Severity::Error, "25P02", text);
            backend::error(to_client, &report);
        } else {
            self.client.commit_name();
            backend::command_complete(to_client, b"DEALLOCATE");
        }
    }
}

fn message(request: Request<'_>) -> Message<'_> {
    Message {
        tag: request.header.tag,
        body: request.body,
    }
}

/// The names of the portal and of the statement at the start of a Bind.
pub(super) fn names_of_bind(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = body.splitn(3, |byte| *byte == 0);
    let (portal, name) = (fields.next()?, fields.next()?);
    let length = portal.len() + name.len();
    fields.next().filter(|_| length < LONGEST_NAMES)?;
    Some((portal, name))
}
