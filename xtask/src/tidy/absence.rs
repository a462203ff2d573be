//! The invariants of absence: which module knows nothing of which. Only code counts; a comment may explain.

use crate::rust_text::{code_only, contains_word, is_word_char};
use crate::tree::Tree;

use super::Offence;

/// A module and what its code may not mention.
struct Rule {
    /// The module, as a path without `.rs`: the file of this name and everything in the folder. Or a crate.
    module: &'static str,
    /// What is absent, in groups.
    absent: &'static [&'static [Mention]],
}

/// A way to mention something.
enum Mention {
    /// As a word of its own.
    Word(&'static str),
    /// Also as a part of a longer word.
    Part(&'static str),
    /// As an item of a crate, written out or in braces: `std::thread` and `use std::{fmt, thread}`.
    Item(&'static str, &'static str),
}

use Mention::{Item, Part, Word};

/// No input, output or threads of its own; `std::io` may be there for its errors.
const SYSTEM: &[Mention] = &[
    Item("std", "net"),
    Item("std", "os"),
    Item("std", "fs"),
    Item("std", "thread"),
];
/// Not even the errors of input and output.
const IO: &[Mention] = &[Item("std", "io")];
/// No points in time and no spans of it.
const TIME: &[Mention] = &[Item("std", "time")];
/// No clock; spans of time are values.
const CLOCK: &[Mention] = &[Word("Instant"), Word("SystemTime")];
/// No pool.
const PACELINE: &[Mention] = &[Word("paceline")];
/// What the codecs of `paceline-server` are for.
const SERVER: &[Mention] = &[
    Item("crate", "peer"),
    Item("crate", "session"),
    Item("crate", "times"),
];
/// What joins the passive parts of `paceline-pg`.
const FRONT: &[Mention] = &[Item("crate", "front"), Item("crate", "protocol")];
/// What joins the passive parts of `paceline-sqlite`.
const BACK: &[Mention] = &[
    Item("crate", "session"),
    Item("crate", "store"),
    Item("crate", "server"),
];

/// The rules.
const RULES: &[Rule] = &[
    Rule {
        module: "crates/paceline/src/promotion",
        absent: &[&[
            Word("handle_set"),
            Word("dispatch"),
            Part("RawFd"),
            Part("epoll"),
            Item("crate", "pool"),
        ]],
    },
    Rule {
        module: "crates/paceline/src/handle_set",
        absent: &[&[
            Word("promotion"),
            Word("dispatch"),
            Item("crate", "pool"),
            Item("std", "thread"),
        ]],
    },
    Rule {
        module: "crates/paceline/src/dispatch",
        absent: &[&[
            Word("promotion"),
            Item("crate", "pool"),
            Item("crate", "turn"),
        ]],
    },
    Rule {
        module: "crates/paceline/src/timer",
        absent: &[&[
            Word("promotion"),
            Word("dispatch"),
            Word("handle_set"),
            Item("crate", "pool"),
        ]],
    },
    Rule {
        module: "crates/paceline",
        absent: &[&[
            Word("paceline_server"),
            Word("paceline_bench"),
            Word("rustls"),
        ]],
    },
    Rule {
        module: "crates/paceline-server/src/codec",
        absent: &[SYSTEM, TIME, PACELINE, SERVER],
    },
    Rule {
        module: "crates/paceline-server/src/websocket",
        absent: &[SYSTEM, IO, TIME, PACELINE, SERVER],
    },
    Rule {
        module: "crates/paceline-server/src/sse",
        absent: &[SYSTEM, IO, CLOCK, PACELINE, SERVER],
    },
    Rule {
        module: "crates/paceline-server/src/http/protocol",
        absent: &[
            &[Word("TcpStream"), Word("SystemTime")],
            IO,
            &[Item("std", "os"), Item("std", "fs"), Item("std", "thread")],
            TIME,
            PACELINE,
            SERVER,
        ],
    },
    Rule {
        module: "crates/paceline-server/src/times",
        absent: &[SYSTEM, IO, CLOCK, PACELINE, &[Item("crate", "codec")]],
    },
    Rule {
        module: "crates/paceline-server/src/tls/layer",
        absent: &[SYSTEM, TIME, &[Word("socket2")], PACELINE],
    },
    Rule {
        module: "crates/paceline-pg-wire/src",
        absent: &[
            SYSTEM,
            TIME,
            &[Word("Read"), Word("Write"), Word("rand")],
            PACELINE,
        ],
    },
    Rule {
        module: "crates/paceline-pg/src/login",
        absent: &[SYSTEM, CLOCK, PACELINE, FRONT],
    },
    Rule {
        module: "crates/paceline-pg/src/pools",
        absent: &[SYSTEM, CLOCK, PACELINE, FRONT],
    },
    Rule {
        module: "crates/paceline-pg/src/hosts",
        absent: &[SYSTEM, CLOCK, PACELINE, FRONT],
    },
    Rule {
        module: "crates/paceline-pg/src/protocol",
        absent: &[
            SYSTEM,
            IO,
            TIME,
            PACELINE,
            &[
                Item("crate", "front"),
                Item("crate", "pools"),
                Item("crate", "login"),
                Item("crate", "hosts"),
            ],
        ],
    },
    Rule {
        module: "crates/paceline-sqlite/src/dialect",
        absent: &[SYSTEM, IO, TIME, &[Word("rusqlite")], PACELINE, BACK],
    },
    Rule {
        module: "crates/paceline-sqlite/src/types",
        absent: &[SYSTEM, IO, PACELINE, BACK],
    },
    Rule {
        module: "crates/paceline-sqlite/src/store",
        absent: &[&[
            Item("std", "net"),
            Item("crate", "session"),
            Item("crate", "server"),
        ]],
    },
];

/// Finds what a module should not know.
pub(super) fn find(tree: &Tree) -> Vec<Offence> {
    RULES.iter().flat_map(|rule| rule.find(tree)).collect()
}

impl Rule {
    /// Finds what this module should not know.
    fn find(&self, tree: &Tree) -> Vec<Offence> {
        let mut offences = Vec::new();
        for (path, text) in tree
            .texts_ending(".rs")
            .filter(|(path, _)| self.covers(path))
        {
            let code = code_only(text);
            for mention in self.absent.iter().copied().flatten() {
                let message = format!("this module knows nothing of `{}`", mention.name());
                let lines = mention.lines(&code).into_iter();
                offences.extend(lines.map(|line| Offence::new(path, line, message.clone())));
            }
        }
        offences
    }

    /// Whether a file belongs to the module.
    fn covers(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.module);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }
}

impl Mention {
    /// The numbers of the lines that mention it.
    fn lines(&self, code: &str) -> Vec<usize> {
        let matching = |holds: &dyn Fn(&str) -> bool| {
            let lines = code.lines().enumerate().filter(|(_, line)| holds(line));
            lines.map(|(index, _)| index + 1).collect()
        };
        match self {
            Word(word) => matching(&|line| contains_word(line, word)),
            Part(part) => matching(&|line| line.contains(part)),
            Item(root, item) => item_lines(code, root, item),
        }
    }

