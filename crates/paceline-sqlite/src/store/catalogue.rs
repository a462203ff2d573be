//! PostgreSQL's catalogue, as temporary views over SQLite's schema, and the functions that queries
//! of psql and of drivers call with it.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{
    functions::{Context, FunctionFlags},
    Connection, Result,
};

use super::{functions::json_text, link::Link};
use crate::{
    dialect::{
        counter,
        definition::{constraints, Constraint, Kind},
    },
    failure::Failure,
    types::{Declared, Type},
};

const FLAGS: FunctionFlags = FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_DETERMINISTIC);

/// What a database knows of its server: the names that psql lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    pub(crate) databases: Vec<String>,
    pub(crate) users: Vec<String>,
}

/// Makes the views and functions on a connection. `asking` is the user of the running statement.
pub(super) fn define(
    link: &Link,
    database: &str,
    directory: &Directory,
    asking: &Arc<Mutex<String>>,
) -> std::result::Result<(), Failure> {
    functions(&link.connection, database)?;
    names(&link.connection, directory, asking)?;
    definitions(&link.connection)?;
    link.batch("PRAGMA query_only = OFF")?;
    link.batch(include_str!("catalogue.sql"))?;
    link.batch("PRAGMA query_only = ON")
}

/// The role that owns everything.
const OWNER: &str = "paceline";

/// The databases and the roles, as arrays of JSON.
fn names(
    connection: &Connection,
    directory: &Directory,
    asking: &Arc<Mutex<String>>,
) -> Result<()> {
    let databases = json_array(&directory.databases);
    connection.create_scalar_function("paceline_databases", 0, FLAGS, move |_| {
        Ok(databases.clone())
    })?;
    let (users, asking) = (directory.users.clone(), Arc::clone(asking));
    let roles = move |_: &Context<'_>| {
        let asking = asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut roles = vec![OWNER.to_owned()];
        for user in users.iter().chain([&*asking]) {
            if !roles.contains(user) {
                roles.push(user.clone());
            }
        }
        Ok(json_array(&roles))
    };
    // Not deterministic: the user changes from statement to statement.
    connection.create_scalar_function("paceline_roles", 0, FunctionFlags::SQLITE_UTF8, roles)
}

/// What the definitions of tables say beyond SQLite's schema.
fn definitions(connection: &Connection) -> Result<()> {
    connection.create_scalar_function("paceline_counter", 1, FLAGS, |cx| {
        let sql = cx.get::<Option<String>>(0)?;
        let kind = sql.and_then(|sql| counter::declared(&sql));
        Ok(kind.map(|kind| kind.0))
    })?;
    connection.create_scalar_function("paceline_key_name", 3, FLAGS, |cx| {
        name_of(cx, |kind| matches!(kind, Kind::Key | Kind::Unique))
    })?;
    connection.create_scalar_function("paceline_foreign_name", 3, FLAGS, |cx| {
        name_of(cx, |kind| matches!(kind, Kind::Foreign(_)))
    })?;
    connection.create_scalar_function("paceline_checks", 2, FLAGS, |cx| {
        let (table, sql): (String, Option<String>) = (cx.get(0)?, cx.get(1)?);
        let all = constraints(&table, &sql.unwrap_or_default());
        let check = |constraint: Constraint| match constraint.kind {
            Kind::Check(text) => Some(json_array(&[constraint.name, text])),
            _ => None,
        };
        let checks: Vec<_> = all.into_iter().filter_map(check).collect();
        Ok(format!("[{}]", checks.join(",")))
    })
}

/// The name of the constraint of a table (its name, its definition) with these columns, an array of
/// JSON.
fn name_of(cx: &Context<'_>, is_kind: fn(&Kind) -> bool) -> Result<Option<String>> {
    let (table, sql): (String, Option<String>) = (cx.get(0)?, cx.get(1)?);
    let columns: String = cx.get(2)?;
    let all = constraints(&table, &sql.unwrap_or_default());
    let is_it = |constraint: &&Constraint| {
        is_kind(&constraint.kind) && json_array(&constraint.columns) == columns
    };
    let found = all.iter().find(is_it);
    Ok(found.map(|constraint| constraint.name.clone()))
}

