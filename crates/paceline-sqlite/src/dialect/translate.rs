//! The token pass: PostgreSQL's spellings become SQLite's.
//!
//! Strings, comments and tokens that no rule names reach SQLite unchanged.

mod calls;
mod catalogue;
mod literals;
mod operands;
mod operators;
mod tables;

use std::{fmt, sync::Arc};

use super::{
    counter::Counter,
    infer::Guess,
    lex::Kind,
    source::{quote_text, Source},
};
use crate::types::Type;

/// The facts of a session that statements ask for, such as its user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) process: i32,
    pub(crate) version: String,
    pub(crate) is_standby: bool,
    /// `None`: nothing is known of tables.
    pub(crate) schema: Option<Arc<dyn Schema>>,
}

/// The tables of a database, as far as a translation depends on them.
pub(crate) trait Schema: fmt::Debug + Send + Sync {
    /// The declared type of a column; `None` if there is no such column.
    fn column_type(&self, table: &str, column: &str) -> Option<Type>;

    /// Whether a column has no NULLs, by its declaration.
    fn is_never_null(&self, table: &str, column: &str) -> bool;

    /// The type of what is guessed, in these tables.
    fn resolve(&self, tables: &[String], guess: &Guess) -> Option<Type>;

    /// The default of the column that is guessed, as SQLite writes it; `None`: it has none.
    fn default_of(&self, tables: &[String], guess: &Guess) -> Option<String>;
}

/// The text for SQLite.
pub(crate) fn translate(source: &Source<'_>, facts: &Facts) -> String {
    let mut pass = Pass {
        source,
        facts,
        output: String::with_capacity(source.sql().len() + 16),
        starts: vec![0; source.len()],
        primaries: (0..source.len()).collect(),
        copied: 0,
        commas: Vec::new(),
        is_table: tables::is_defined(source),
        counter: tables::counter(source),
        has_order: (0..source.len()).any(|at| source.is_word(at, "order")),
        closings: Vec::new(),
    };
    let mut at = 0;
    while at < source.len() {
        at = pass.step(at);
    }
    pass.output
}

struct Pass<'p, 's> {
    source: &'p Source<'s>,
    facts: &'p Facts,
    output: String,
    /// Where the output of each token begins.
    starts: Vec<usize>,
    /// The first token of the operand that ends with each token.
    primaries: Vec<usize>,
    /// How far the text has been copied or replaced.
    copied: usize,
    is_table: bool,
    counter: Option<Counter>,
    has_order: bool,
    /// Words of calls that become commas.
    commas: Vec<usize>,
    /// Closing brackets of calls around later tokens: where each is due, and its text.
    closings: Vec<(usize, String)>,
}

impl Pass<'_, '_> {
    /// Writes the token at `at`, or what replaces it, and returns the next one to do.
    fn step(&mut self, at: usize) -> usize {
        let behind = self.replace(at).unwrap_or_else(|| {
            self.keep(at);
            at + 1
        });
        while let Some((end, text)) = self.closings.last() {
            if *end > behind {
                break;
            }
            self.output.push_str(text);
            self.closings.pop();
        }
        behind
    }

    /// Copies the text up to the token, and the token.
    fn keep(&mut self, at: usize) {
        self.gap(at);
        self.output.push_str(self.source.text(at));
        self.copied = self.source.range(at).end;
    }

    /// Copies the text between the last token and this one.
    fn gap(&mut self, at: usize) {
        let start = self.source.range(at).start;
        self.output.push_str(&self.source.sql()[self.copied..start]);
        self.starts[at] = self.output.len();
        self.copied = start;
    }

    /// Writes `text` in place of the tokens from `at` to before `behind`.
    fn put(&mut self, at: usize, behind: usize, text: &str) -> Option<usize> {
        self.gap(at);
        self.output.push_str(text);
        for index in at..behind {
            self.starts[index] = self.starts[at];
            self.primaries[index] = at;
        }
        self.copied = self.source.range(behind - 1).end;
        Some(behind)
    }

