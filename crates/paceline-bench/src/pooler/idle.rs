//! How much memory a pooler keeps for clients that do nothing.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use paceline_pg_wire::{startup, Message};

use crate::{idle::resident, statistics::Spread};

use super::{
    answer::Answering,
    program::{Pooler, Program},
};

/// Clients that connect before anything is counted.
const FIRST: u32 = 64;
/// A pooler that does not answer a login for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest message of a login.
const LONGEST: usize = 1 << 16;

/// Measures each pooler, and prints a table.
pub(super) fn run(programs: &[Program], count: u32, runs: u32) -> io::Result<()> {
    println!("\n#### Memory of an idle client ({count} of them)\n");
    println!("| pooler | bytes each |\n| --- | ---: |");
    for program in programs {
        let mut found = Vec::new();
        for _ in 0..runs {
            found.push(measure(program, count)?);
        }
        if let Some(spread) = Spread::of(found) {
            let (median, min, max) = (spread.median, spread.min, spread.max);
            println!("| {} | {median:.0} [{min:.0}-{max:.0}] |", program.name);
        }
    }
    Ok(())
}

fn measure(program: &Program, count: u32) -> io::Result<f64> {
    let back_end = Answering::start()?;
    let pooler = Pooler::start(program, back_end.port(), 4)?;
    let first: Vec<_> = (0..FIRST)
        .map(|_| log_in(pooler.port()))
        .collect::<io::Result<_>>()?;
    let before = resident(pooler.id())?;
    let clients: Vec<_> = (0..count)
        .map(|_| log_in(pooler.port()))
        .collect::<io::Result<_>>()?;
    let after = resident(pooler.id())?;
    drop((first, clients));
    Ok(after.saturating_sub(before) as f64 / f64::from(count))
}

/// A client that is logged in, and idle.
fn log_in(port: u16) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    let version = startup::Version { major: 3, minor: 0 };
    startup::session(
        &mut bytes,
        version,
        [(&b"user"[..], &b"bench"[..]), (b"database", b"bench")],
    );
    stream.write_all(&bytes)?;
    let mut input = Vec::new();
    let mut at = 0;
    loop {
        match Message::first(&input[at..], LONGEST)? {
            Some((Message { tag: b'Z', .. }, _)) => return Ok(stream),
            Some((Message { tag: b'E', body }, _)) => {
                let said = String::from_utf8_lossy(body).into_owned();
                return Err(io::Error::other(format!("log in at port {port}: {said}")));
            }
            Some((_, length)) => at += length,
            None => {
                let mut more = [0; 1024];
                let count = stream.read(&mut more)?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                input.extend_from_slice(&more[..count]);
            }
        }
    }
}
