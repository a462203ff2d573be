//! The session that a client asks for: the parameters of its first packet.

use paceline_pg_wire::startup::Session;

/// Which parameters a client may give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartupRules {
    /// The tracked parameters: their values follow the client from server to server.
    pub tracked: Vec<String>,
    /// Names that are accepted and have no effect (`ignore_startup_parameters`).
    pub ignored: Vec<String>,
    /// Any other name of a parameter is taken too: a session, which has a server for itself, can
    /// set it there.
    pub passes_others: bool,
}

/// The session that a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRequest {
    /// The user.
    pub user: String,
    /// The database; the user's name if the client gives none.
    pub database: String,
    /// Tracked names as the rules write them, with the client's values.
    pub parameters: Vec<(String, Vec<u8>)>,
    /// Other names and values, which only a server of the client's own may have.
    pub others: Vec<(String, Vec<u8>)>,
    /// The error for the client if it gets no server of its own.
    pub refusal_of_others: Option<String>,
    /// The newest minor version that the client speaks.
    pub minor: u16,
    /// Options of the protocol (`_pq_.`) that the front-end does not have.
    pub unknown_options: Vec<Vec<u8>>,
}

enum Place {
    Tracked(String),
    Ignored,
    Other,
    Refused,
}

impl StartupRules {
    /// Reads the parameters of a session.
    ///
    /// # Errors
    /// The text of the error for the client.
    pub fn read(&self, session: &Session<'_>) -> Result<SessionRequest, String> {
        let mut request = SessionRequest {
            minor: session.version.minor,
            ..SessionRequest::default()
        };
        for (name, value) in session.parameters.iter() {
            self.read_one(&mut request, name, value)?;
        }
        if request.user.is_empty() {
            return Err("no username supplied".to_owned());
        }
        if request.database.is_empty() {
            request.database.clone_from(&request.user);
        }
        Ok(request)
    }

    fn read_one(
        &self,
        request: &mut SessionRequest,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), String> {
        match name {
            b"user" => request.user = text(value, "username")?,
            b"database" => request.database = text(value, "database name")?,
            b"options" => self.read_options(request, value)?,
            b"replication" if is_false(value) => {}
            b"replication" => return Err("replication connections are not supported".to_owned()),
            name if name.starts_with(b"_pq_.") => request.unknown_options.push(name.to_vec()),
            name => self.put(request, name, value, "unsupported startup parameter")?,
        }
        Ok(())
    }

    fn put(
        &self,
        request: &mut SessionRequest,
        name: &[u8],
        value: &[u8],
        refusal: &str,
    ) -> Result<(), String> {
        let name = String::from_utf8_lossy(name);
        match self.place(&name) {
            Place::Tracked(name) => set(&mut request.parameters, name, value),
            Place::Ignored => {}
            Place::Other => {
                let refusal = || format!("{refusal}: {name}");
                request.refusal_of_others.get_or_insert_with(refusal);
                set(&mut request.others, name.into_owned(), value);
            }
            Place::Refused => return Err(format!("{refusal}: {name}")),
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Place {
        let is_name = |known: &&String| known.eq_ignore_ascii_case(name);
        if let Some(tracked) = self.tracked.iter().find(is_name) {
            Place::Tracked(tracked.clone())
        } else if self.ignores(name) {
            Place::Ignored
        } else if self.passes_others && is_parameter(name) {
            Place::Other
        } else {
            Place::Refused
        }
    }

    fn ignores(&self, name: &str) -> bool {
        self.ignored.iter().any(|ignored| ignored == name)
    }

    /// Reads `-c name=value` and `--name=value`, with backslash escapes.
    fn read_options(&self, request: &mut SessionRequest, options: &[u8]) -> Result<(), String> {
        const SHAPE: &str = "unsupported options startup parameter: only '-c config=val' and \
                             '--config=val' are allowed";
        let mut rest = skip_space(options);
        while !rest.is_empty() {
            let token = if let Some(token) = rest.strip_prefix(b"-c") {
                skip_space(token)
            } else {
                rest.strip_prefix(b"--").ok_or(SHAPE)?
            };
            let (word, after) = unescaped_word(token);
            let equals = word.iter().position(|byte| *byte == b'=').ok_or(SHAPE)?;
            let (name, value) = (&word[..equals], &word[equals + 1..]);
            let is_known = !matches!(
                self.place(&String::from_utf8_lossy(name)),
                Place::Other | Place::Refused
            );
            if !is_known && self.ignores("options") {
                rest = skip_space(after);
                continue;
            }
            self.put(
                request,
                name,
                value,
                "unsupported startup parameter in options",
            )?;
            rest = skip_space(after);
        }
        Ok(())
    }
}

/// Whether a text is the name of a parameter.
fn is_parameter(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    !name.is_empty() && name.bytes().all(is_part)
}

/// Sets a value: the last one of a name takes effect.
fn set(list: &mut Vec<(String, Vec<u8>)>, name: String, value: &[u8]) {
    match list.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = value.to_vec(),
        None => list.push((name, value.to_vec())),
    }
}

/// The longest name of a user or a database: they are kept and logged before anything is proved.
const LONGEST_NAME: usize = 127;

fn text(value: &[u8], what: &str) -> Result<String, String> {
    if value.len() > LONGEST_NAME {
        return Err(format!("{what} too long"));
    }
    let text = std::str::from_utf8(value).map_err(|_| format!("the {what} is not UTF-8"))?;
    Ok(text.to_owned())
}

fn is_false(value: &[u8]) -> bool {
    let no = ["false", "off", "no", "0"];
    no.iter()
        .any(|no| value.eq_ignore_ascii_case(no.as_bytes()))
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn skip_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_space(*byte));
    &text[start.unwrap_or(text.len())..]
}

