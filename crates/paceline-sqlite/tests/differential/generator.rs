//! Statements by chance, over two tables, of types that fit.

/// The tables, and their first rows.
pub(crate) const TABLES: &str = "
    CREATE TABLE t(id int PRIMARY KEY, a int, b bigint, c text, d double precision, e boolean,
        f date, g timestamp, h numeric(8,2), i varchar(20), j uuid, k timestamptz, l smallint);
    CREATE TABLE u(id bigserial PRIMARY KEY, t int REFERENCES t(id), n int NOT NULL CHECK (n > 0),
        label text UNIQUE);
    INSERT INTO t VALUES
        (1, 5, 50, 'one', 0.5, true, '2024-02-29', '2024-02-29 01:02:03.5', 1.50, 'x',
            'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-02-29 12:00:00+00', 7),
        (2, NULL, 7, 'Two', -2.25, false, '1999-12-31', '2024-01-01 00:00:00', 20, NULL, NULL, NULL, -7),
        (3, -3, NULL, '', 1e10, NULL, NULL, NULL, NULL, '3%', NULL, '2000-01-01 00:00:00+00', NULL),
        (4, 0, 5000000000, NULL, NULL, true, '2024-03-01', '2023-06-15 10:00:00', -0.01, 'four', NULL, NULL, 0);
    INSERT INTO u(t, n, label) VALUES (1, 1, 'first'), (1, 2, 'second'), (3, 3, NULL)";

/// A small generator of random numbers.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// The kinds of expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Text,
    Bool,
    Float,
    Date,
    Moment,
}

const KINDS: [Kind; 6] = [
    Kind::Int,
    Kind::Text,
    Kind::Bool,
    Kind::Float,
    Kind::Date,
    Kind::Moment,
];

/// A statement.
pub(crate) fn statement(chance: &mut Chance) -> String {
    match chance.below(12) {
        0 => insert(chance),
        1 => update(chance),
        2 => insert_label(chance),
        3 => format!("DELETE FROM t WHERE {}", condition(chance, 1)),
        4 => aggregate(chance),
        5 => joined(chance),
        _ => select(chance),
    }
}

fn select(chance: &mut Chance) -> String {
    let count = 1 + chance.below(3);
    let list: Vec<String> = (0..count)
        .map(|_| {
            let kind = KINDS[chance.below(KINDS.len())];
            expression(chance, kind, 2)
        })
        .collect();
    let mut sql = format!("SELECT {} FROM t", list.join(", "));
    if chance.is_one_in(2) {
        sql += &format!(" WHERE {}", condition(chance, 2));
    }
    let by = chance.one(&[
        "t.id",
        "t.a, t.id",
        "t.b DESC, t.id",
        "t.c, t.id DESC",
        "t.d NULLS FIRST, t.id",
        "t.i, t.f, t.id",
    ]);
    sql += &format!(" ORDER BY {by}");
    if chance.is_one_in(3) {
        sql += &format!(" LIMIT {}", chance.below(4));
    }
    if chance.is_one_in(5) {
        sql += &format!(" OFFSET {}", chance.below(3));
    }
    sql
}

fn aggregate(chance: &mut Chance) -> String {
    let what = chance.one(&[
        "count(*)",
        "count(a)",
        "count(DISTINCT e)",
        "sum(a)",
        "min(b)",
        "max(c)",
        "min(f)",
        "max(g)",
        "sum(l)",
        "count(*) FILTER (WHERE a > 0)",
    ]);
    let group = chance.one(&["e", "a > 0", "c", "l"]);
    if chance.is_one_in(2) {
        return format!("SELECT {what} FROM t WHERE {}", condition(chance, 1));
    }
    format!("SELECT {group}, {what} FROM t GROUP BY {group} ORDER BY {group}")
}

fn joined(chance: &mut Chance) -> String {
    let join = chance.one(&["JOIN", "LEFT JOIN"]);
    let column = chance.one(&["t.a", "u.n", "u.label", "t.c", "t.e"]);
    let condition = chance.one(&["u.n > 1", "t.a IS NULL", "u.label LIKE '%s%'", "t.e"]);
    format!(
        "SELECT t.id, u.n, {column} FROM t {join} u ON u.t = t.id WHERE {condition} \
         ORDER BY t.id, u.n, u.label"
    )
}

fn insert(chance: &mut Chance) -> String {
    let id = chance.below(12);
    let values = [
        expression_of_literals(chance, Kind::Int),
        expression_of_literals(chance, Kind::Text),
        expression_of_literals(chance, Kind::Bool),
        expression_of_literals(chance, Kind::Date),
    ];
    let conflict = chance.one(&[
        "",
        " ON CONFLICT DO NOTHING",
        " ON CONFLICT (id) DO UPDATE SET a = excluded.a, c = t.c || '+'",
        " RETURNING id, a, c, e",
    ]);
    let values = values.join(", ");
    format!("INSERT INTO t(id, a, c, e, f) VALUES ({id}, {values}){conflict}")
}

fn insert_label(chance: &mut Chance) -> String {
    let (t, n) = (chance.below(7), chance.below(4));
    let label = chance.one(&["'first'", "'x'", "'y'", "NULL", "'second'", "'z'"]);
    let n = if chance.is_one_in(6) {
        "NULL".to_owned()
    } else {
        n.to_string()
    };
    let returning = chance.one(&["", " RETURNING n, label", " RETURNING *"]);
    let returning = if returning.ends_with('*') {
        ""
    } else {
        returning
    };
    format!("INSERT INTO u(t, n, label) VALUES ({t}, {n}, {label}){returning}")
}

