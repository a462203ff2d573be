//! From the server to the client.

use paceline_pg_wire::{backend::Reply, Header, Message, Need, Step, TransactionStatus};

use super::{
    super::{
        output::{Output, Stream},
        prepared::OnServer,
        server::{
            model::{Answer, Entry, Fate, Whose},
            ErrorClass, Partial, Unnamed,
        },
        Broken, ClientHalf, Mode, OwnOutcome, ServerHalf,
    },
    forgets_all, is_final, status,
    unreplicated::LONGEST_NOTICE,
    Counts, FromServer, Relay,
};

/// The severity and the code of an error are in its first bytes.
const START_OF_ERROR: usize = 128;

impl Relay<'_> {
    /// Takes bytes of the server. It leaves the incomplete start of a message.
    ///
    /// # Errors
    /// [`Broken`] if the server does what the model of it has not foreseen, and in the cases that
    /// [`Broken`] lists. What was taken before is in `out`; the caller may send it. The server is
    /// never free again.
    pub fn from_server(
        &mut self,
        input: &[u8],
        out: &mut Output<'_>,
    ) -> Result<FromServer, Broken> {
        let mut stream = Stream::new(input, out.to_client);
        let mut counts = Counts::default();
        if let Err(broken) = self.reply_steps(&mut stream, &mut counts) {
            stream.copy_direct();
            // Behind that nothing is known any more.
            self.server.broken = Some(self.server.loss());
            self.server.model.pin();
            return Err(broken);
        }
        let may_resume = self.client.is_waiting && self.may_resume();
        let mut release = self.release();
        if may_resume {
            self.client.is_waiting = false;
            self.server.is_flushed = false;
            release = release.held();
        }
        Ok(FromServer {
            consumed: stream.taken(),
            direct: stream.direct(),
            release,
            may_resume,
            has_ended: self.server.farewell.is_some(),
            counts,
        })
    }

    fn reply_steps(
        &mut self,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        while self.reply_step(stream, counts)? {}
        Ok(())
    }

    /// Takes the next part of the input. Whether there was one.
    fn reply_step(
        &mut self,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<bool, Broken> {
        let longest = self.settings.longest_message;
        let mut is_too_long = false;
        let (step, length) = self.server.walk.step(stream.rest(), |header| {
            is_too_long = header.message() > longest;
            need(header)
        })?;
        if is_too_long {
            return Err(Broken::LongMessage);
        }
        match step {
            Step::Incomplete => return Ok(false),
            Step::Message(message) => self.reply(message, length, stream, counts)?,
            Step::Begin { header, bytes } => {
                let body = &bytes[Header::LENGTH..];
                let partial = self.begin_reply(header.tag, body)?;
                if header.tag == b'E' && is_final(body) {
                    // Too long to be kept: the client gets it.
                    self.server.model.pin();
                }
                self.server.partial = Some(partial);
                take(stream, length, partial.fate);
            }
            Step::More { is_last, .. } => {
                let Some(partial) = self.server.partial else {
                    return Err(Broken::Unexpected(0));
                };
                take(stream, length, partial.fate);
                if is_last {
                    self.server.partial = None;
                    self.end_reply(partial, stream.insert());
                }
            }
        }
        Ok(true)
    }

    fn reply(
        &mut self,
        message: Message<'_>,
        length: usize,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        match message.tag {
            b'Z' => return self.ready(message, length, stream, counts),
            b'S' => {
                let fate = self.parameter(message)?;
                take(stream, length, fate);
                return Ok(());
            }
            b'N' if self.is_unreplicated(message) => {
                self.take_unreplicated(length, stream);
                return Ok(());
            }
            b'E' if is_final(message.body) => {
                self.server.keep_farewell(message);
                stream.skip(length);
                return Ok(());
            }
            b'C' if forgets_all(message.body) => self.forget_all(),
            _ => {}
        }
        let partial = self.begin_reply(message.tag, message.body)?;
        take(stream, length, partial.fate);
        self.end_reply(partial, stream.insert());
        Ok(())
    }

    /// Classifies a reply; `body` is at least the start of it.
    fn begin_reply(&self, tag: u8, body: &[u8]) -> Result<Partial, Broken> {
        let model = &self.server.model;
        let error = match tag {
            b'E' => ErrorClass::of(super::field(body, b'C').unwrap_or_default()),
            _ => ErrorClass::Other,
        };
        let fate = match tag {
            b'N' | b'A' => Fate::Deliver,
            _ if model.is_pinned() => Fate::Deliver,
            b'E' if model.is_own_query() => Fate::Swallow,
            b'E' if error == ErrorClass::NoStatement && model.is_refused() => Fate::Swallow,
            b'E' => Fate::Deliver,
            _ => model.fate(tag)?,
        };
        let fate = self.fate_after_unreplicated(tag, fate)?;
        Ok(Partial { tag, fate, error })
    }

    /// A reply is complete.
    fn end_reply(&mut self, partial: Partial, to_client: &mut Vec<u8>) {
        if self.server.model.is_pinned() {
            return;
        }
        let mut nowhere = Vec::new();
        let to_client = if self.server.is_unreplicated {
            &mut nowhere
        } else {
            to_client
        };
        match partial.tag {
            b'N' | b'A' => return,
            b'E' => self.failed(partial.error, to_client),
            tag => {
                let done = self.server.model.settle(tag);
                self.committed(done);
            }
        }
        self.send_answers(to_client);
    }

    /// An error is complete.
    fn failed(&mut self, error: ErrorClass, to_client: &mut Vec<u8>) {
        self.server.is_doubtful |= error == ErrorClass::ReadOnly;
        match (self.server.model.head(), error) {
            (Some(Entry::Query(Whose::Own, _) | Entry::Sync(Whose::Own)), _) => {
                self.server.own.fail()
            }
            (Some(Entry::Refused(refusal)), ErrorClass::NoStatement) => {
                self.client.refusal = Some(Self::logged(refusal));
                Self::append_refusal(refusal, to_client);
            }
            (Some(Entry::Bind(number) | Entry::Describe(number)), ErrorClass::PlanChanged) => {
                self.server.statements.spoil(*number);
            }
            (Some(Entry::Bind(number) | Entry::Describe(number)), ErrorClass::NoStatement) => {
                drop(self.server.statements.remove(*number));
            }
            _ => {}
        }
        let ServerHalf {
            model,
            statements,
            unnamed,
            ..
        } = &mut *self.server;
        model.failed(error == ErrorClass::Interrupt, |entry| {
            undo(entry, self.client, statements, unnamed);
        });
        if self.server.model.is_pinned() {
            self.client.commit_names();
        }
    }

    /// A message has got its reply.
    fn committed(&mut self, done: Option<Entry>) {
        match done {
            Some(Entry::Parse { is_named: true, .. }) => self.client.commit_name(),
            Some(Entry::Parse {
                statement: None, ..
            }) => self.server.unnamed.client = self.client.id,
            _ => {}
        }
    }

    fn ready(
        &mut self,
        message: Message<'_>,
        length: usize,
        stream: &mut Stream<'_, '_>,
        counts: &mut Counts,
    ) -> Result<(), Broken> {
        let status = status(message)?;
        if self.settings.mode == Mode::Statement && status != TransactionStatus::Idle {
            return Err(Broken::Block);
        }
        if !self.server.model.is_pinned() {
            self.server.model.fate(b'Z')?;
        }
        let fate = self.server.model.fate_of_head();
        let done = self.server.model.ready(status);
        self.server.bound = None;
        self.server.is_unreplicated = false;
        if status == TransactionStatus::Idle {
            self.server.before = None;
        }
        take(stream, length, fate);
        match done {
            Some(Entry::Query(Whose::Own, _) | Entry::Sync(Whose::Own)) => self.own_done(status)?,
            _ => {
                counts.queries += 1;
                counts.transactions += u32::from(status == TransactionStatus::Idle);
            }
        }
        // On a shared connection the next answers are another client's.
        if !self.server.is_shared {
            self.send_answers(stream.insert());
        }
        Ok(())
    }

    /// A query of the front-end has ended: the one that sets parameters.
    fn own_done(&mut self, status: TransactionStatus) -> Result<(), Broken> {
        match self.server.own.end(status) {
            Some(OwnOutcome::Failed(_)) => Err(Broken::Parameter),
            _ => {
                self.client.take_over(&self.server.parameters);
                Ok(())
            }
        }
    }

    /// The server reports a parameter.
    fn parameter(&mut self, message: Message<'_>) -> Result<Fate, Broken> {
        let Reply::Parameter { name, value } = Reply::read(message)? else {
            return Err(Broken::Unexpected(message.tag));
        };
        let place = self.server.report(&self.settings.tracked, name, value);
        if self.server.model.is_own_query() {
            // The client takes the values over at the end.
            return Ok(place.map_or(Fate::Deliver, |_| Fate::Swallow));
        }
        if place.is_some() && !self.server.own.is_running() {
            let before = self.client.parameters();
            self.server.before.get_or_insert_with(|| before.clone());
            self.client.take_over(&self.server.parameters);
        }
        Ok(Fate::Deliver)
    }

    /// The server has forgotten all statements.
    fn forget_all(&mut self) {
        self.server.statements.clear();
        for entry in self.server.model.entries() {
            match entry {
                Entry::Parse {
                    statement: Some(statement),
                    ..
                } => self.server.statements.insert(statement.clone()),
                Entry::Evict(statement) => drop(self.server.statements.remove(statement.number)),
                _ => {}
            }
        }
        if let Some(names) = &mut self.client.names {
            names.clear();
        }
    }
}

/// Undoes what the skipped message would have changed.
fn undo(entry: Entry, client: &mut ClientHalf, statements: &mut OnServer, unnamed: &mut Unnamed) {
    match entry {
        Entry::Parse {
            statement,
            is_named,
            ..
        } => {
            match statement {
                Some(statement) => drop(statements.remove(statement.number)),
                None => unnamed.client = 0,
            }
            if is_named {
                client.names().undo();
            }
        }
        Entry::Evict(statement) => statements.insert(statement),
        Entry::Answer(Answer::Parsed | Answer::Closed { is_named: true } | Answer::Deallocated) => {
            client.names().undo();
        }
        _ => {}
    }
}

/// Takes bytes of a reply.
fn take(stream: &mut Stream<'_, '_>, length: usize, fate: Fate) {
    match fate {
        Fate::Deliver => stream.pass(length),
        Fate::Swallow => stream.skip(length),
    }
}

/// How much of a message the relay needs at once.
fn need(header: Header) -> Need {
    match header.tag {
        b'Z' | b'S' | b'C' => Need::Whole,
        b'E' => Need::First(START_OF_ERROR),
        b'N' if header.body <= LONGEST_NOTICE => Need::Whole,
        _ => Need::Pieces,
    }
}
