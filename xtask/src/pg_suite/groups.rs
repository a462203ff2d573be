//! Which test of the suite is in which group: a table of names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use xtask_common::args::Usage;

/// The table.
const TABLE: &str = include_str!("groups.toml");

/// How much a test matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// It must pass.
    Core,
    /// It should pass.
    Later,
    /// It is not run, for a reason.
    Excluded,
}

impl Group {
    /// The groups that the command line names.
    pub(super) fn chosen(name: &str) -> Result<Vec<Group>, Usage> {
        match name {
            "core" => Ok(vec![Group::Core]),
            "later" => Ok(vec![Group::Later]),
            "all" => Ok(vec![Group::Core, Group::Later]),
            _ => Err(Usage(format!(
                "there is no group `{name}`; they are core, later and all"
            ))),
        }
    }

    /// As the table and the report call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Group::Core => "core",
            Group::Later => "later",
            Group::Excluded => "excluded",
        }
    }
}

/// The group of each test, by `FILE::NAME`.
#[derive(Debug)]
pub(super) struct Groups(BTreeMap<String, Group>);

impl Groups {
    /// Reads the table.
    pub(super) fn of_this_tree() -> Result<Groups, String> {
        let table: toml::Table = TABLE
            .parse()
            .map_err(|error| format!("groups.toml: {error}"))?;
        let mut groups = Groups(BTreeMap::new());
        for group in [Group::Core, Group::Later, Group::Excluded] {
            let entry = table.get(group.name());
            let entry = entry.ok_or(format!("groups.toml has no group {}", group.name()))?;
            groups.add(group, entry)?;
        }
        Ok(groups)
    }

    /// Adds a table of files, or a list of such tables.
    fn add(&mut self, group: Group, entry: &toml::Value) -> Result<(), String> {
        match entry {
            toml::Value::Array(parts) => parts.iter().try_for_each(|part| self.add(group, part)),
            toml::Value::Table(files) => {
                let files = files.iter().filter(|(file, _)| file.ends_with(".py"));
                files
                    .into_iter()
                    .try_for_each(|(file, names)| self.add_file(group, file, names))
            }
            _ => Err(format!("groups.toml: {} is no table", group.name())),
        }
    }

    fn add_file(&mut self, group: Group, file: &str, names: &toml::Value) -> Result<(), String> {
        let names = names
            .as_array()
            .ok_or(format!("groups.toml: {file} is no list"))?;
        for name in names.iter().filter_map(toml::Value::as_str) {
            let test = format!("{file}::{name}");
            if self.0.insert(test.clone(), group).is_some() {
                return Err(format!("groups.toml names {test} twice"));
            }
        }
        Ok(())
    }

    /// The group of a test.
    pub(super) fn group(&self, test: &str) -> Option<Group> {
        self.0.get(test).copied()
    }

    /// All tests of a group.
    pub(super) fn of(&self, group: Group) -> impl Iterator<Item = &str> {
        let of_group = self.0.iter().filter(move |(_, of)| **of == group);
        of_group.map(|(test, _)| test.as_str())
    }
}

/// The tests that the files of the suite define.
pub(super) fn tests_in(folder: &Path) -> Result<BTreeSet<String>, String> {
    let wrong = |error| format!("{}: {error}", folder.display());
    let mut tests = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if file.starts_with("test_") && file.ends_with(".py") {
            let text = fs::read_to_string(&path).map_err(wrong)?;
            tests.extend(defined(&text).map(|name| format!("{file}::{name}")));
        }
    }
    if tests.is_empty() {
        return Err(format!("{}: no tests", folder.display()));
    }
    Ok(tests)
}

/// The test functions of a file: a fixture may have such a name too.
fn defined(text: &str) -> impl Iterator<Item = &str> {
    let before = std::iter::once("").chain(text.lines());
    text.lines().zip(before).filter_map(|(line, before)| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let (name, _) = line.strip_prefix("def ")?.split_once('(')?;
        let is_test = name.starts_with("test_") && !before.starts_with("@pytest.fixture");
        is_test.then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums are those of the list that the groups were made from; parameter sets count apart.
    #[test]
    fn the_table_is_whole() {
        let groups = Groups::of_this_tree().expect("the table");
        let count = |group| groups.of(group).count();
        assert_eq!(count(Group::Core), 145);
        assert_eq!((count(Group::Later), count(Group::Excluded)), (72, 31));
        assert_eq!(groups.group("test_admin.py::test_show"), Some(Group::Core));
        assert_eq!(
            groups.group("test_peering.py::test_rolling_restart_admin"),
            Some(Group::Excluded)
        );
        assert_eq!(groups.group("test_admin.py::test_none"), None);
    }

    #[test]
    fn test_functions_are_found() {
        let text = "def test_a(x):\nasync def test_b():\n    def test_inner():\ndef helper():\n\
            @pytest.fixture\ndef test_fixture():\n";
        assert_eq!(defined(text).collect::<Vec<_>>(), ["test_a", "test_b"]);
    }
}
