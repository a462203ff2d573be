//! An embedded database server: PostgreSQL's protocol over SQLite, on a Leader/Followers pool.
//!
//! ```text
//!   client --> session [handler] --> dialect: tokens, translated text
//!                                --> store:   readers . snapshots . the lane of writers . the log
//!          <-- rows [types]      <--          SQLite
//! ```
//!
//! A session is a handler of the pool and has no thread and no connection to the file of its own.
//! A session that waits, for the lane of writers or for a sync, blocks no thread.
//!
//! ```
//! use std::time::Duration;
//! use paceline_sqlite::Server;
//!
//! let folder = std::env::temp_dir().join(format!("paceline-doc-{}", std::process::id()));
//! let server = Server::builder(&folder).database("bank").listen("127.0.0.1:0").start()?;
//! let url = format!("host=127.0.0.1 port={} user=ada dbname=bank", server.local_addr().port());
//! let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("a session");
//! client.batch_execute("CREATE TABLE t(id int, name text)").expect("a table");
//! client.execute("INSERT INTO t VALUES ($1, $2)", &[&7, &"seven"]).expect("a row");
//! let row = client.query_one("SELECT name FROM t WHERE id = $1", &[&7]).expect("the row");
//! assert_eq!(row.get::<_, &str>(0), "seven");
//! drop(client);
//! assert!(server.shutdown(Duration::from_secs(5)).pool.is_clean());
//! std::fs::remove_dir_all(folder)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! What differs from PostgreSQL is in `docs/back-end.md` of the repository.
#![forbid(unsafe_code)]

mod dialect;
mod failure;
mod server;
mod session;
mod spool;
mod store;
mod types;

pub use server::{cli, Builder, Durability, Limits, Report, Running, Server, Statistics};
