//! How levels are named and built.

use std::io;

use super::{Level, Levels};
use crate::pool::{Builder, Pool};

/// Names the levels, and says what each is made of.
#[must_use]
#[derive(Debug, Default)]
pub struct LevelsBuilder {
    levels: Vec<(String, Builder)>,
}

impl LevelsBuilder {
    /// One more level. Its threads are called after it, whatever the settings say.
    pub fn level(mut self, name: impl Into<String>, settings: Builder) -> Self {
        let name = name.into();
        let settings = settings.name(name.clone());
        self.levels.push((name, settings));
        self
    }

    /// Builds all of them, and spawns their threads.
    ///
    /// # Errors
    /// `InvalidInput` if there is no level, or two of one name; otherwise as [`Builder::build`], with the name of the
    /// level. None is left then.
    pub fn build(self) -> io::Result<Levels> {
        self.judge()?;
        let levels: io::Result<Vec<_>> = self.levels.into_iter().map(build_one).collect();
        Ok(Levels { levels: levels? })
    }

    fn judge(&self) -> io::Result<()> {
        let names = || self.levels.iter().map(|(name, _)| name);
        let twice = names().find(|name| names().filter(|other| other == name).count() > 1);
        let wrong = match (self.levels.is_empty(), twice) {
            (true, _) => "there is none".to_owned(),
            (false, Some(name)) => format!("level({name:?}): two have this name"),
            (false, None) => return Ok(()),
        };
        let text = format!("build levels: {wrong}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

fn build_one((name, settings): (String, Builder)) -> io::Result<(Level, Pool)> {
    match settings.build() {
        Ok(pool) => Ok((pool.as_level(&name), pool)),
        Err(error) => {
            let text = format!("level {name:?}: {error}");
            Err(io::Error::new(error.kind(), text))
        }
    }
}