fn json_array(texts: &[String]) -> String {
    let items: Vec<_> = texts.iter().map(|text| json_text(text)).collect();
    format!("[{}]", items.join(","))
}

fn functions(connection: &Connection, database: &str) -> Result<()> {
    let database = database.to_owned();
    connection.create_scalar_function("pg_current_database", 0, FLAGS, move |_| {
        Ok(database.clone())
    })?;
    connection.create_scalar_function("quote_column", 1, FLAGS, |cx| {
        Ok(cx
            .get::<Option<String>>(0)?
            .map(|name| quoted_if_needed(&name)))
    })?;
    connection.create_scalar_function("pg_type_oid", 1, FLAGS, |cx| {
        Ok(Declared::of_column(&cx.get::<String>(0)?).kind.0)
    })?;
    connection.create_scalar_function("pg_type_modifier", 1, FLAGS, |cx| {
        Ok(Declared::of_column(&cx.get::<String>(0)?).modifier)
    })?;
    connection.create_scalar_function("format_type", 2, FLAGS, |cx| {
        let kind = cx.get::<Option<u32>>(0)?;
        let modifier = cx.get::<Option<i32>>(1)?.unwrap_or(-1);
        Ok(kind.map(|kind| type_name(Type(kind), modifier)))
    })?;
    for (name, value) in CONSTANTS {
        connection.create_scalar_function(name, -1, FLAGS, move |_| Ok(value))?;
    }
    for name in TRUE {
        connection.create_scalar_function(name, -1, FLAGS, |_| Ok(1))?;
    }
    for name in NULL {
        connection.create_scalar_function(name, -1, FLAGS, |_| Ok(None::<String>))?;
    }
    for name in FIRST {
        connection
            .create_scalar_function(name, -1, FLAGS, |cx| cx.get::<rusqlite::types::Value>(0))?;
    }
    Ok(())
}

const CONSTANTS: [(&str, &str); 4] = [
    ("pg_get_userbyid", "paceline"),
    ("pg_encoding_to_char", "UTF8"),
    ("current_schemas", "{pg_catalog,public}"),
    ("pg_size_pretty", "0 bytes"),
];

/// Functions that always return true.
const TRUE: [&str; 10] = [
    "pg_table_is_visible",
    "pg_type_is_visible",
    "pg_function_is_visible",
    "pg_opclass_is_visible",
    "has_table_privilege",
    "has_schema_privilege",
    "has_database_privilege",
    "has_column_privilege",
    "has_any_column_privilege",
    "pg_has_role",
];

/// Functions about objects that SQLite does not have: they return NULL.
const NULL: [&str; 13] = [
    "obj_description",
    "col_description",
    "shobj_description",
    "pg_get_function_result",
    "pg_get_function_arguments",
    "pg_get_partkeydef",
    "pg_get_statisticsobjdef_columns",
    "pg_get_serial_sequence",
    "pg_tablespace_location",
    "pg_relation_size",
    "pg_table_size",
    "pg_total_relation_size",
    "pg_database_size",
];

/// Functions that return their first argument.
const FIRST: [&str; 2] = ["pg_get_expr", "array_to_string"];

