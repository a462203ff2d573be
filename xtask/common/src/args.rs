//! The words after a verb: options are taken out one by one, and what is left must be expected.

use std::time::Duration;

/// The words after a verb's name that are not taken yet.
#[derive(Debug)]
pub struct Args {
    /// In the order in which they were typed.
    words: Vec<String>,
}

/// A wrong command line, with what is wrong about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage(pub String);

impl Usage {
    /// The same complaint, with the verb it is about and where to find help.
    pub fn of(self, verb: &str) -> Usage {
        Usage(format!(
            "{verb}: {}. `cargo xtask {verb} --help` explains it.",
            self.0
        ))
    }
}

impl Args {
    /// The words that follow a verb.
    pub fn new(words: Vec<String>) -> Args {
        Args { words }
    }

    /// Takes an option without a value; returns whether it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// Takes `NAME N` or `NAME=N`; `default` if it is absent. `1_000_000` is a number too.
    pub fn number(&mut self, name: &str, default: u64) -> Result<u64, Usage> {
        let Some(value) = self.value(name)? else {
            return Ok(default);
        };
        let digits = value.replace('_', "");
        digits
            .parse()
            .map_err(|_| Usage(format!("`{name}` wants a number, not `{value}`")))
    }

    /// Takes a number of seconds.
    pub fn seconds(&mut self, name: &str, default: Duration) -> Result<Duration, Usage> {
        let seconds = self.number(name, default.as_secs())?;
        Ok(Duration::from_secs(seconds))
    }

    /// The names that are left; an option among them is unknown.
    pub fn names(self) -> Result<Vec<String>, Usage> {
        match self.words.iter().find(|word| word.starts_with('-')) {
            Some(option) => Err(Usage(format!("there is no option `{option}`"))),
            None => Ok(self.words),
        }
    }

    /// All words, for a program that judges them itself.
    pub fn all(&self) -> &[String] {
        &self.words
    }

    /// The one filter that may be left; empty, which everything contains, if there is none.
    pub fn filter(self) -> Result<String, Usage> {
        let mut names = self.names()?;
        let first = names.pop().unwrap_or_default();
        if names.is_empty() {
            Ok(first)
        } else {
            Err(Usage(format!("one filter at most, not also `{first}`")))
        }
    }

    /// Nothing may be left.
    pub fn nothing(self) -> Result<(), Usage> {
        match self.names()?.first() {
            Some(word) => Err(Usage(format!("`{word}` is not expected"))),
            None => Ok(()),
        }
    }

    /// Takes the value of an option, whichever way it is written.
    pub fn value(&mut self, name: &str) -> Result<Option<String>, Usage> {
        let joined = format!("{name}=");
        let is_it = |word: &String| word == name || word.starts_with(&joined);
        let Some(at) = self.words.iter().position(is_it) else {
            return Ok(None);
        };
        let word = self.words.remove(at);
        if let Some(value) = word.strip_prefix(&joined) {
            return Ok(Some(value.to_owned()));
        }
        if at == self.words.len() {
            return Err(Usage(format!("`{name}` wants a value")));
        }
        Ok(Some(self.words.remove(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of a command line.
    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn both_ways_to_write_a_value_are_read() {
        assert_eq!(args("--bound 3 x").number("--bound", 2), Ok(3));
        assert_eq!(
            args("--messages=1_000_000").number("--messages", 2),
            Ok(1_000_000)
        );
        assert_eq!(args("x").number("--bound", 2), Ok(2));
    }

    #[test]
    fn a_value_that_is_missing_or_no_number_is_told() {
        assert!(args("x --bound").number("--bound", 2).is_err());
        assert!(args("--bound many").number("--bound", 2).is_err());
    }

    #[test]
    fn what_nobody_took_is_told() {
        assert!(args("--speed").names().is_err());
        assert!(args("one two").filter().is_err());
        assert!(args("one").nothing().is_err());
        assert_eq!(args("one").filter(), Ok("one".to_owned()));
        assert_eq!(args("").filter(), Ok(String::new()));
    }
}