    /// As one would write it.
    fn name(&self) -> String {
        match self {
            Word(name) | Part(name) => (*name).to_owned(),
            Item(root, item) => format!("{root}::{item}"),
        }
    }
}

/// The lines with a path from `root` to `item`. `super` may lead to the same place as `crate`.
fn item_lines(code: &str, root: &str, item: &str) -> Vec<usize> {
    let mut roots = vec![format!("{root}::")];
    if root == "crate" {
        roots.push("super::".to_owned());
    }
    let ends = roots
        .iter()
        .flat_map(|root| code.match_indices(root).map(|(at, _)| at + root.len()));
    let mentions = ends.filter(|at| first_names(&code[*at..]).contains(&item));
    mentions.map(|at| code[..at].lines().count()).collect()
}

/// The names that directly follow a `::`: one, or each first one inside braces.
pub(super) fn first_names(after: &str) -> Vec<&str> {
    let after = after.trim_start();
    match after.strip_prefix('{') {
        Some(group) => group_items(group).into_iter().map(first_name).collect(),
        None => vec![first_name(after)],
    }
}

/// The items between braces, split at the commas that stand in no inner braces.
fn group_items(group: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' | ',' if depth == 0 => {
                items.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if c == '}' && start == at + 1 {
            break;
        }
    }
    items
}

