//! PostgreSQL's types, and how SQLite's values map to them.
//!
//! ```text
//!   declared type  --> Type [Column::declared]      value --> text or binary  [encode]
//!   text or binary --> value                                                  [parameter]
//! ```

pub(crate) mod array;
pub(crate) mod encode;
mod float;
pub(crate) mod moment;
mod numeric;
pub(crate) mod parameter;
mod time;

/// A type, by the number that PostgreSQL gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Type(pub(crate) u32);

/// A type, and what it is restricted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) kind: Type,
    /// As PostgreSQL's `atttypmod`; -1: nothing.
    pub(crate) modifier: i32,
}

/// Types, and the types of their arrays.
const ARRAYS: [(Type, Type); 20] = [
    (Type::OID, Type(1028)),
    (Type::BOOL, Type(1000)),
    (Type::BYTEA, Type(1001)),
    (Type::NAME, Type(1003)),
    (Type::INT2, Type(1005)),
    (Type::INT4, Type(1007)),
    (Type::TEXT, Type(1009)),
    (Type::BPCHAR, Type(1014)),
    (Type::VARCHAR, Type(1015)),
    (Type::INT8, Type(1016)),
    (Type::FLOAT4, Type(1021)),
    (Type::FLOAT8, Type(1022)),
    (Type::TIMESTAMP, Type(1115)),
    (Type::DATE, Type(1182)),
    (Type::TIME, Type(1183)),
    (Type::TIMESTAMPTZ, Type(1185)),
    (Type::NUMERIC, Type(1231)),
    (Type::UUID, Type(2951)),
    (Type::JSON, Type(199)),
    (Type::JSONB, Type(3807)),
];

impl Type {
    pub(crate) const BOOL: Self = Self(16);
    pub(crate) const BYTEA: Self = Self(17);
    pub(crate) const CHAR: Self = Self(18);
    pub(crate) const NAME: Self = Self(19);
    pub(crate) const INT8: Self = Self(20);
    pub(crate) const INT2: Self = Self(21);
    pub(crate) const INT4: Self = Self(23);
    pub(crate) const REGPROC: Self = Self(24);
    pub(crate) const TEXT: Self = Self(25);
    pub(crate) const OID: Self = Self(26);
    pub(crate) const JSON: Self = Self(114);
    pub(crate) const FLOAT4: Self = Self(700);
    pub(crate) const FLOAT8: Self = Self(701);
    pub(crate) const UNKNOWN: Self = Self(705);
    pub(crate) const BPCHAR: Self = Self(1042);
    pub(crate) const VARCHAR: Self = Self(1043);
    pub(crate) const DATE: Self = Self(1082);
    pub(crate) const TIME: Self = Self(1083);
    pub(crate) const TIMESTAMP: Self = Self(1114);
    pub(crate) const TIMESTAMPTZ: Self = Self(1184);
    pub(crate) const NUMERIC: Self = Self(1700);
    pub(crate) const UUID: Self = Self(2950);
    pub(crate) const JSONB: Self = Self(3802);

    /// The size of its values; negative: it varies.
    pub(crate) fn size(self) -> i16 {
        match self {
            Self::BOOL | Self::CHAR => 1,
            Self::INT2 => 2,
            Self::INT4 | Self::FLOAT4 | Self::DATE | Self::OID | Self::REGPROC => 4,
            Self::INT8 | Self::FLOAT8 | Self::TIME | Self::TIMESTAMP | Self::TIMESTAMPTZ => 8,
            Self::UUID => 16,
            Self::NAME => 64,
            _ => -1,
        }
    }

