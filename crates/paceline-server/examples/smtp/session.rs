//! One client: which command may come now, and what it is answered.
//!
//! ```text
//!   EHLO --> MAIL --> RCPT, RCPT, .. --> DATA --> lines --> .     then MAIL again, or QUIT
//!     ^        |
//!     |        +-- RSET forgets the message
//!     +-- STARTTLS: everything is forgotten, and EHLO follows again
//! ```
//!
//! Commands are read by the codec `line`, and a message by `dot_chunks`: it is written to its file in pieces,
//! so no message is ever in memory, and one that is too long is read to its end and then refused.

use std::{fmt::Display, io, mem, sync::Arc, time::SystemTime};

use paceline_server::{
    codec::{dot_chunks, line, Malformed, Message},
    tls::Tls,
    Limit, Next, Peer, PeerAddress, Session,
};

use crate::{
    auth::{self, Progress, Step, Users},
    command::{Command, Reply, Sender},
    mail::{Incoming, Store},
};

/// RFC 4954, 4: a response of AUTH may be so long. Other commands are shorter.
pub(crate) const LONGEST_COMMAND: usize = 12_288;
/// RFC 5321 asks for 998 bytes; clients send more.
const LONGEST_TEXT_LINE: usize = 16 * 1024;
/// A client that makes so many mistakes is no mail server.
const MOST_MISTAKES: u32 = 20;
/// How often a client may try to log in.
const MOST_LOGINS: u32 = 3;

/// What all clients share.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) store: Store,
    /// STARTTLS is offered.
    pub(crate) tls: Option<Tls>,
    pub(crate) users: Users,
    pub(crate) requires_auth: bool,
    pub(crate) insecure_auth: bool,
    /// Mail is taken for these domains; for all, if there are none.
    pub(crate) domains: Vec<String>,
    pub(crate) most_bytes: usize,
    pub(crate) most_recipients: usize,
}

/// One client.
pub(crate) struct Mail {
    settings: Arc<Settings>,
    /// The address of the client.
    peer: String,
    is_greeted: bool,
    known: Known,
    phase: Phase,
    mistakes: u32,
    failed_logins: u32,
}

/// What the client has said of itself: forgotten when TLS begins.
#[derive(Default)]
struct Known {
    /// From HELO or EHLO.
    name: Option<String>,
    is_extended: bool,
    user: Option<String>,
    envelope: Option<Envelope>,
}

/// Whose message it is, and for whom.
struct Envelope {
    sender: String,
    recipients: Vec<String>,
}

/// What the next item is.
#[derive(Default)]
enum Phase {
    #[default]
    Command,
    Response(Step),
    Text(Text),
}

/// An incoming message.
enum Text {
    Taken(Envelope, Incoming),
    /// Read to its end, and then refused.
    Refused(Reply),
}

impl Session for Mail {
    /// Called when the client connects, and again when TLS has begun.
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        if !mem::replace(&mut self.is_greeted, true) {
            say(cx, format!("220 {} ESMTP", self.settings.name))?;
        }
        Ok(Next::Continue)
    }

    fn handle(&mut self, item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        match mem::take(&mut self.phase) {
            Phase::Command => match Command::parse(&item) {
                Ok(command) => self.obey(command, cx),
                Err(refusal) => self.answer(refusal, cx),
            },
            Phase::Response(step) => {
                let progress = auth::go_on(&self.settings.users, step, &item);
                self.authenticate(progress, cx)
            }
            Phase::Text(text) => self.receive(text, &item, cx),
        }
    }

    fn malformed(&mut self, why: Malformed, cx: &mut Peer<'_>) {
        let text = match (&self.phase, why) {
            (Phase::Text(_), Malformed::Invalid(_)) => {
                "554 a line of the message does not end with CR and LF"
            }
            _ => "500 the line is too long",
        };
        let _ = say(cx, text);
    }

    fn overdue(&mut self, limit: Limit, cx: &mut Peer<'_>) -> Next {
        let _ = say(
            cx,
            format!("421 {} closes: limit {limit}", self.settings.name),
        );
        Next::CloseGently
    }

    fn draining(&mut self, cx: &mut Peer<'_>) -> Next {
        let _ = say(cx, format!("421 {} shuts down", self.settings.name));
        Next::CloseGently
    }
}

impl Mail {
    pub(crate) fn new(settings: Arc<Settings>, peer: &PeerAddress) -> Self {
        Self {
            settings,
            peer: peer
                .ip()
                .map_or_else(|| peer.to_string(), |at| at.ip().to_string()),
            is_greeted: false,
            known: Known::default(),
            phase: Phase::Command,
            mistakes: 0,
            failed_logins: 0,
        }
    }

