//! The opening: the request that becomes a WebSocket (RFC 6455, 4.2).

use sha1_smol::Sha1;

/// What a server reads of the request that shall become a WebSocket.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'r> {
    /// The method, as it was sent.
    pub method: &'r str,
    /// The minor number of the version: 1 for HTTP/1.1.
    pub minor_version: u8,
    /// The fields in their order, without white space around the values.
    pub fields: &'r [(&'r str, &'r [u8])],
}

/// Which web pages may open a WebSocket. A client without an `Origin`, which is no browser, always
/// may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginPolicy {
    /// Pages of the host and port that the request is for.
    #[default]
    SameHost,
    /// These origins, such as `https://example.org`, and pages of the same host.
    Allow(Vec<String>),
    /// All pages. Any page that a user visits can then speak in the name of that user.
    Any,
}

/// What the server answers to an opening that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    key: String,
    protocol: Option<String>,
}

/// Why the server refuses an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// 405: the method is not GET.
    Method,
    /// 400: a field is missing, is there twice, or has a wrong value. The text names it.
    Invalid(&'static str),
    /// 426: the request does not ask for a WebSocket of version 13. The answer has the field
    /// `sec-websocket-version: 13`.
    Version,
    /// 403: the origin is not allowed.
    Origin,
}

impl Refused {
    /// The status of the answer.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::Invalid(_) => 400,
            Self::Version => 426,
            Self::Origin => 403,
        }
    }

    /// A text for the answer.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Method => "a WebSocket opens with GET",
            Self::Invalid(why) => why,
            Self::Version => "only version 13 of WebSocket is spoken here",
            Self::Origin => "this origin may not open a WebSocket here",
        }
    }
}

impl Opening<'_> {
    /// Checks the request. `protocols` are the subprotocols of the server, the best one first.
    ///
    /// # Errors
    /// [`Refused`] says why not, and with which status.
    pub fn accept(&self, origins: &OriginPolicy, protocols: &[&str]) -> Result<Accepted, Refused> {
        if self.method != "GET" {
            return Err(Refused::Method);
        }
        if self.minor_version < 1 {
            return Err(Refused::Invalid("a WebSocket needs HTTP/1.1"));
        }
        let host = self.only("host", "the host is missing or there twice")?;
        if !self.has_token("upgrade", "websocket") {
            return Err(Refused::Invalid(
                "the field Upgrade does not name websocket",
            ));
        }
        if !self.has_token("connection", "upgrade") {
            return Err(Refused::Invalid(
                "the field Connection does not name upgrade",
            ));
        }
        let version = self.all("sec-websocket-version").collect::<Vec<_>>();
        if version != [b"13"] {
            return Err(Refused::Version);
        }
        let key = self.only("sec-websocket-key", "the key is missing or there twice")?;
        let key = std::str::from_utf8(key).ok().filter(|key| is_key(key));
        let key = key.ok_or(Refused::Invalid("the key is not 16 bytes in base64"))?;
        self.check_origin(origins, host)?;
        Ok(Accepted {
            key: accept_key(key),
            protocol: self.choose(protocols),
        })
    }

    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s [u8]> + 's {
        let named = move |(field, _): &&(&str, &[u8])| field.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|(_, value)| *value)
    }

    fn only(&self, name: &str, fault: &'static str) -> Result<&[u8], Refused> {
        let mut values = self.fields.iter();
        let mut next = || values.find(|(field, _)| field.eq_ignore_ascii_case(name));
        match (next(), next()) {
            (Some((_, value)), None) => Ok(value),
            _ => Err(Refused::Invalid(fault)),
        }
    }

    /// Whether one of the comma-separated words of a field is `token`.
    fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(words)
            .any(|word| word.eq_ignore_ascii_case(token.as_bytes()))
    }

    fn check_origin(&self, policy: &OriginPolicy, host: &[u8]) -> Result<(), Refused> {
        let mut origins = self.all("origin");
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let is_allowed = origins.next().is_none()
            && match policy {
                OriginPolicy::Any => true,
                OriginPolicy::SameHost => is_of_host(origin, host),
                OriginPolicy::Allow(allowed) => {
                    let same = |it: &String| it.as_bytes().eq_ignore_ascii_case(origin);
                    is_of_host(origin, host) || allowed.iter().any(same)
                }
            };
        if is_allowed {
            Ok(())
        } else {
            Err(Refused::Origin)
        }
    }

    /// The first protocol of the server that the client offers.
    fn choose(&self, protocols: &[&str]) -> Option<String> {
        let offered: Vec<_> = self.all("sec-websocket-protocol").flat_map(words).collect();
        let chosen = protocols
            .iter()
            .find(|own| offered.contains(&own.as_bytes()));
        chosen.map(ToString::to_string)
    }
}

impl Accepted {
    /// The value of `sec-websocket-accept`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The subprotocol that both sides speak.
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The head of the answer, with the empty line at its end.
    #[must_use]
    pub fn head(&self) -> String {
        let protocol = self.protocol.as_ref().map_or_else(String::new, |name| {
            format!("sec-websocket-protocol: {name}\r\n")
        });
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-accept: {}\r\n{protocol}\r\n",
            self.key
        )
    }
}

/// The answer to a client's key: it shows that the server speaks WebSocket.
#[must_use]
pub fn accept_key(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64(&hash.digest().bytes())
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * index)) as usize & 63];
            let is_filled = index <= chunk.len();
            text.push(if is_filled { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Whether it is the base64 form of 16 bytes: 22 digits, of which the last has four zero bits, and
/// two signs at the end.
fn is_key(key: &str) -> bool {
    let Some(digits) = key.strip_suffix("==") else {
        return false;
    };
    digits.len() == 22
        && digits.bytes().all(|digit| ALPHABET.contains(&digit))
        && digits.ends_with(['A', 'Q', 'g', 'w'])
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether a page of this origin comes from `host`, by http or https.
fn is_of_host(origin: &[u8], host: &[u8]) -> bool {
    let rest = |scheme: &[u8]| origin.strip_prefix(scheme);
    let authority = rest(b"http://").or_else(|| rest(b"https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}