    fn replace(&mut self, at: usize) -> Option<usize> {
        if let Some(behind) = self.counter(at).or_else(|| self.comma(at)) {
            return Some(behind);
        }
        match self.source.kind(at)? {
            Kind::Parameter => self.put(at, at + 1, &self.source.text(at).replace('$', "?")),
            Kind::Escaped | Kind::Dollar => {
                let value = self.source.string(at)?;
                self.put(at, at + 1, &quote_text(&value))
            }
            Kind::Operator => self.operator(at),
            Kind::Word => self.word(at),
            Kind::Mark if self.source.is_mark(at, "(") => self.named_columns(at),
            Kind::Mark => {
                self.close_operand(at);
                None
            }
            Kind::Text => self.string(at),
            Kind::Quoted | Kind::Number => {
                self.extend_name(at);
                None
            }
        }
    }

    /// A name behind a point belongs to the operand before the point.
    fn extend_name(&mut self, at: usize) {
        if at >= 2 && self.source.is_mark(at - 1, ".") {
            self.primaries[at] = self.primaries[at - 2];
        }
    }

    /// An operand that ends with a bracket begins at the bracket that it closes, or at the name of
    /// the function before that.
    fn close_operand(&mut self, at: usize) {
        if !self.source.is_mark(at, ")") && !self.source.is_mark(at, "]") {
            return;
        }
        let Some(open) = self.source.opening_bracket(at) else {
            return;
        };
        let is_call = open > 0
            && matches!(self.source.kind(open - 1), Some(Kind::Word | Kind::Quoted))
            && !self.source.is_one_of(open - 1, NO_FUNCTIONS);
        self.primaries[at] = if is_call {
            self.primaries[open - 1]
        } else {
            open
        };
    }

    fn word(&mut self, at: usize) -> Option<usize> {
        self.extend_name(at);
        let word = self.source.text(at).to_ascii_lowercase();
        let is_before_point = self.source.is_mark(at + 1, ".");
        let is_behind_point = at > 0 && self.source.is_mark(at - 1, ".");
        if is_behind_point && !self.is_behind_schema(at) {
            // A column or table of this name.
            return None;
        }
        match word.as_str() {
            "pg_catalog" | "public" if is_before_point => {
                let behind = self.put(at, at + 2, "");
                if at + 2 < self.source.len() {
                    self.primaries[at + 2] = at + 2;
                }
                behind
            }
            "information_schema" if is_before_point => self.put(at, at + 2, "information_schema_"),
            "ilike" => self.put(at, at + 1, "MATCH"),
            "like" => self.like(at, "LIKE"),
            "order" if self.source.is_word(at + 1, "by") => {
                self.order(at);
                None
            }
            "offset" => self.offset(at),
            "default" if self.source.is_one_of(0, &["insert", "update"]) => self.default_value(at),
            "date" | "timestamp" | "timestamptz" | "uuid"
                if self.source.kind(at + 1) == Some(Kind::Text)
                    && !(at > 0 && self.source.is_word(at - 1, "as")) =>
            {
                self.put(at, at + 1, "")
            }
            "nulls" if !self.has_order => self.put(at, at + 2, ""),
            "operator" if self.source.is_mark(at + 1, "(") => self.spelled_operator(at),
            "collate" => self.collation(at),
            "cast" if self.source.is_mark(at + 1, "(") => self.long_cast(at),
            "limit" if self.source.is_word(at + 1, "all") => self.put(at, at + 2, "LIMIT -1"),
            "for" => self.locking(at),
            "fetch" if self.source.is_one_of(at + 1, &["first", "next"]) => self.fetch_first(at),
            "generate_series" | "unnest" if self.source.is_mark(at + 1, "(") => self.series(at),
            "array" if self.source.is_mark(at + 1, "(") => self.array_of_rows(at),
            "pg_get_indexdef" | "pg_get_viewdef" | "pg_get_triggerdef" => {
                self.definition(at, "paceline_definition", "definition")
            }
            "pg_get_constraintdef" => self.definition(at, "pg_constraint", "paceline_definition"),
            _ if self.is_table => self.of_table(at, &word),
            _ if self.source.is_mark(at + 1, "(") => {
                self.fact(at, &word).or_else(|| self.call(at, &word))
            }
            _ => self.fact(at, &word),
        }
    }

    fn is_behind_schema(&self, at: usize) -> bool {
        at >= 2
            && self
                .source
                .is_one_of(at - 2, &["pg_catalog", "public", "information_schema"])
    }