    fn obey(&mut self, command: Command, cx: &mut Peer<'_>) -> io::Result<Next> {
        let reply = match command {
            Command::Helo(name) => self.greet(name, false, cx),
            Command::Ehlo(name) => self.greet(name, true, cx),
            Command::Mail(sender) => self.begin_mail(sender),
            Command::Rcpt(recipient) => self.add_recipient(recipient),
            Command::Data => return self.begin_text(cx),
            Command::Rset => {
                self.known.envelope = None;
                Reply::new(250, "the message is forgotten")
            }
            Command::Noop => Reply::new(250, "done"),
            Command::Vrfy => Reply::new(252, "try to send a mail there"),
            Command::Help => Reply::new(214, "see RFC 5321"),
            Command::Quit => {
                say(cx, format!("221 {} says good bye", self.settings.name))?;
                return Ok(Next::Close);
            }
            Command::StartTls => return self.start_tls(cx),
            Command::Auth(mechanism, first) => {
                return self.begin_auth(&mechanism, first.as_deref(), cx);
            }
        };
        self.answer(reply, cx)
    }

    /// Sends a reply, whose lines are separated by LF. A client that makes too many mistakes is closed.
    fn answer(&mut self, Reply(code, text): Reply, cx: &mut Peer<'_>) -> io::Result<Next> {
        let last = text.lines().count().saturating_sub(1);
        let lines = text.lines().enumerate().map(|(number, line)| {
            let mark = if number == last { ' ' } else { '-' };
            format!("{code}{mark}{line}\r\n")
        });
        cx.send(lines.collect::<String>())?;
        if code < 500 {
            return Ok(Next::Continue);
        }
        self.mistakes += 1;
        if self.mistakes < MOST_MISTAKES && self.failed_logins < MOST_LOGINS {
            return Ok(Next::Continue);
        }
        say(
            cx,
            format!("421 {} closes: too many mistakes", self.settings.name),
        )?;
        Ok(Next::CloseGently)
    }

    /// HELO or EHLO: what came before is forgotten, but for the user.
    fn greet(&mut self, name: String, is_extended: bool, cx: &Peer<'_>) -> Reply {
        let mut text = format!("{} at your service, {name}", self.settings.name);
        if is_extended {
            let size = self.settings.most_bytes;
            text.push_str(&format!("\nPIPELINING\n8BITMIME\nSIZE {size}"));
            if self.settings.tls.is_some() && cx.tls().is_none() {
                text.push_str("\nSTARTTLS");
            }
            if self.offers_auth(cx) {
                text.push_str("\nAUTH PLAIN LOGIN");
            }
            text.push_str("\nHELP");
        }
        self.known.name = Some(name);
        self.known.is_extended = is_extended;
        self.known.envelope = None;
        Reply::new(250, text)
    }

    fn begin_mail(&mut self, Sender { path, size }: Sender) -> Reply {
        if self.known.name.is_none() {
            return Reply::new(503, "say EHLO or HELO first");
        }
        if self.known.envelope.is_some() {
            return Reply::new(503, "a message is begun already");
        }
        if self.settings.requires_auth && self.known.user.is_none() {
            return Reply::new(530, "log in first");
        }
        if size.is_some_and(|size| size > self.settings.most_bytes as u64) {
            return self.too_long();
        }
        self.known.envelope = Some(Envelope {
            sender: path,
            recipients: Vec::new(),
        });
        Reply::new(250, "the sender is good")
    }

    fn too_long(&self) -> Reply {
        let most = self.settings.most_bytes;
        Reply::new(552, format!("the message is longer than {most} bytes"))
    }

    fn add_recipient(&mut self, recipient: String) -> Reply {
        let Some(envelope) = &mut self.known.envelope else {
            return Reply::new(503, "say MAIL first");
        };
        if envelope.recipients.len() >= self.settings.most_recipients {
            return Reply::new(452, "too many recipients: send it to the others later");
        }
        let domain = recipient
            .rsplit_once('@')
            .map(|(_, domain)| domain.to_ascii_lowercase());
        let is_ours = |domain: &String| self.settings.domains.contains(domain);
        if !self.settings.domains.is_empty() && !domain.as_ref().is_none_or(is_ours) {
            return Reply::new(550, "this server takes no mail for this domain");
        }
        envelope.recipients.push(recipient);
        Reply::new(250, "the recipient is good")
    }

    /// DATA: the bytes behind this command belong to the message.
    fn begin_text(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        let envelope = match self.known.envelope.take() {
            None => return self.answer(Reply::new(503, "say MAIL and RCPT first"), cx),
            Some(envelope) if envelope.recipients.is_empty() => {
                self.known.envelope = Some(envelope);
                return self.answer(Reply::new(503, "there is no recipient"), cx);
            }
            Some(envelope) => envelope,
        };
        let fields = self.trace_fields(&envelope, cx);
        let incoming = match self.settings.store.begin(&fields) {
            Ok(incoming) => incoming,
            Err(error) => return self.answer(not_stored(&error), cx),
        };
        self.phase = Phase::Text(Text::Taken(envelope, incoming));
        cx.switch(dot_chunks(LONGEST_TEXT_LINE));
        say(cx, "354 send the message, and a line with a dot alone")?;
        Ok(Next::Continue)
    }

