//! Files that are damaged by chance, and values that are written and read.

use super::*;
use crate::config::conn_string;

/// A sequence of numbers that is the same in each run (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn pick<'c, T: ?Sized>(&mut self, choices: &[&'c T]) -> &'c T {
        choices[self.below(choices.len())]
    }
}

const WHOLE: &str = "[pgbouncer]\nlisten_port = 6432\nauth_type = md5\npkt_buf = 1\n\
    %include more.ini\n[databases]\n'a b' = host=h1,h2 port=1 password='it''s' pool_size=3\n\
    * = host=/tmp\n[users]\nu = query_timeout=2.5 pool_mode=statement\n";

const PIECES: &[&str] = &[
    "[",
    "]",
    "'",
    "\"",
    "''",
    "=",
    " = ",
    "\n",
    "\r\n",
    ";",
    "#",
    "%include more.ini\n",
    ",",
    "0x",
    "-1",
    "1e400",
    "NaN",
    "\0",
    "\u{fffd}",
    "[peers]",
    "[databases]\n",
    "host",
    "*",
    "\\",
    " ",
];

fn damaged(chance: &mut Chance, text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..chance.below(4) {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let [Some(from), Some(to)] = [(); 2].map(|()| places.get(chance.below(places.len() + 1)))
        else {
            continue;
        };
        let (from, to) = (*from.min(to), (*to).min(from + chance.below(8)).max(*from));
        let to = (to..=text.len())
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(from);
        text.replace_range(from..to, chance.pick(PIECES));
    }
    text
}

/// A file that an editor or a script has damaged must be refused with a line, or read: a panic
/// would end a pooler that only wanted to reload.
#[test]
fn damaged_files_are_read_or_refused_with_a_line() {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..3_000 {
        let [main, more] = [WHOLE, "user = x\n[users]\nv ="].map(|text| damaged(&mut chance, text));
        let lines = main.lines().count().max(more.lines().count()) + 1;
        match load_of(&[("main.ini", &main), ("more.ini", &more)]) {
            Ok(_) => read += 1,
            Err(faulty) => {
                refused += 1;
                for problem in &faulty.errors {
                    let is_whole_file = problem.reason == Reason::NoMainSection;
                    assert!(
                        is_whole_file || (1..=lines).contains(&(problem.line as usize)),
                        "{problem}\n{main}\n{more}"
                    );
                }
            }
        }
        let _ = Userlist::read("users", main.as_bytes());
        let _ = hba::Rules::read("hba", main.as_bytes());
    }
    assert!(
        read > 100 && refused > 100,
        "{read} read, {refused} refused: the test shows nothing"
    );
}

/// Passwords have any characters: what is quoted as the documentation says is read as it was.
#[test]
fn quoted_values_are_read_as_they_were_written() {
    let mut chance = Chance(7);
    for _ in 0..2_000 {
        let count = chance.below(4);
        let pairs: Vec<(String, String)> = (0..=count)
            .map(|number| {
                (
                    format!("k{number}"),
                    format!("{}v", damaged(&mut chance, "a 'b' c")),
                )
            })
            .collect();
        let quoted = pairs.iter().map(|(key, value)| {
            let space = chance.pick(&["", " "]);
            format!("{key}{space}={space}'{}' ", value.replace('\'', "''"))
        });
        let text: String = quoted.collect();
        let read: Result<Vec<_>, _> = conn_string::pairs(&text)
            .map(|pair| pair.map(|(key, value)| (key.to_owned(), value.into_owned())))
            .collect();
        assert_eq!(read, Ok(pairs), "{text}");
    }
}