    /// Replaces a question about the session: its user, its database, the version.
    fn fact(&mut self, at: usize, word: &str) -> Option<usize> {
        let is_call = self.source.is_mark(at + 1, "(") && self.source.is_mark(at + 2, ")");
        let text = match word {
            "current_user" | "session_user" | "current_role" => quote_text(&self.facts.user),
            "current_catalog" => quote_text(&self.facts.database),
            "current_schema" => "'public'".to_owned(),
            "localtimestamp" | "current_timestamp" => "now()".to_owned(),
            "current_date" => "pg_date(now())".to_owned(),
            "current_database" if is_call => quote_text(&self.facts.database),
            "pg_backend_pid" if is_call => self.facts.process.to_string(),
            "pg_is_in_recovery" if is_call => if self.facts.is_standby {
                "TRUE"
            } else {
                "FALSE"
            }
            .to_owned(),
            "version" if is_call => quote_text(&self.facts.version),
            _ => return None,
        };
        // Behind AS this is the name of a column.
        if at > 0 && self.source.is_word(at - 1, "as") {
            return None;
        }
        self.put(at, if is_call { at + 3 } else { at + 1 }, &text)
    }

    /// Removes collations of PostgreSQL that equal SQLite's own order.
    fn collation(&mut self, at: usize) -> Option<usize> {
        let (name, behind) = self.source.name(at + 1)?;
        let is_known = matches!(name.as_str(), "default" | "C" | "POSIX" | "c" | "ucs_basic");
        is_known.then(|| self.put(at, behind, ""))?
    }

    /// Removes `FOR UPDATE` and the like: the lane of writers already excludes other writers.
    fn locking(&mut self, at: usize) -> Option<usize> {
        let end = end_of_locking(self.source, at)?;
        self.put(at, end, "")
    }

    /// `FETCH FIRST n ROWS ONLY`
    fn fetch_first(&mut self, at: usize) -> Option<usize> {
        if self.source.is_one_of(at + 2, &["row", "rows"]) {
            return self.put(at, at + 4, "LIMIT 1");
        }
        let is_whole =
            self.source.is_one_of(at + 3, &["row", "rows"]) && self.source.is_word(at + 4, "only");
        let count = self.source.text(at + 2).replace('$', "?");
        is_whole.then(|| self.put(at, at + 5, &format!("LIMIT {count}")))?
    }

    /// `FROM generate_series(1, 3) AS g(i)`: SQLite calls the column `value`.
    ///
    /// `FROM unnest($1) AS x`: an array is one of JSON to SQLite.
    fn series(&mut self, at: usize) -> Option<usize> {
        if at == 0
            || !(self.source.is_one_of(at - 1, &["from", "join", "lateral"])
                || self.source.is_mark(at - 1, ","))
        {
            return None;
        }
        let behind = self.source.behind_bracket(at + 1);
        let is_aliased = self.source.is_word(behind, "as");
        let alias = behind + usize::from(is_aliased);
        let is_name = is_aliased
            || matches!(self.source.kind(alias), Some(Kind::Word | Kind::Quoted))
                && !self.source.is_one_of(alias, NO_ALIASES);
        let name = if is_name {
            self.source.text(alias)
        } else {
            self.source.text(at)
        };
        let has_column = is_name && self.source.is_mark(alias + 1, "(");
        let column = if has_column {
            self.source.text(alias + 2)
        } else {
            name
        };
        let end = match (is_name, has_column) {
            (false, _) => behind,
            (true, false) => alias + 1,
            (true, true) => self.source.behind_bracket(alias + 1),
        };
        self.gap(at);
        let is_array = self.source.is_word(at, "unnest");
        let function = if is_array {
            "json_each(pg_array"
        } else {
            "generate_series"
        };
        self.output
            .push_str(&format!("(SELECT value AS {column} FROM {function}"));
        self.copied = self.source.range(at).end;
        let mut next = at + 1;
        while next < behind {
            next = self.step(next);
        }
        let close = if is_array { "))" } else { ")" };
        self.output.push_str(&format!("{close} AS {name}"));
        self.copied = self.source.range(end - 1).end;
        Some(end)
    }
}