    /// Lines of the message have come.
    fn receive(&mut self, text: Text, lines: &Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        let text = match text {
            Text::Taken(envelope, mut incoming) => match incoming.append(lines) {
                Err(error) => Text::Refused(not_stored(&error)),
                Ok(()) if incoming.bytes() > self.settings.most_bytes => {
                    Text::Refused(self.too_long())
                }
                Ok(()) => Text::Taken(envelope, incoming),
            },
            refused @ Text::Refused(_) => refused,
        };
        if !lines.is_last() {
            self.phase = Phase::Text(text);
            return Ok(Next::Continue);
        }
        cx.switch(line(LONGEST_COMMAND));
        let reply = match text {
            Text::Refused(reply) => reply,
            // The disk may be slow: another thread leads meanwhile.
            Text::Taken(envelope, incoming) => cx.blocking(|| finish(&envelope, incoming)),
        };
        self.answer(reply, cx)
    }

    /// What a server puts before the fields of the client (RFC 5321, 4.4).
    fn trace_fields(&self, envelope: &Envelope, cx: &Peer<'_>) -> String {
        let secure = if cx.tls().is_some() { "S" } else { "" };
        let by_user = if self.known.user.is_some() { "A" } else { "" };
        let protocol = if self.known.is_extended {
            format!("ESMTP{secure}{by_user}")
        } else {
            "SMTP".to_owned()
        };
        let client = self.known.name.as_deref().unwrap_or("unknown");
        let date = httpdate::fmt_http_date(SystemTime::now());
        format!(
            "Return-Path: <{}>\r\nReceived: from {client} ([{}])\r\n\tby {} with {protocol}; {date}\r\n",
            envelope.sender, self.peer, self.settings.name,
        )
    }

    /// STARTTLS: what the client said in plain text, another may have said in its place.
    fn start_tls(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        let Some(tls) = self.settings.tls.clone().filter(|_| cx.tls().is_none()) else {
            return self.answer(Reply::new(503, "TLS is not offered now"), cx);
        };
        say(cx, "220 begin TLS")?;
        cx.start_tls(&tls)?;
        self.known = Known::default();
        Ok(Next::Continue)
    }

    fn offers_auth(&self, cx: &Peer<'_>) -> bool {
        let is_private = cx.tls().is_some() || self.settings.insecure_auth;
        !self.settings.users.is_empty() && is_private
    }

    fn begin_auth(
        &mut self,
        mechanism: &str,
        first: Option<&str>,
        cx: &mut Peer<'_>,
    ) -> io::Result<Next> {
        let refusal = if self.settings.users.is_empty() {
            Reply::new(502, "AUTH is not offered")
        } else if !self.offers_auth(cx) {
            Reply::new(538, "say STARTTLS first")
        } else if !self.known.is_extended || self.known.envelope.is_some() {
            Reply::new(503, "say AUTH after EHLO and before MAIL")
        } else if self.known.user.is_some() {
            Reply::new(503, "you have logged in already")
        } else {
            let progress = auth::begin(&self.settings.users, mechanism, first);
            return self.authenticate(progress, cx);
        };
        self.answer(refusal, cx)
    }

    fn authenticate(&mut self, progress: Progress, cx: &mut Peer<'_>) -> io::Result<Next> {
        let reply = match progress {
            Progress::Ask(challenge, step) => {
                self.phase = Phase::Response(step);
                say(cx, format!("334 {challenge}"))?;
                return Ok(Next::Continue);
            }
            Progress::Passed(user) => {
                self.known.user = Some(user);
                Reply::new(235, "you have logged in")
            }
            Progress::Failed => {
                self.failed_logins += 1;
                Reply::new(535, "the user or the password is wrong")
            }
            Progress::Refused(reply) => reply,
        };
        self.answer(reply, cx)
    }
}

/// Sends one line as it is: the codec may be that of a message.
fn say(cx: &mut Peer<'_>, text: impl Display) -> io::Result<()> {
    cx.send(format!("{text}\r\n"))
}

/// Stores a whole message. Only then is the client free to forget it.
fn finish(envelope: &Envelope, incoming: Incoming) -> Reply {
    let text = format!(
        "from <{}> to {}",
        envelope.sender,
        envelope.recipients.join(", ")
    );
    match incoming.finish(&text) {
        Ok(name) => Reply::new(250, format!("the message is taken {name}").trim_end()),
        Err(error) => not_stored(&error),
    }
}

fn not_stored(error: &io::Error) -> Reply {
    eprintln!("smtp: store a message: {error}");
    Reply::new(451, "the message can't be stored: try again later")
}