    /// PostgreSQL's own name of it.
    pub(crate) fn short_name(self) -> Option<&'static str> {
        Some(match self {
            Self::BOOL => "bool",
            Self::BYTEA => "bytea",
            Self::NAME => "name",
            Self::INT8 => "int8",
            Self::INT2 => "int2",
            Self::INT4 => "int4",
            Self::TEXT => "text",
            Self::OID => "oid",
            Self::JSON => "json",
            Self::FLOAT4 => "float4",
            Self::FLOAT8 => "float8",
            Self::BPCHAR => "bpchar",
            Self::VARCHAR => "varchar",
            Self::DATE => "date",
            Self::TIME => "time",
            Self::TIMESTAMP => "timestamp",
            Self::TIMESTAMPTZ => "timestamptz",
            Self::NUMERIC => "numeric",
            Self::UUID => "uuid",
            Self::JSONB => "jsonb",
            _ => return None,
        })
    }

    /// The type of arrays of it; `None` if there is none.
    pub(crate) fn array(self) -> Option<Self> {
        let found = ARRAYS.iter().find(|(element, _)| *element == self);
        found.map(|(_, array)| *array)
    }

    /// The type of the elements of an array type.
    pub(crate) fn element(self) -> Option<Self> {
        let found = ARRAYS.iter().find(|(_, array)| *array == self);
        found.map(|(element, _)| *element)
    }

    /// The type of this name, with its restriction, such as `numeric(10, 2)`; `None` for a name
    /// that is not PostgreSQL's.
    pub(crate) fn named(name: &str) -> Option<Declared> {
        let lower = name.trim().to_ascii_lowercase();
        if let Some((element, _)) = lower.split_once('[') {
            let kind = Self::named(element)?.kind.array()?;
            return Some(Declared::plain(kind));
        }
        let (base, restriction, tail) = split(&lower);
        let base = format!("{base}{tail}");
        let base = base.strip_prefix("pg_catalog.").unwrap_or(&base);
        let kind = Self::of_name(base.trim())?;
        Some(Declared {
            kind,
            modifier: modifier(kind, base, restriction),
        })
    }

    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "bool" | "boolean" => Self::BOOL,
            "bytea" | "blob" => Self::BYTEA,
            "int8" | "bigint" | "bigserial" | "serial8" => Self::INT8,
            "integer" | "int" | "int4" | "serial" | "serial4" | "mediumint" => Self::INT4,
            "int2" | "smallint" | "smallserial" | "serial2" | "tinyint" => Self::INT2,
            "text" | "citext" | "clob" => Self::TEXT,
            "name" => Self::NAME,
            "oid" => Self::OID,
            "json" => Self::JSON,
            "jsonb" => Self::JSONB,
            "float4" | "real" => Self::FLOAT4,
            "float8" | "double precision" | "double" | "float" => Self::FLOAT8,
            "bpchar" | "character" | "char" => Self::BPCHAR,
            "varchar" | "character varying" => Self::VARCHAR,
            "date" => Self::DATE,
            "time" | "time without time zone" => Self::TIME,
            "timestamp" | "datetime" | "timestamp without time zone" => Self::TIMESTAMP,
            "timestamptz" | "timestamp with time zone" => Self::TIMESTAMPTZ,
            "numeric" | "decimal" => Self::NUMERIC,
            "uuid" => Self::UUID,
            "\"char\"" => Self::CHAR,
            "regproc" => Self::REGPROC,
            _ => return None,
        })
    }
}

impl Declared {
    pub(crate) const TEXT: Self = Self::plain(Type::TEXT);

    pub(crate) const fn plain(kind: Type) -> Self {
        Self { kind, modifier: -1 }
    }

    /// The type of a column of SQLite that was declared so. An integer that is declared `INTEGER`
    /// may be a key of 64 bits.
    pub(crate) fn of_column(declared: &str) -> Self {
        Type::named(declared).unwrap_or(Self::TEXT)
    }

    /// The digits behind the point, if the declaration says how many.
    pub(crate) fn scale(self) -> Option<usize> {
        let is_scaled = self.kind == Type::NUMERIC && self.modifier >= 4;
        is_scaled.then(|| ((self.modifier - 4) & 0xffff) as usize)
    }
}

/// `name(restriction) tail`, without the brackets.
fn split(name: &str) -> (&str, &str, &str) {
    match name.split_once('(') {
        Some((base, rest)) => {
            let (restriction, tail) = rest.split_once(')').unwrap_or((rest, ""));
            (base.trim_end(), restriction, tail)
        }
        None => (name, "", ""),
    }
}

fn modifier(kind: Type, base: &str, restriction: &str) -> i32 {
    let mut numbers = restriction
        .split(',')
        .map_while(|number| number.trim().parse::<i32>().ok());
    match (kind, numbers.next(), numbers.next()) {
        (Type::NUMERIC, Some(precision), scale) => ((precision << 16) | scale.unwrap_or(0)) + 4,
        (Type::VARCHAR | Type::BPCHAR, Some(length), _) => length + 4,
        (Type::BPCHAR, None, _) if base != "bpchar" => 5,
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_types_have_their_numbers() {
        for (declared, oid, modifier) in [
            ("INTEGER", 23, -1),
            ("bigint", 20, -1),
            ("numeric(10,2)", 1700, (10 << 16) + 2 + 4),
            ("character varying(20)", 1043, 24),
            ("char(22)", 1042, 26),
            ("timestamp(3) with time zone", 1184, -1),
            ("double precision", 701, -1),
            ("", 25, -1),
            ("geometry", 25, -1),
            ("integer[]", 1007, -1),
            ("varchar(9)[][3]", 1015, -1),
        ] {
            let found = Declared::of_column(declared);
            assert_eq!(
                (found.kind.0, found.modifier),
                (oid, modifier),
                "{declared}"
            );
        }
        assert_eq!(Declared::of_column("numeric(10,2)").scale(), Some(2));
    }
}
