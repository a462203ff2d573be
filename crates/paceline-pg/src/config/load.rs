//! Loads a configuration from its files.

use std::{io, sync::Arc};

use super::{
    entry::Remark,
    error::{Error, Faulty, Problem, Reason},
    hba::{self, Rules},
    ini::{self, Item, Line},
    keys::{Key, Outcome},
    userlist::Userlist,
    Config, Database, Place, User, CONSOLE,
};

/// Reads the file with this name.
pub type ReadFile<'f> = dyn FnMut(&str) -> io::Result<Vec<u8>> + 'f;

/// How deep files may include each other.
const MOST_INCLUDES: u32 = 10;

/// The most errors that are listed. A file with more of them is no configuration.
const MOST_ERRORS: usize = 100;

/// Reads the configuration in `file`, and the files that it includes.
///
/// # Errors
/// Every line that is wrong, and every file that can't be read.
pub fn load(file: &str, read: &mut ReadFile<'_>) -> Result<Config, Box<Faulty>> {
    let mut loader = Loader {
        config: Config::default(),
        errors: Vec::new(),
        section: None,
        has_main: false,
        depth: 0,
        is_too_deep: false,
        read,
    };
    let name: Arc<str> = file.into();
    if let Err(reason) = loader.file(&name) {
        loader.errors.push(Problem::new(&name, 0, "", reason));
    } else if loader.errors.is_empty() && !loader.has_main {
        let reason = Reason::NoMainSection;
        loader.errors.push(Problem::new(&name, 0, "", reason));
    }
    let Loader { config, errors, .. } = loader;
    if errors.is_empty() {
        Ok(config)
    } else {
        Err(Box::new(Faulty { errors, config }))
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
/// The file can't be read, or lines are wrong.
pub fn load_hba(file: &str, read: &mut ReadFile<'_>) -> Result<Rules, Error> {
    let bytes = read(file).map_err(|error| Error::Read(file.into(), error))?;
    Rules::read(file, &bytes).map_err(Error::Lines)
}

#[derive(Clone, Copy, Debug)]
enum Section {
    Main,
    Databases,
    Users,
    Peers,
    /// Its keys mean nothing: the section itself is the error.
    Unknown,
}

struct Loader<'r, 'f> {
    config: Config,
    errors: Vec<Problem>,
    /// The present section. It continues behind an included file, which may also begin another one.
    section: Option<Section>,
    has_main: bool,
    depth: u32,
    /// Files include each other: nothing more is read.
    is_too_deep: bool,
    read: &'r mut ReadFile<'f>,
}

impl Loader<'_, '_> {
    /// Reads a file. Wrong lines are among the errors afterwards.
    ///
    /// # Errors
    /// The file can't be read.
    fn file(&mut self, file: &Arc<str>) -> Result<(), Reason> {
        let unreadable = |error: io::Error| Reason::Unreadable(error.to_string().into());
        let bytes = (self.read)(file).map_err(unreadable)?;
        let (text, broken) = text_of(&bytes);
        for line in ini::lines(text) {
            if self.is_too_deep || self.errors.len() >= MOST_ERRORS {
                return Ok(());
            }
            self.line(file, line);
        }
        if let Some(line) = broken {
            let reason = Reason::Syntax(hba::NOT_UTF8);
            self.errors.push(Problem::new(file, line, "", reason));
        }
        Ok(())
    }

    fn line(&mut self, file: &Arc<str>, line: Line<'_>) {
        let problem = |(key, reason): Remark| Problem::new(file, line.number, &key, reason);
        let read = match line.item {
            Item::Include(included) => self.include(included),
            Item::Section(name) => self.enter(name),
            Item::Entry(key, value) => self.entry(&key.unquoted(), value, file, line.number),
            Item::Broken(what) => Err(("".into(), Reason::Syntax(what))),
        };
        match read {
            Ok(warnings) => {
                let warnings = warnings.into_iter().map(problem);
                self.config.warnings.extend(warnings);
            }
            Err(error) => self.errors.push(problem(error)),
        }
    }

    fn include(&mut self, file: &str) -> Result<Vec<Remark>, Remark> {
        let here = |reason| (Box::from(file), reason);
        if self.depth == MOST_INCLUDES {
            self.is_too_deep = true;
            return Err(here(Reason::Syntax("files include each other too deep")));
        }
        self.depth += 1;
        let read = self.file(&Arc::from(file));
        self.depth -= 1;
        read.map_err(here).map(|()| Vec::new())
    }

    /// Begins a section, and returns the warnings about it.
    fn enter(&mut self, name: &str) -> Result<Vec<Remark>, Remark> {
        let section = match name {
            "pgbouncer" => Section::Main,
            "databases" => Section::Databases,
            "users" => Section::Users,
            "peers" => Section::Peers,
            _ => Section::Unknown,
        };
        self.section = Some(section);
        let is_main = matches!(section, Section::Main);
        let is_repeated = is_main && self.has_main;
        self.has_main |= is_main;
        let here = |reason| (Box::from(name), reason);
        match section {
            Section::Unknown => Err(here(Reason::UnknownSection)),
            _ if is_repeated => Ok(vec![here(Reason::Repeated)]),
            _ => Ok(Vec::new()),
        }
    }

    /// Takes a key, and returns the warnings about it.
    fn entry(
        &mut self,
        key: &str,
        value: &str,
        file: &Arc<str>,
        line: u32,
    ) -> Result<Vec<Remark>, Remark> {
        let here = |reason| (Box::from(key), reason);
        let Some(section) = self.section else {
            // That is said once.
            self.section = Some(Section::Unknown);
            return Err(here(Reason::Syntax("a key before any section")));
        };
        match section {
            Section::Main => {
                let place = Place {
                    file: Arc::clone(file),
                    line,
                };
                let warning = self.setting(key, value, place).map_err(here)?;
                Ok(warning.map(here).into_iter().collect())
            }
            Section::Databases => {
                self.database(key, value)?;
                let place = Place {
                    file: Arc::clone(file),
                    line,
                };
                self.config.entries.insert(key.into(), place);
                Ok(Vec::new())
            }
            Section::Users => {
                let user = User::read(key, value).map_err(|inner| within("users", key, inner))?;
                self.config.users.insert(key.into(), Arc::new(user));
                Ok(Vec::new())
            }
            Section::Peers => {
                let why = "one process uses all cores, so there are no peers";
                Err(here(Reason::Refused(why)))
            }
            Section::Unknown => Ok(Vec::new()),
        }
    }

    fn setting(&mut self, key: &str, value: &str, place: Place) -> Result<Option<Reason>, Reason> {
        let found = Key::find(key).ok_or(Reason::UnknownKey)?;
        self.config.places.insert(found.name, place);
        match found.read(&mut self.config.settings, value)? {
            Outcome::NoEffect(why) => Ok(Some(Reason::NoEffect(why))),
            Outcome::Set | Outcome::NeedsRestart => Ok(None),
        }
    }

    fn database(&mut self, name: &str, text: &str) -> Result<(), Remark> {
        if name == CONSOLE {
            let why = "the name is that of the console";
            return Err((name.into(), Reason::Refused(why)));
        }
        let full = |inner| within("databases", name, inner);
        let database = Database::read(name, text).map_err(full)?;
        let database = Arc::new(database);
        if name == "*" {
            self.config.autodb = Some(database);
        } else {
            self.config.databases.insert(name.into(), database);
        }
        Ok(())
    }
}

/// The text up to the first line that is not UTF-8, and that line.
fn text_of(bytes: &[u8]) -> (&str, Option<u32>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let line = hba::line_of(bytes, error.valid_up_to());
            let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let end = good.rfind('\n').unwrap_or(0);
            (&good[..end], Some(line))
        }
    }
}

/// Names the key of an entry in full.
fn within(section: &str, entry: &str, (key, reason): Remark) -> Remark {
    let full = format!("[{section}] {entry}: {key}");
    (full.trim_end_matches([':', ' ']).into(), reason)
}
