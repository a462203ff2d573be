//! The embedded back-ends: programs of our own, each with its data.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use paceline_check::client::Target;

use super::{front::Database, Launch, Plan};
use crate::{
    ports::{self, Wish},
    USER,
};

/// The databases of each back-end; the first one names it.
const BACK_ENDS: [&[&str]; 2] = [&["bank", "scratch"], &["travel"]];

/// The back-ends with their data below this folder, and the databases that the front-end knows.
pub(crate) fn plans(folder: &Path, program: &Path) -> io::Result<(Vec<Plan>, Vec<Database>)> {
    let mut plans = Vec::new();
    let mut databases = Vec::new();
    for names in BACK_ENDS {
        let port = ports::find(Wish::Any, "a back-end")?;
        databases.extend(names.iter().map(|name| Database {
            name,
            host: "127.0.0.1".to_owned(),
            port: port.to_string(),
            dbname: name,
        }));
        plans.push(plan(folder, program.to_owned(), names, port)?);
    }
    Ok((plans, databases))
}

fn plan(folder: &Path, program: PathBuf, names: &[&str], port: u16) -> io::Result<Plan> {
    let name = names[0];
    let data = folder.join(name);
    fs::create_dir_all(&data)?;
    let listen = format!("127.0.0.1:{port}");
    let words = ["back", "--listen", &listen, "--data"];
    let mut arguments: Vec<OsString> = words.iter().map(Into::into).collect();
    arguments.push(data.into());
    arguments.extend(
        names
            .iter()
            .flat_map(|name| ["--database", name])
            .map(Into::into),
    );
    Ok(Plan {
        name: name.to_owned(),
        tier: "back-end",
        launch: Launch {
            program,
            arguments,
            log: folder.join(format!("{name}.log")),
        },
        probe: Target {
            port,
            user: USER.to_owned(),
            database: name.to_owned(),
            ..Target::default()
        },
        question: "SELECT 1",
        page: None,
    })
}