/// The end of a locking clause at `at`, if it is one.
pub(super) fn end_of_locking(source: &Source<'_>, at: usize) -> Option<usize> {
    if !source.is_word(at, "for") {
        return None;
    }
    let mut end = at + 1;
    if source.are_words(end, &["no", "key"]) {
        end += 2;
    } else if source.is_word(end, "key") {
        end += 1;
    }
    if !source.is_one_of(end, &["update", "share"]) {
        return None;
    }
    end += 1;
    if source.is_word(end, "of") {
        end = source.names(end + 1)?.1;
    }
    if source.is_word(end, "nowait") {
        end += 1;
    } else if source.are_words(end, &["skip", "locked"]) {
        end += 2;
    }
    Some(end)
}

/// Words before a bracket that call no function.
const NO_FUNCTIONS: &[&str] = &[
    "in",
    "and",
    "or",
    "not",
    "when",
    "then",
    "else",
    "values",
    "select",
    "where",
    "on",
    "from",
    "as",
    "between",
    "like",
    "exists",
    "using",
    "returning",
    "set",
    "by",
    "limit",
    "having",
    "is",
];

const NO_ALIASES: &[&str] = &[
    "where",
    "order",
    "group",
    "limit",
    "offset",
    "join",
    "left",
    "right",
    "inner",
    "cross",
    "on",
    "union",
    "having",
    "natural",
    "full",
    "except",
    "intersect",
    "for",
    "returning",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A schema in which every column `flag` is a boolean.
    #[derive(Debug)]
    struct Flags;

    impl Schema for Flags {
        fn column_type(&self, _: &str, column: &str) -> Option<Type> {
            (column == "flag").then_some(Type::BOOL)
        }

        fn is_never_null(&self, _: &str, column: &str) -> bool {
            column == "key"
        }

        fn resolve(&self, tables: &[String], guess: &Guess) -> Option<Type> {
            match guess {
                Guess::Column(name) if name == "day" => Some(Type::DATE),
                Guess::Column(name) if name == "at" => Some(Type::TIMESTAMP),
                Guess::Column(name) => self.column_type(tables.first()?, name),
                _ => None,
            }
        }

        fn default_of(&self, _: &[String], guess: &Guess) -> Option<String> {
            (*guess == Guess::Column("a".to_owned())).then(|| "7".to_owned())
        }
    }

    fn translated(sql: &str) -> String {
        let source = Source::split(sql).expect("tokens").remove(0);
        let facts = Facts {
            user: "ada".to_owned(),
            database: "bank".to_owned(),
            process: 7,
            version: "PostgreSQL".to_owned(),
            is_standby: false,
            schema: Some(Arc::new(Flags)),
        };
        translate(&source, &facts)
    }

    #[test]
    fn spellings_become_sqlites() {
        for (postgres, sqlite) in [
            ("select $2, $1", "select ?2, ?1"),
            ("select '$1::int'", "select '$1::int'"),
            (
                "select $1::int + 1",
                "select CAST(pg_int4(?1) AS INTEGER) + 1",
            ),
            (
                "select a.b::text::int",
                "select CAST(pg_int4(CAST(a.b AS TEXT)) AS INTEGER)",
            ),
            (
                "select f(x, (1))::numeric(8, 2)",
                "select pg_numeric(f(x, (1)))",
            ),
            (
                "select (a + b)::double precision c",
                "select CAST(pg_float8((a + b)) AS REAL) c",
            ),
            (
                "select cast('2024-01-01' as date)",
                "select pg_date('2024-01-01')",
            ),
            (
                "select pg_catalog.count(*) from public.t",
                "select count(*) from t",
            ),
            ("select pg_catalog.f(x)::text", "select CAST(f(x) AS TEXT)"),
            ("select a ilike 'x%'", "select a MATCH 'x%'"),
            (
                "where a like 'x%' and b like $1 || '%' and c not like 'a\\%'",
                "where a LIKE 'x%' and b LIKE ?1 || '%' ESCAPE '\\' \
                 and c not LIKE 'a\\%' ESCAPE '\\'",
            ),
            (
                "select a / b::int, c / 2, d % (e + 1) from t",
                "select a / pg_divisor( CAST(pg_int4(b) AS INTEGER)), c / 2, \
                 d % pg_divisor( (e + 1)) from t",
            ),
            (
                "select a from t order by a, b desc, t.key, lower(c) nulls first limit 1",
                "select a from t order by a NULLS LAST, b desc NULLS FIRST, t.key, \
                 lower(c) nulls first limit 1",
            ),
            (
                "select sum(a) over (order by b), c from t",
                "select sum(a) over (order by b NULLS LAST), c from t",
            ),
            (
                "select a from t offset 2",
                "select a from t LIMIT -1 OFFSET 2",
            ),
            (
                "select a from t offset $1 rows fetch first 3 rows only",
                "select a from t LIMIT 3 OFFSET ?1",
            ),
            ("select a limit 1 offset 2", "select a limit 1 offset 2"),
            (
                "select 1 from t where at <= '2024-01-01' and day = '2024-1-2' and flag = 't'",
                "select 1 from t where at <= '2024-01-01 00:00:00' and day = '2024-01-02' \
                 and flag = 1",
            ),
            (
                "insert into t(flag, a, day) values ('no', default, 'x')",
                "insert into t(flag, a, day) values (0, (7), pg_date('x'))",
            ),
            ("select date '2024-02-29'", "select  '2024-02-29'"),
            (
                "select 1 from t where coalesce(at, '2024-01-01') > '2024-01-01'",
                "select 1 from t where coalesce(at, '2024-01-01 00:00:00') > '2024-01-01 00:00:00'",
            ),
            (
                "select x.b from (values (1, $1)) as x(a, b)",
                "select x.b from (WITH x(a, b) AS (values (1, ?1)) SELECT * FROM x) AS x",
            ),
            (
                "where n OPERATOR(pg_catalog.~) '^a$' COLLATE pg_catalog.default",
                "where n REGEXP '^a$' ",
            ),
            ("select E'a\\tb'", "select 'a\tb'"),
            ("select $$it's$$", "select 'it''s'"),
            (
                "where a = any($1)",
                "where a IN (SELECT value FROM json_each(pg_array(?1)))",
            ),
            ("where a = any(array['r','p'])", "where a IN ('r','p')"),
            (
                "where a = any ('{r}'::char[]) and b",
                "where a IN (SELECT value FROM json_each(pg_array(CAST('{r}' AS TEXT)))) and b",
            ),
            ("select 1 for update of t nowait", "select 1 "),
            (
                "from generate_series(1, $1) as g(i) where i",
                "from (SELECT value AS i FROM generate_series(1, ?1)) AS g where i",
            ),
            (
                "from generate_series(1,3) x",
                "from (SELECT value AS x FROM generate_series(1,3)) AS x",
            ),
            (
                "from unnest($1::int[]) with_alias",
                "from (SELECT value AS with_alias FROM json_each(pg_array(CAST(?1 AS TEXT)))) \
                 AS with_alias",
            ),
            (
                "select current_user, current_database()",
                "select 'ada', 'bank'",
            ),
            ("select a fetch first 3 rows only", "select a LIMIT 3"),
            (
                "select flag::text, (a = b)::varchar, cast(t.flag as text), a::text from t",
                "select pg_bool_text(flag), pg_bool_text((a = b)), pg_bool_text(t.flag), \
                 CAST(a AS TEXT) from t",
            ),
        ] {
            assert_eq!(translated(postgres), sqlite);
        }
    }

    #[test]
    fn tables_are_defined_as_sqlite_wants_them() {
        for (postgres, sqlite) in [
            (
                "create table t(id serial primary key)",
                "create table t(id INTEGER /* counts: integer */ primary key AUTOINCREMENT)",
            ),
            (
                "create table t(id bigint generated by default as identity primary key)",
                "create table t(id INTEGER /* counts: bigint */  primary key AUTOINCREMENT)",
            ),
            (
                "create table t(\"id\" bigserial, constraint k primary key (\"id\"))",
                "create table t(\"id\" INTEGER /* counts: bigint */, \
                 constraint k primary key (\"id\" AUTOINCREMENT))",
            ),
            (
                "create table t(a int) with (fillfactor=100)",
                "create table t(a int) ",
            ),
            (
                "create table t(a timestamp default now() not null, b text default 'x'::text)",
                "create table t(a timestamp DEFAULT ( now()) not null, \
                 b text DEFAULT ( CAST('x' AS TEXT)))",
            ),
        ] {
            assert_eq!(translated(postgres), sqlite);
        }
    }
}
