//! Tables as wire messages: columns with PgBouncer's types, rows as text.

use paceline_pg_wire::backend::{self, Column};

/// A column: its name and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// The types that PgBouncer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Int4,
    Int8,
    Numeric,
}

impl Kind {
    fn oid(self) -> u32 {
        match self {
            Self::Text => 25,
            Self::Int4 => 23,
            Self::Int8 => 20,
            Self::Numeric => 1700,
        }
    }

    fn size(self) -> i16 {
        match self {
            Self::Int4 => 4,
            Self::Int8 => 8,
            Self::Text | Self::Numeric => -1,
        }
    }
}

/// A number of the type int8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Big(pub u64);

/// A number of the type numeric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numeric(pub u64);

/// A value in a row.
pub(super) trait Cell {
    /// Its type.
    const KIND: Kind;
    /// Its text; `None` is NULL.
    fn text(&self) -> Option<String>;
}

macro_rules! cells {
    ($($type:ty: $kind:ident, $value:ident => $text:expr;)+) => {$(
        impl Cell for $type {
            const KIND: Kind = Kind::$kind;

            fn text(&self) -> Option<String> {
                let $value = self;
                $text
            }
        }
    )+};
}

cells! {
    String: Text, value => Some(value.clone());
    Option<String>: Text, value => value.clone();
    &'static str: Text, value => Some((*value).to_owned());
    u32: Int4, value => Some(value.to_string());
    bool: Int4, value => Some(u8::from(*value).to_string());
    Big: Int8, value => Some(value.0.to_string());
    Numeric: Numeric, value => Some(value.0.to_string());
}

/// A row of a table.
pub(super) trait Row {
    /// Its columns.
    fn heads() -> Vec<Head>;
    /// Its values; `None` is NULL.
    fn cells(&self) -> Vec<Option<String>>;
}

/// Declares a row: a struct with a field for each column.
macro_rules! row {
    ($(#[doc = $about:literal])+ $name:ident
        { $($(#[doc = $doc:literal])+ $field:ident: $type:ty,)+ }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: $type,)+ }

        impl $crate::console::table::Row for $name {
            fn heads() -> Vec<$crate::console::table::Head> {
                vec![$($crate::console::table::Head {
                    // `type` is a key word of Rust.
                    name: stringify!($field).trim_start_matches("r#"),
                    kind: <$type as $crate::console::table::Cell>::KIND,
                },)+]
            }

            fn cells(&self) -> Vec<Option<String>> {
                vec![$($crate::console::table::Cell::text(&self.$field),)+]
            }
        }
    };
}
pub(super) use row;

/// Appends the columns of a table.
pub(super) fn columns(output: &mut Vec<u8>, heads: &[Head]) {
    let columns: Vec<_> = heads.iter().map(column).collect();
    backend::row_description(output, &columns);
}

fn column(head: &Head) -> Column<'static> {
    Column {
        name: head.name.as_bytes(),
        table: 0,
        attribute: 0,
        oid: head.kind.oid(),
        size: head.kind.size(),
        modifier: -1,
        is_binary: false,
    }
}

/// Appends a row.
pub(super) fn values(output: &mut Vec<u8>, cells: &[Option<String>]) {
    backend::row(
        output,
        cells.iter().map(|cell| cell.as_deref().map(str::as_bytes)),
    );
}

/// Appends a table without its end.
pub(super) fn table<R: Row>(output: &mut Vec<u8>, rows: &[R]) {
    columns(output, &R::heads());
    rows.iter().for_each(|row| values(output, &row.cells()));
}

/// Appends a table of names and values without its end.
pub(super) fn pairs<V: Cell>(
    output: &mut Vec<u8>,
    heads: [&'static str; 2],
    rows: impl IntoIterator<Item = (&'static str, V)>,
) {
    let [name, value] = heads;
    let name = Head {
        name,
        kind: Kind::Text,
    };
    columns(
        output,
        &[
            name,
            Head {
                name: value,
                kind: V::KIND,
            },
        ],
    );
    for (name, value) in rows {
        values(output, &[Some(name.to_owned()), value.text()]);
    }
}
