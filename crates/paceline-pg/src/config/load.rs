//! Loads a configuration from its files.

use std::{io, sync::Arc};

use super::{
    entry::Remark,
    error::{Error, Problem, Reason},
    hba::{self, Rules},
    ini::{self, Item, Line},
    keys::{Key, Outcome},
    userlist::Userlist,
    Config, Database, User, CONSOLE,
};

/// Reads the file with this name.
pub type ReadFile<'f> = dyn FnMut(&str) -> io::Result<Vec<u8>> + 'f;

/// How deep files may include each other.
const MOST_INCLUDES: u32 = 10;

/// Reads the configuration in `file`, and the files that it includes.
///
/// # Errors
/// A file can't be read, or a line is wrong: the first such line.
pub fn load(file: &str, read: &mut ReadFile<'_>) -> Result<Config, Error> {
    let mut loader = Loader {
        config: Config::default(),
        section: None,
        has_main: false,
        depth: 0,
        read,
    };
    loader.file(file)?;
    if loader.has_main {
        Ok(loader.config)
    } else {
        Err(Error::NoMainSection(file.into()))
    }
}

/// Reads `auth_file`.
///
/// # Errors
/// The file can't be read. A broken line is part of the result, with the users before it.
pub fn load_userlist(file: &str, read: &mut ReadFile<'_>) -> Result<Userlist, Error> {
    let bytes = read(file).map_err(|error| Error::Read(file.into(), error))?;
    Ok(Userlist::read(file, &bytes))
}

/// Reads `auth_hba_file`.
///
/// # Errors
/// The file can't be read, or a line is wrong: the first such line.
pub fn load_hba(file: &str, read: &mut ReadFile<'_>) -> Result<Rules, Error> {
    let bytes = read(file).map_err(|error| Error::Read(file.into(), error))?;
    Ok(Rules::read(file, &bytes)?)
}

#[derive(Clone, Copy, Debug)]
enum Section {
    Main,
    Databases,
    Users,
    Peers,
}

struct Loader<'r, 'f> {
    config: Config,
    /// The present section. It continues behind an included file, which may also begin another one.
    section: Option<Section>,
    has_main: bool,
    depth: u32,
    read: &'r mut ReadFile<'f>,
}

impl Loader<'_, '_> {
    fn file(&mut self, file: &str) -> Result<(), Error> {
        let bytes = (self.read)(file).map_err(|error| Error::Read(file.into(), error))?;
        let name: Arc<str> = file.into();
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = hba::line_of(&bytes, error.valid_up_to());
            Problem::new(&name, line, "", Reason::Syntax(hba::NOT_UTF8))
        })?;
        for line in ini::lines(text) {
            self.line(&name, line)?;
        }
        Ok(())
    }

    fn line(&mut self, file: &Arc<str>, line: Line<'_>) -> Result<(), Error> {
        let problem = |key: &str, reason| Problem::new(file, line.number, key, reason);
        match line.item {
            Item::Include(included) if self.depth == MOST_INCLUDES => Err(problem(
                included,
                Reason::Syntax("files include each other too deep"),
            )
            .into()),
            Item::Include(included) => self.include(included),
            Item::Section(name) => {
                let warning = self.enter(name).map_err(|reason| problem(name, reason))?;
                self.config
                    .warnings
                    .extend(warning.map(|reason| problem(name, reason)));
                Ok(())
            }
            Item::Entry(key, value) => {
                let key = key.unquoted();
                let remark = |(key, reason): Remark| problem(&key, reason);
                let warnings = self.entry(&key, value).map_err(remark)?;
                self.config
                    .warnings
                    .extend(warnings.into_iter().map(remark));
                Ok(())
            }
            Item::Broken(what) => Err(problem("", Reason::Syntax(what)).into()),
        }
    }

    fn include(&mut self, file: &str) -> Result<(), Error> {
        self.depth += 1;
        let read = self.file(file);
        self.depth -= 1;
        read
    }

    /// Begins a section. `Ok(Some)` is a warning.
    fn enter(&mut self, name: &str) -> Result<Option<Reason>, Reason> {
        let section = match name {
            "pgbouncer" => Section::Main,
            "databases" => Section::Databases,
            "users" => Section::Users,
            "peers" => Section::Peers,
            _ => return Err(Reason::UnknownSection),
        };
        self.section = Some(section);
        let is_main = matches!(section, Section::Main);
        let is_repeated = is_main && self.has_main;
        self.has_main |= is_main;
        Ok(is_repeated.then_some(Reason::Repeated))
    }

    /// Takes a key, and returns the warnings about it.
    fn entry(&mut self, key: &str, value: &str) -> Result<Vec<Remark>, Remark> {
        let here = |reason| (Box::from(key), reason);
        let section = self.section;
        let section = section.ok_or(here(Reason::Syntax("a key before any section")))?;
        match section {
            Section::Main => {
                let warning = self.setting(key, value).map_err(here)?;
                Ok(warning.map(here).into_iter().collect())
            }
            Section::Databases => self.database(key, value),
            Section::Users => {
                let user = User::read(key, value).map_err(|inner| within("users", key, inner))?;
                self.config.users.insert(key.into(), Arc::new(user));
                Ok(Vec::new())
            }
            Section::Peers => {
                let why = "one process uses all cores, so there are no peers";
                Err(here(Reason::Refused(why)))
            }
        }
    }

    fn setting(&mut self, key: &str, value: &str) -> Result<Option<Reason>, Reason> {
        let found = Key::find(key).ok_or(Reason::UnknownKey)?;
        match found.read(&mut self.config.settings, value)? {
            Outcome::NoEffect(why) => Ok(Some(Reason::NoEffect(why))),
            Outcome::Set | Outcome::NeedsRestart => Ok(None),
        }
    }

    fn database(&mut self, name: &str, text: &str) -> Result<Vec<Remark>, Remark> {
        if name == CONSOLE {
            let why = "the name is that of the console";
            return Err((name.into(), Reason::Refused(why)));
        }
        let full = |inner| within("databases", name, inner);
        let (database, warnings) = Database::read(name, text).map_err(full)?;
        let database = Arc::new(database);
        if name == "*" {
            self.config.autodb = Some(database);
        } else {
            self.config.databases.insert(name.into(), database);
        }
        Ok(warnings.into_iter().map(full).collect())
    }
}

/// Names the key of an entry in full.
fn within(section: &str, entry: &str, (key, reason): Remark) -> Remark {
    let full = format!("[{section}] {entry}: {key}");
    (full.trim_end_matches([':', ' ']).into(), reason)
}
