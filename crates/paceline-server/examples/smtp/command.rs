//! A line of the client as a command, or as the reply that refuses it.

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Helo(String),
    Ehlo(String),
    Mail(Sender),
    /// The recipient: a mailbox, or `postmaster` alone.
    Rcpt(String),
    Data,
    Rset,
    Noop,
    Vrfy,
    Help,
    Quit,
    StartTls,
    /// The mechanism, in upper case, and the first response, if it came along.
    Auth(String, Option<String>),
}

/// What MAIL says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    /// Where errors go; empty for a message that must have no answer.
    pub(crate) path: String,
    /// How long the message is, as the client says.
    pub(crate) size: Option<u64>,
}

/// A reply: its code, and its text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply(pub(crate) u16, pub(crate) String);

impl Reply {
    pub(crate) fn new(code: u16, text: impl Into<String>) -> Self {
        Self(code, text.into())
    }
}

fn syntax(text: &str) -> Reply {
    Reply::new(501, text)
}

impl Command {
    /// Reads a line without its end.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Reply> {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let line = std::str::from_utf8(line).ok();
        let Some(line) = line.filter(|line| line.bytes().all(|byte| is_plain(&byte))) else {
            return Err(Reply::new(500, "a command is printable ASCII"));
        };
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match verb.to_ascii_uppercase().as_str() {
            "HELO" => client_name(rest).map(Self::Helo),
            "EHLO" => client_name(rest).map(Self::Ehlo),
            "MAIL" => mail(rest).map(Self::Mail),
            "RCPT" => rcpt(rest).map(Self::Rcpt),
            "DATA" => alone(rest, Self::Data),
            "RSET" => alone(rest, Self::Rset),
            "QUIT" => alone(rest, Self::Quit),
            "STARTTLS" => alone(rest, Self::StartTls),
            "NOOP" => Ok(Self::Noop),
            "HELP" => Ok(Self::Help),
            "VRFY" if rest.is_empty() => Err(syntax("VRFY needs a name")),
            "VRFY" => Ok(Self::Vrfy),
            "AUTH" => auth(rest),
            "EXPN" | "TURN" | "ETRN" | "BDAT" => {
                Err(Reply::new(502, "this command is not implemented"))
            }
            _ => Err(Reply::new(500, "there is no such command")),
        }
    }
}

/// A command without parameters.
fn alone(rest: &str, command: Command) -> Result<Command, Reply> {
    if rest.is_empty() {
        Ok(command)
    } else {
        Err(syntax("this command has no parameters"))
    }
}

/// The name by which a client introduces itself. Many give none that exists, so only its form counts.
fn client_name(rest: &str) -> Result<String, Reply> {
    if rest.is_empty() || rest.len() > 255 || rest.contains([' ', '(', ')']) {
        Err(syntax("give the name of your host"))
    } else {
        Ok(rest.to_owned())
    }
}

fn mail(rest: &str) -> Result<Sender, Reply> {
    let path = strip_keyword(rest, "FROM:").ok_or_else(|| syntax("want MAIL FROM:<path>"))?;
    let (path, parameters) = split_path(path).ok_or_else(|| syntax("want MAIL FROM:<path>"))?;
    if !path.is_empty() && !is_mailbox(path) {
        return Err(Reply::new(553, "the path is no mailbox"));
    }
    let mut sender = Sender {
        path: path.to_owned(),
        size: None,
    };
    for parameter in parameters.split_whitespace() {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name.to_ascii_uppercase().as_str() {
            "SIZE" => sender.size = Some(size(value)?),
            "BODY" if is_body(value) => {}
            "BODY" => return Err(syntax("BODY is 7BIT or 8BITMIME")),
            // RFC 4954, 5: a server may ignore it.
            "AUTH" if !value.is_empty() => {}
            _ => {
                return Err(Reply::new(
                    555,
                    format!("parameter {name} is not implemented"),
                ))
            }
        }
    }
    Ok(sender)
}

fn rcpt(rest: &str) -> Result<String, Reply> {
    let path = strip_keyword(rest, "TO:").ok_or_else(|| syntax("want RCPT TO:<path>"))?;
    let (path, parameters) = split_path(path).ok_or_else(|| syntax("want RCPT TO:<path>"))?;
    if !is_mailbox(path) && !path.eq_ignore_ascii_case("postmaster") {
        return Err(Reply::new(553, "the path is no mailbox"));
    }
    if !parameters.trim().is_empty() {
        return Err(Reply::new(555, "no parameter of RCPT is implemented"));
    }
    Ok(path.to_owned())
}

fn auth(rest: &str) -> Result<Command, Reply> {
    let mut words = rest.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(mechanism), first, None) => Ok(Command::Auth(
            mechanism.to_ascii_uppercase(),
            first.map(str::to_owned),
        )),
        _ => Err(syntax("want AUTH mechanism [response]")),
    }
}

fn strip_keyword<'t>(text: &'t str, keyword: &str) -> Option<&'t str> {
    let head = text.get(..keyword.len())?;
    let rest = &text[keyword.len()..];
    head.eq_ignore_ascii_case(keyword)
        .then(|| rest.trim_start())
}

/// The path between `<` and `>`, without the source route that old clients put before it, and what
/// follows. A quoted part may contain `>`.
fn split_path(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('<')?;
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'>' if !is_quoted => {
                let rest = &text[at + 1..];
                let is_apart = rest.is_empty() || rest.starts_with(' ');
                return is_apart.then(|| (without_route(&text[..at]), rest));
            }
            _ => {}
        }
    }
    None
}

fn without_route(path: &str) -> &str {
    match path.split_once(':') {
        Some((route, mailbox)) if route.starts_with('@') => mailbox,
        _ => path,
    }
}

/// Whether this is `local@domain`, within the lengths of RFC 5321, 4.5.3.1.
fn is_mailbox(path: &str) -> bool {
    let Some((local, domain)) = path.rsplit_once('@') else {
        return false;
    };
    (1..=64).contains(&local.len()) && path.len() <= 254 && is_local(local) && is_domain(domain)
}

/// Whether this is a dot-separated text, or a quoted one.
fn is_local(local: &str) -> bool {
    if let Some(quoted) = local
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    {
        let mut is_escaped = false;
        let is_open = quoted.bytes().any(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        return !is_open && !is_escaped;
    }
    let is_atom = |atom: &str| {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
        !atom.is_empty() && atom.bytes().all(is_plain)
    };
    local.split('.').all(is_atom)
}

/// Whether this can be the name of a host, or an address in brackets.
pub(crate) fn is_domain(domain: &str) -> bool {
    if let Some(address) = domain
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':');
        return !address.is_empty() && address.bytes().all(is_plain);
    }
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(is_plain)
    };
    domain.len() <= 255 && domain.split('.').all(is_label)
}

fn size(value: &str) -> Result<u64, Reply> {
    let is_number =
        (1..=20).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(syntax("SIZE is a number of bytes"));
    }
    // One that is beyond 64 bits is beyond every limit.
    Ok(value.parse().unwrap_or(u64::MAX))
}

fn is_body(value: &str) -> bool {
    value.eq_ignore_ascii_case("7BIT") || value.eq_ignore_ascii_case("8BITMIME")
}