/// The name at the beginning of a text.
fn first_name(text: &str) -> &str {
    let text = text.trim_start();
    text.split(|c| !is_word_char(c)).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    /// The offending lines of a file.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        let path = format!("crates/paceline/src/{path}");
        let found = find(&tree(&[(&path, text)]));
        found.into_iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn a_module_is_its_file_and_its_folder() {
        for path in [
            "promotion.rs",
            "promotion/mod.rs",
            "promotion/word/tests.rs",
        ] {
            assert_eq!(
                lines(path, "\nuse crate::handle_set::Set;\n"),
                [2],
                "{path}"
            );
        }
        assert!(lines("promotion_notes.rs", "use crate::handle_set::Set;\n").is_empty());
    }

    /// The name of the server's crate begins with the core's.
    #[test]
    fn the_core_knows_no_layer_above_it() {
        let text = "use paceline_server::Server;\n";
        for (path, offences) in [
            ("crates/paceline/src/lib.rs", 1),
            ("crates/paceline/tests/promises.rs", 1),
            ("crates/paceline-server/examples/chat.rs", 0),
        ] {
            assert_eq!(find(&tree(&[(path, text)])).len(), offences, "{path}");
        }
    }

    #[test]
    fn what_does_no_io_reads_no_clock_either() {
        let found = |path: &str, text| {
            let path = format!("crates/paceline-server/src/{path}");
            find(&tree(&[(&path, text)])).len()
        };
        let read = "use std::{io, time::{Duration, Instant}};\n";
        assert_eq!(found("codec/line.rs", read), 1);
        assert_eq!(
            found("times.rs", "use std::time::{Duration, Instant};\n"),
            1
        );
        assert_eq!(found("times.rs", "use std::time::Duration;\n"), 0);
        assert_eq!(found("tls/layer.rs", "use std::net::TcpStream;\n"), 1);
        assert_eq!(found("tls/certificates.rs", "use std::fs;\n"), 0);
    }

    #[test]
    fn comments_and_strings_may_explain() {
        assert!(lines(
            "promotion/lead.rs",
            "//! Knows no epoll.\n// nor dispatch\nlet a = \"RawFd\";\n"
        )
        .is_empty());
    }

    #[test]
    fn an_item_is_found_however_it_is_imported() {
        for import in [
            "use crate::pool::Pool;",
            "use crate::{sync::{Arc, Mutex}, pool};",
            "use super::super::pool::Pool;",
            "let p = crate::pool::Pool::new();",
        ] {
            assert_eq!(lines("dispatch/slot.rs", import), [1], "{import}");
        }
        assert_eq!(
            lines(
                "handle_set/epoll.rs",
                "use std::{\n    fmt,\n    thread,\n};\n"
            ),
            [1]
        );
    }

    #[test]
    fn other_words_that_look_alike_pass() {
        assert!(lines(
            "dispatch/slot.rs",
            "use crate::sync::{pool, Arc};\nuse crate::pooled;\nlet turn = 1;\n"
        )
        .is_empty());
        assert!(lines(
            "handle_set/poll.rs",
            "let dispatches = std::sync::thread;\n"
        )
        .is_empty());
    }

    #[test]
    fn parts_of_words_are_found_where_the_rule_says_so() {
        assert_eq!(
            lines(
                "promotion/lead.rs",
                "use std::os::fd::AsRawFd;\nlibc::epoll_wait();\n"
            ),
            [1, 2]
        );
    }
}
