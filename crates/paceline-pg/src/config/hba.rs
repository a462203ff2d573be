//! Rules for `auth_type = hba`: how each client must authenticate.
//!
//! The subset of PostgreSQL's `pg_hba.conf` that this program knows: `local`, `host`, `hostssl`
//! and `hostnossl`; lists of databases and users, `all`, `sameuser`; addresses with their masks;
//! the methods `trust`, `reject`, `md5`, `scram-sha-256` and `password`. Anything else is an
//! error with its line: without that rule, another one would decide.

use std::{net::IpAddr, sync::Arc};

use super::error::{Problem, Reason};

/// How a client must authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Trust,
    /// The client is refused.
    Reject,
    /// The older hash; a user with a SCRAM secret uses SCRAM.
    Md5,
    /// SCRAM-SHA-256.
    Scram,
    /// The password in clear text.
    Plain,
}

/// A client that wants to log in.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The database that it names.
    pub database: &'a str,
    /// The user that it names.
    pub user: &'a str,
    /// Its address; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether its connection uses TLS.
    pub is_tls: bool,
}

/// The rules, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    origin: Origin,
    databases: Vec<Name>,
    users: Vec<Name>,
    method: Method,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Local,
    Host(Tls, Network),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    Either,
    With,
    Without,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    All,
    SameUser,
    Is(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    All,
    Of(IpAddr, IpAddr),
}

impl Rules {
    /// Reads the bytes of the file with this name.
    ///
    /// # Errors
    /// The lines that are not rules of the subset.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        let name: Arc<str> = file.into();
        let syntax = |line, what| Problem::new(&name, line, "", Reason::Syntax(what));
        let text = std::str::from_utf8(bytes);
        let text =
            text.map_err(|error| vec![syntax(line_of(bytes, error.valid_up_to()), NOT_UTF8)])?;
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        for (line, number) in text.lines().zip(1..) {
            match fields(line).and_then(|fields| Rule::of(&fields)) {
                Ok(rule) => rules.extend(rule),
                Err(what) => problems.push(syntax(number, what)),
            }
        }
        if problems.is_empty() {
            Ok(Self(rules))
        } else {
            Err(problems)
        }
    }

    /// The method of the first rule that matches; without one the client is refused.
    #[must_use]
    pub fn method(&self, attempt: &Attempt<'_>) -> Method {
        let rule = self.0.iter().find(|rule| rule.matches(attempt));
        rule.map_or(Method::Reject, |rule| rule.method)
    }
}

/// The error for a file that is not UTF-8.
pub(super) const NOT_UTF8: &str = "the line is not UTF-8";

/// The line of the byte at `at`.
pub(super) fn line_of(bytes: &[u8], at: usize) -> u32 {
    let before = bytes[..at].iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(before).map_or(u32::MAX, |before| before.saturating_add(1))
}

/// A field: its texts with commas between, and whether each was in quotes.
type Field = Vec<(String, bool)>;

/// The fields of a line.
fn fields(line: &str) -> Result<Vec<Field>, &'static str> {
    let mut fields: Vec<Field> = Vec::new();
    let mut rest = line.trim_ascii();
    let mut continues = false;
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, behind) = word(rest)?;
        match fields.last_mut().filter(|_| continues) {
            Some(field) => field.push(word),
            None => fields.push(vec![word]),
        }
        let behind = behind.trim_ascii_start();
        rest = behind
            .strip_prefix(',')
            .unwrap_or(behind)
            .trim_ascii_start();
        continues = behind.starts_with(',');
    }
    if continues {
        Err("a list ends with a comma")
    } else {
        Ok(fields)
    }
}

fn word(text: &str) -> Result<((String, bool), &str), &'static str> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (word, rest) = quoted.split_once('"').ok_or("a quote has no end")?;
        return Ok(((word.to_owned(), true), rest));
    }
    let is_end = |c: char| c.is_ascii_whitespace() || ",#\"".contains(c);
    let (word, rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
    if word.is_empty() {
        Err("a name is missing before a comma")
    } else {
        Ok(((word.to_owned(), false), rest))
    }
}

impl Rule {
    /// The rule of a line; `None`: the line has no fields.
    fn of(fields: &[Field]) -> Result<Option<Self>, &'static str> {
        (!fields.is_empty()).then(|| Self::read(fields)).transpose()
    }

    fn read(fields: &[Field]) -> Result<Self, &'static str> {
        let (kind, fields) = fields.split_first().ok_or("the line is empty")?;
        let [databases, users, rest @ ..] = fields else {
            return Err("expected a database and a user");
        };
        let (origin, rest) = origin(single(kind)?, rest)?;
        let method = match rest {
            [method] => Method::read(single(method)?)?,
            [] => return Err("expected a method"),
            _ => return Err("options of methods are not supported"),
        };
        Ok(Self {
            origin,
            databases: names(databases)?,
            users: names(users)?,
            method,
        })
    }

    fn matches(&self, attempt: &Attempt<'_>) -> bool {
        let is_database = |name: &Name| name.matches(attempt.database, attempt.user);
        let is_user = |name: &Name| name.matches(attempt.user, attempt.user);
        self.origin.matches(attempt)
            && self.databases.iter().any(is_database)
            && self.users.iter().any(is_user)
    }
}