/// The word at the start, without the backslashes that escape, and what follows it.
fn unescaped_word(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut word = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'\\' {
            let Some((&literal, after)) = after.split_first() else {
                return (word, after);
            };
            word.push(literal);
            rest = after;
        } else if is_space(byte) {
            break;
        } else {
            word.push(byte);
            rest = after;
        }
    }
    (word, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> StartupRules {
        StartupRules {
            tracked: vec!["DateStyle".to_owned(), "application_name".to_owned()],
            ignored: vec!["extra_float_digits".to_owned()],
            passes_others: false,
        }
    }

    fn read_options(options: &str) -> Result<SessionRequest, String> {
        let mut request = SessionRequest::default();
        rules().read_options(&mut request, options.as_bytes())?;
        Ok(request)
    }

    #[test]
    fn options_have_two_forms_and_escapes() {
        let both = read_options("  -c datestyle=ISO\\ x --application_name=a\\\\b=c  ");
        let both = both.expect("both forms are known").parameters;
        let expected = [("DateStyle", "ISO x"), ("application_name", "a\\b=c")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(both, expected);
        assert_eq!(
            read_options("-cextra_float_digits=2").map(|it| it.parameters),
            Ok(Vec::new())
        );
    }

    #[test]
    fn other_options_are_refused_by_name() {
        assert_eq!(
            read_options("-c work_mem=1"),
            Err("unsupported startup parameter in options: work_mem".to_owned())
        );
        for bad in ["-d", "x", "-c", "-c a", "--a", "-"] {
            assert!(
                read_options(bad).is_err_and(|text| text.contains("only '-c")),
                "{bad}"
            );
        }
        let mut rules = rules();
        rules.ignored.push("options".to_owned());
        for passes_others in [false, true] {
            rules.passes_others = passes_others;
            let mut request = SessionRequest::default();
            assert_eq!(rules.read_options(&mut request, b"-c work_mem=1"), Ok(()));
            assert_eq!(request, SessionRequest::default());
        }
    }

    /// A session can set any parameter on its server; a client that shares one must be refused by
    /// the same words as before.
    #[test]
    fn other_parameters_are_kept_with_the_words_of_their_refusal() {
        let rules = StartupRules {
            passes_others: true,
            ..rules()
        };
        let mut request = SessionRequest::default();
        let read = rules.read_options(&mut request, b"-c work_mem=1 --my.own=x -c datestyle=ISO");
        assert_eq!(read, Ok(()));
        let others = request.others.iter().map(|(name, _)| name.as_str());
        assert_eq!(others.collect::<Vec<_>>(), ["work_mem", "my.own"]);
        let refusal = "unsupported startup parameter in options: work_mem";
        assert_eq!(request.refusal_of_others.as_deref(), Some(refusal));
        let odd = rules.read_options(&mut SessionRequest::default(), b"-c a'b=1");
        assert!(odd.is_err(), "it is the name of no parameter");
    }
}