fn update(chance: &mut Chance) -> String {
    let (column, kind) = [
        ("a", Kind::Int),
        ("c", Kind::Text),
        ("e", Kind::Bool),
        ("d", Kind::Float),
        ("f", Kind::Date),
    ][chance.below(5)];
    let value = expression(chance, kind, 1);
    let value = if column == "a" {
        format!("({value})::int")
    } else {
        value
    };
    let returning = chance.one(&["", " RETURNING id"]);
    format!(
        "UPDATE t SET {column} = {value} WHERE {}{returning}",
        condition(chance, 1)
    )
}

fn condition(chance: &mut Chance, depth: usize) -> String {
    expression(chance, Kind::Bool, depth)
}

fn expression_of_literals(chance: &mut Chance, kind: Kind) -> String {
    if chance.is_one_in(6) {
        return "NULL".to_owned();
    }
    literal(chance, kind)
}

fn literal(chance: &mut Chance, kind: Kind) -> String {
    let text = match kind {
        Kind::Int => chance.one(&["0", "1", "-3", "7", "42", "20000"]),
        Kind::Text => chance.one(&["'one'", "''", "'it''s'", "'Two'", "'100%'", "'é'"]),
        Kind::Bool => chance.one(&["true", "false"]),
        Kind::Float => chance.one(&["0.5::float8", "2::float8", "-1.25::float8"]),
        Kind::Date => chance.one(&["'2024-02-29'::date", "'1999-12-31'::date"]),
        Kind::Moment => chance.one(&[
            "'2024-01-01 00:00:00'::timestamp",
            "'2024-02-29'::timestamp",
        ]),
    };
    text.to_owned()
}

fn leaf(chance: &mut Chance, kind: Kind) -> String {
    if chance.is_one_in(3) {
        return literal(chance, kind);
    }
    let column = match kind {
        Kind::Int => chance.one(&["id", "a", "b", "l"]),
        Kind::Text => chance.one(&["c", "i"]),
        Kind::Bool => "e",
        Kind::Float => "d",
        Kind::Date => "f",
        Kind::Moment => "g",
    };
    column.to_owned()
}

fn expression(chance: &mut Chance, kind: Kind, depth: usize) -> String {
    if depth == 0 || chance.is_one_in(4) {
        return leaf(chance, kind);
    }
    let below = depth - 1;
    let mut of = |kind| expression(chance, kind, below);
    match kind {
        Kind::Int => {
            let (x, y) = (of(Kind::Int), of(Kind::Int));
            let text = of(Kind::Text);
            let flag = of(Kind::Bool);
            match chance.below(9) {
                0 => format!("({x} + {y})"),
                1 => format!("({x} - {y})"),
                2 => format!("({x} * 2)"),
                3 => format!("({x} / nullif({y}, 0))"),
                4 => format!("({x} % 7)"),
                5 => format!("abs({x})"),
                6 => format!("length({text})"),
                7 => format!("coalesce({x}, {y})"),
                _ => format!("CASE WHEN {flag} THEN {x} ELSE {y} END"),
            }
        }
        Kind::Text => {
            let (x, y) = (of(Kind::Text), of(Kind::Text));
            let (number, flag) = (of(Kind::Int), of(Kind::Bool));
            match chance.below(10) {
                0 => format!("upper({x})"),
                1 => format!("({x} || {y})"),
                2 => format!("substr({x}, 2, 2)"),
                3 => format!("replace({x}, 'o', '0')"),
                4 => format!("left({x}, 2)"),
                5 => format!("({number})::text"),
                6 => format!("coalesce({x}, 'none')"),
                7 => format!("({flag})::text"),
                8 => format!("nullif({x}, '')"),
                _ => format!("trim({x})"),
            }
        }
        Kind::Bool => {
            let (x, y) = (of(Kind::Int), of(Kind::Int));
            let (text, flag) = (of(Kind::Text), of(Kind::Bool));
            let (day, moment) = (of(Kind::Date), of(Kind::Moment));
            match chance.below(12) {
                0 => format!("({x} = {y})"),
                1 => format!("({x} < {y})"),
                2 => format!("({x} IS NULL)"),
                3 => format!("({x} BETWEEN -5 AND 50)"),
                4 => format!("({x} IN (1, 2, {y}))"),
                5 => format!("({text} LIKE '%o%')"),
                6 => format!("(NOT {flag})"),
                7 => format!("({flag} AND {x} > 0)"),
                8 => format!("({flag} OR {text} = 'one')"),
                9 => format!("({day} > '2000-01-01')"),
                10 => format!("({moment} <= '2024-01-01')"),
                _ => format!("({text} IS DISTINCT FROM 'one')"),
            }
        }
        Kind::Float => {
            let (x, number) = (of(Kind::Float), of(Kind::Int));
            match chance.below(4) {
                0 => format!("({x} * 2::float8)"),
                1 => format!("abs({x})"),
                2 => format!("({number})::float8"),
                _ => format!("coalesce({x}, 0)"),
            }
        }
        Kind::Date => {
            let (x, y) = (of(Kind::Date), of(Kind::Moment));
            match chance.below(3) {
                0 => format!("coalesce({x}, '2001-01-01')"),
                1 => format!("({y})::date"),
                _ => x,
            }
        }
        Kind::Moment => {
            let (x, day) = (of(Kind::Moment), of(Kind::Date));
            match chance.below(3) {
                0 => format!("coalesce({x}, '2001-01-01')"),
                1 => format!("({day})::timestamp"),
                _ => x,
            }
        }
    }
}
