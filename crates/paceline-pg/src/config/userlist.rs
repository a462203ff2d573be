//! The file of users and their secrets: lines of `"user" "secret"`.

use std::{fmt, sync::Arc};

use super::error::{Problem, Reason};

/// A user of `auth_file`.
#[derive(Clone, PartialEq, Eq)]
pub struct UserSecret {
    /// The user's name.
    pub name: Box<[u8]>,
    /// The password, its MD5 hash, or its SCRAM verifier, as the file has it.
    pub secret: Box<[u8]>,
}

/// Omits the secret.
impl fmt::Debug for UserSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserSecret")
            .field(&String::from_utf8_lossy(&self.name))
            .finish()
    }
}

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Userlist {
    /// The users in the order of the file. Of several with one name, the last one takes effect.
    pub users: Vec<UserSecret>,
    /// The line that ended the reading. The users before it take effect.
    pub broken: Option<Problem>,
}

impl Userlist {
    /// Reads the bytes of the file with this name.
    #[must_use]
    pub fn read(file: &str, bytes: &[u8]) -> Self {
        let mut list = Self::default();
        let mut rest = bytes;
        while let Some(text) = next_entry(rest) {
            match entry(text) {
                Ok((user, behind)) => {
                    list.users.push(user);
                    rest = behind;
                }
                Err(what) => {
                    list.broken = Some(problem(file, bytes, text, what));
                    break;
                }
            }
        }
        list
    }
}

fn problem(file: &str, bytes: &[u8], rest: &[u8], what: &'static str) -> Problem {
    let before = &bytes[..bytes.len() - rest.len()];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let line = u32::try_from(line).unwrap_or(u32::MAX);
    Problem::new(&Arc::from(file), line, "", Reason::Syntax(what))
}

/// Skips white space and comments; `None` at the end.
fn next_entry(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.trim_ascii_start();
    while rest.first() == Some(&b';') {
        rest = behind_line(rest).trim_ascii_start();
    }
    (!rest.is_empty()).then_some(rest)
}

fn behind_line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map_or(&[], |end| &bytes[end + 1..])
}

/// The user at the start of `bytes`, and the next line.
fn entry(bytes: &[u8]) -> Result<(UserSecret, &[u8]), &'static str> {
    let (name, rest) = quoted(bytes).ok_or("expected a user name in double quotes")?;
    let (secret, rest) = quoted(rest).ok_or("expected a secret in double quotes")?;
    Ok((UserSecret { name, secret }, behind_line(rest)))
}

/// The text in double quotes at the start of `bytes`, and what follows it.
fn quoted(bytes: &[u8]) -> Option<(Box<[u8]>, &[u8])> {
    let mut rest = bytes.trim_ascii_start().strip_prefix(b"\"")?;
    let mut text = Vec::new();
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'"' | 0))?;
        text.extend_from_slice(&rest[..end]);
        if rest[end] == 0 {
            return None;
        }
        match rest[end + 1..].strip_prefix(b"\"") {
            Some(more) => {
                text.push(b'"');
                rest = more;
            }
            None => return Some((text.into(), &rest[end + 1..])),
        }
    }
}