/// The name of a type as PostgreSQL writes it, with its restriction.
fn type_name(kind: Type, modifier: i32) -> String {
    let restricted = |name: &str| {
        if modifier < 4 {
            return name.to_owned();
        }
        let modifier = modifier - 4;
        if kind == Type::NUMERIC {
            format!("{name}({},{})", modifier >> 16, modifier & 0xffff)
        } else {
            format!("{name}({modifier})")
        }
    };
    match kind {
        Type::BOOL => "boolean".to_owned(),
        Type::BYTEA => "bytea".to_owned(),
        Type::CHAR => "\"char\"".to_owned(),
        Type::NAME => "name".to_owned(),
        Type::INT8 => "bigint".to_owned(),
        Type::INT2 => "smallint".to_owned(),
        Type::INT4 => "integer".to_owned(),
        Type::OID => "oid".to_owned(),
        Type::JSON => "json".to_owned(),
        Type::FLOAT4 => "real".to_owned(),
        Type::FLOAT8 => "double precision".to_owned(),
        Type::BPCHAR => restricted("character"),
        Type::VARCHAR => restricted("character varying"),
        Type::DATE => "date".to_owned(),
        Type::TIME => "time without time zone".to_owned(),
        Type::TIMESTAMP => "timestamp without time zone".to_owned(),
        Type::TIMESTAMPTZ => "timestamp with time zone".to_owned(),
        Type::NUMERIC => restricted("numeric"),
        Type::UUID => "uuid".to_owned(),
        Type::JSONB => "jsonb".to_owned(),
        Type::TEXT => "text".to_owned(),
        Type::UNKNOWN => "unknown".to_owned(),
        kind => match kind.element() {
            Some(element) => format!("{}[]", type_name(element, -1)),
            None => "???".to_owned(),
        },
    }
}

fn quoted_if_needed(name: &str) -> String {
    let is_plain = !name.is_empty()
        && !name.starts_with(|char: char| char.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_plain {
        name.to_owned()
    } else {
        crate::dialect::source::quote_name(name)
    }
}

/// The type of a column of the catalogue that is an expression of its view.
pub(crate) fn column_type(name: &str) -> Option<Declared> {
    const BOOLEANS: [&str; 40] = [
        "relhasindex",
        "relisshared",
        "relhasrules",
        "relhastriggers",
        "relhassubclass",
        "relrowsecurity",
        "relforcerowsecurity",
        "relispopulated",
        "relispartition",
        "indisunique",
        "indisprimary",
        "indisexclusion",
        "indimmediate",
        "indisclustered",
        "indisvalid",
        "indisready",
        "indislive",
        "indisreplident",
        "attnotnull",
        "atthasdef",
        "attisdropped",
        "attislocal",
        "atthasmissing",
        "condeferrable",
        "condeferred",
        "convalidated",
        "conislocal",
        "connoinherit",
        "tgisinternal",
        "typisdefined",
        "typnotnull",
        "rolsuper",
        "rolinherit",
        "rolcreaterole",
        "rolcreatedb",
        "rolcanlogin",
        "rolreplication",
        "rolbypassrls",
        "datistemplate",
        "datallowconn",
    ];
    const CHARS: [&str; 12] = [
        "relkind",
        "relpersistence",
        "relreplident",
        "typtype",
        "typcategory",
        "typdelim",
        "contype",
        "attidentity",
        "attgenerated",
        "prokind",
        "kind",
        "elemdelim",
    ];
    const NAMES: [&str; 8] = [
        "relname", "typname", "nspname", "attname", "conname", "rolname", "datname", "ns",
    ];
    const OIDS: [&str; 25] = [
        "basetype",
        "elemtype",
        "range_subtype",
        "oid",
        "relnamespace",
        "reltype",
        "relowner",
        "relam",
        "reltablespace",
        "attrelid",
        "atttypid",
        "attcollation",
        "indexrelid",
        "indrelid",
        "conrelid",
        "conindid",
        "confrelid",
        "typnamespace",
        "typrelid",
        "typelem",
        "typarray",
        "typbasetype",
        "adrelid",
        "tgrelid",
        "reloftype",
    ];
    let kind = if BOOLEANS.contains(&name) {
        Type::BOOL
    } else if OIDS.contains(&name) {
        Type::OID
    } else if CHARS.contains(&name) {
        Type::CHAR
    } else if NAMES.contains(&name) {
        Type::NAME
    } else if matches!(
        name,
        "attnum" | "relnatts" | "attlen" | "typlen" | "relchecks"
    ) {
        Type::INT2
    } else if matches!(
        name,
        "atttypmod" | "typtypmod" | "encoding" | "rolconnlimit" | "ordinal_position" | "depth"
    ) {
        Type::INT4
    } else {
        return None;
    };
    Some(Declared::plain(kind))
}
