//! How levels are named and built.

use std::io;

use super::{Level, Levels};
use crate::{
    errors::{attempted, judged},
    pool::{Builder, Pool},
};

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
    /// `InvalidInput` if there is no level, or two of one name; the text names all of these.
    /// Otherwise as [`Builder::build`], with the name of the level. No pool is left then.
    pub fn build(self) -> io::Result<Levels> {
        self.judge()?;
        let levels: io::Result<Vec<_>> = self.levels.into_iter().map(build_one).collect();
        Ok(Levels { levels: levels? })
    }

    fn judge(&self) -> io::Result<()> {
        let mut wrong = Vec::new();
        if self.levels.is_empty() {
            wrong.push("there is none".to_owned());
        }
        for (place, (name, _)) in self.levels.iter().enumerate() {
            let before = &self.levels[..place];
            if before.iter().any(|(other, _)| other == name) {
                wrong.push(format!("level({name:?}): two have this name"));
            }
        }
        judged("build levels", &wrong)
    }
}

fn build_one((name, settings): (String, Builder)) -> io::Result<(Level, Pool)> {
    match settings.build() {
        Ok(pool) => Ok((pool.as_level(name), pool)),
        Err(error) => Err(attempted(format_args!("level {name:?}"), error)),
    }
}