fn single(field: &Field) -> Result<&str, &'static str> {
    match field.as_slice() {
        [(word, _)] => Ok(word),
        _ => Err("a list is not allowed here"),
    }
}

/// Where the rule's clients connect from, and the fields behind that.
fn origin<'f>(kind: &str, rest: &'f [Field]) -> Result<(Origin, &'f [Field]), &'static str> {
    let tls = match kind {
        "local" => return Ok((Origin::Local, rest)),
        "host" => Tls::Either,
        "hostssl" => Tls::With,
        "hostnossl" => Tls::Without,
        _ => return Err("expected local, host, hostssl or hostnossl"),
    };
    let (address, rest) = rest.split_first().ok_or("expected an address")?;
    let address = single(address)?;
    if address.parse::<IpAddr>().is_ok() {
        let (mask, rest) = rest.split_first().ok_or("expected a mask")?;
        return Ok((
            Origin::Host(tls, Network::masked(address, single(mask)?)?),
            rest,
        ));
    }
    Ok((Origin::Host(tls, Network::read(address)?), rest))
}

fn names(field: &Field) -> Result<Vec<Name>, &'static str> {
    field
        .iter()
        .map(|(word, is_quoted)| Name::read(word, *is_quoted))
        .collect()
}

impl Name {
    fn read(word: &str, is_quoted: bool) -> Result<Self, &'static str> {
        match word {
            _ if is_quoted => Ok(Self::Is(word.into())),
            "all" => Ok(Self::All),
            "sameuser" => Ok(Self::SameUser),
            "samerole" | "samegroup" | "replication" => Err("this name is not supported"),
            _ if word.starts_with(['+', '@', '/']) => {
                Err("groups, files and patterns are not supported")
            }
            _ => Ok(Self::Is(word.into())),
        }
    }

    fn matches(&self, name: &str, user: &str) -> bool {
        match self {
            Self::All => true,
            Self::SameUser => name == user,
            Self::Is(own) => **own == *name,
        }
    }
}

impl Origin {
    fn matches(&self, attempt: &Attempt<'_>) -> bool {
        match (self, attempt.address) {
            (Self::Local, None) => true,
            (Self::Host(tls, network), Some(address)) => {
                tls.matches(attempt.is_tls) && network.contains(address)
            }
            _ => false,
        }
    }
}

impl Tls {
    fn matches(self, is_tls: bool) -> bool {
        match self {
            Self::Either => true,
            Self::With => is_tls,
            Self::Without => !is_tls,
        }
    }
}

impl Network {
    fn read(text: &str) -> Result<Self, &'static str> {
        const RULE: &str = "expected all, or an address with its mask, such as 10.0.0.0/8";
        if text == "all" {
            return Ok(Self::All);
        }
        let (address, length) = text.split_once('/').ok_or(RULE)?;
        let address: IpAddr = address.parse().map_err(|_| RULE)?;
        let length: u32 = length.parse().map_err(|_| RULE)?;
        Ok(Self::Of(address, mask(address, length).ok_or(RULE)?))
    }

    fn masked(address: &str, mask: &str) -> Result<Self, &'static str> {
        const RULE: &str = "expected a mask of the address's kind";
        let address: IpAddr = address.parse().map_err(|_| RULE)?;
        let mask: IpAddr = mask.parse().map_err(|_| RULE)?;
        if address.is_ipv4() == mask.is_ipv4() {
            Ok(Self::Of(address, mask))
        } else {
            Err(RULE)
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Of(network, mask) => same_network(network, address.to_canonical(), mask),
        }
    }
}

/// The mask of the first `length` bits.
fn mask(address: IpAddr, length: u32) -> Option<IpAddr> {
    match address {
        IpAddr::V4(_) => {
            let bits = u32::MAX
                .checked_shl(32_u32.checked_sub(length)?)
                .unwrap_or(0);
            Some(IpAddr::V4(bits.into()))
        }
        IpAddr::V6(_) => {
            let bits = u128::MAX
                .checked_shl(128_u32.checked_sub(length)?)
                .unwrap_or(0);
            Some(IpAddr::V6(bits.into()))
        }
    }
}

fn same_network(one: IpAddr, other: IpAddr, mask: IpAddr) -> bool {
    match (one, other, mask) {
        (IpAddr::V4(one), IpAddr::V4(other), IpAddr::V4(mask)) => one & mask == other & mask,
        (IpAddr::V6(one), IpAddr::V6(other), IpAddr::V6(mask)) => one & mask == other & mask,
        _ => false,
    }
}

impl Method {
    fn read(word: &str) -> Result<Self, &'static str> {
        match word {
            "trust" => Ok(Self::Trust),
            "reject" => Ok(Self::Reject),
            "md5" => Ok(Self::Md5),
            "scram-sha-256" => Ok(Self::Scram),
            "password" => Ok(Self::Plain),
            _ => Err("the method is not supported: \
                expected trust, reject, md5, scram-sha-256 or password"),
        }
    }
}

#[cfg(test)]
mod tests;
