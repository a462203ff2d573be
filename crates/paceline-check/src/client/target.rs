//! Where a system listens, and as which user of which database a session starts.

use std::{fmt, str::FromStr};

/// Where a system listens, and as which user of which database a session starts.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The name or the address of the host.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user.
    pub user: String,
    /// The password, where the server asks for one.
    pub password: Option<String>,
    /// The database.
    pub database: String,
}

impl Target {
    /// Host and port as one text.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl Default for Target {
    /// The user `postgres` of the database `postgres` on port 5432 of this machine.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 5432,
            user: "postgres".to_owned(),
            password: None,
            database: "postgres".to_owned(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}/{}", self.user, self.address(), self.database)
    }
}

impl fmt::Debug for Target {
    /// Leaves the password out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

/// Why a text is no URL of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl(String);

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}

impl FromStr for Target {
    type Err = BadUrl;

    /// Reads `postgres://user:password@host:port/database`; each part but the scheme may be left
    /// out, and its default holds.
    fn from_str(url: &str) -> Result<Self, BadUrl> {
        let rest = ["postgres://", "postgresql://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme))
            .ok_or_else(|| BadUrl(format!("`{url}` does not start with postgres://")))?;
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        if database.contains('?') {
            return Err(BadUrl("parameters behind `?` are not supported".to_owned()));
        }
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let (host, port) = host_and_port(place)?;
        let default = Self::default();
        let user = non_empty(decoded(user)?).unwrap_or(default.user);
        Ok(Self {
            host: non_empty(decoded(host)?).unwrap_or(default.host),
            port: port.unwrap_or(default.port),
            password,
            database: non_empty(decoded(database)?).unwrap_or_else(|| user.clone()),
            user,
        })
    }
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// Splits `host:port` and `[address]:port`.
fn host_and_port(place: &str) -> Result<(&str, Option<u16>), BadUrl> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let split = rest.split_once(']');
            let (host, rest) =
                split.ok_or_else(|| BadUrl(format!("`{place}` lacks the bracket `]`")))?;
            (host, rest.strip_prefix(':'))
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = port.map(|text| {
        text.parse()
            .map_err(|_| BadUrl(format!("`{text}` is no TCP port")))
    });
    port.transpose().map(|port| (host, port))
}

/// Decodes `%41` to `A`.
fn decoded(text: &str) -> Result<String, BadUrl> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2);
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| BadUrl(format!("`%{piece}` is no escape")))?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| BadUrl(format!("`{text}` is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_five_parts() {
        let target: Target = "postgres://ada:se%40cret@db.example:6432/bank"
            .parse()
            .expect("a URL");
        assert_eq!(target.to_string(), "ada@db.example:6432/bank");
        assert_eq!(target.password.as_deref(), Some("se@cret"));
        assert_eq!(format!("{target:?}"), "Target(ada@db.example:6432/bank)");
    }

    #[test]
    fn parts_that_are_left_out_have_defaults() {
        assert_eq!(
            "postgres://".parse(),
            Ok(Target {
                database: "postgres".into(),
                ..Target::default()
            })
        );
        let target: Target = "postgresql://demo@[::1]:7000".parse().expect("a URL");
        assert_eq!(target.to_string(), "demo@[::1]:7000/demo");
    }

    #[test]
    fn a_bad_url_is_refused_with_the_reason() {
        for (url, reason) in [
            ("http://x", "postgres://"),
            ("postgres://h:70000/d", "no TCP port"),
            ("postgres://[::1/d", "bracket"),
            ("postgres://h/%4", "no escape"),
            ("postgres://h/d?sslmode=require", "not supported"),
        ] {
            let error = url.parse::<Target>().expect_err("a bad URL").to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
