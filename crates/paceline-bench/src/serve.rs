//! `serve`: one server in a process of its own, and what it has to do with the process that started it.
//!
//! ```text
//!  stdout  listening on 127.0.0.1:PORT     once, first
//!  stdin   (any line)                      asks for the counts so far
//!  stdout  {"allocations": ..}             the answer: one line of JSON
//!  stdin   (its end)                       the process ends, and with it the server
//! ```
//!
//! So nothing is left when the parent is gone.

use std::{
    io::{self, BufRead, Write},
    net::{SocketAddr, TcpListener},
    process, thread,
};

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use crate::servers::{
    counts::{self, Counts},
    Means, Serve, Server, Setting,
};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Serves until the end of stdin.
pub(crate) fn serve(
    server: &Server,
    listen: SocketAddr,
    setting: &Setting,
    count: bool,
) -> io::Result<()> {
    raise_descriptors();
    let setting = &Setting {
        threads: server.threads.unwrap_or(setting.threads),
        ..*setting
    };
    match server.means {
        Means::Program(program) => Err(program.become_it(listen, setting, count)),
        Means::Here(serve) => {
            if count {
                counts::start();
            }
            let address = start(serve, bind(listen)?, setting)?;
            let mut out = io::stdout();
            writeln!(out, "listening on {address}")?;
            out.flush()?;
            answer(io::stdin().lock(), out)
        }
    }
}

/// Makes sure that a server can be started: builds its program, if it is one.
pub(crate) fn prepare(server: &Server) -> io::Result<()> {
    match server.means {
        Means::Here(_) => Ok(()),
        Means::Program(program) => program.build().map(drop),
    }
}

pub(crate) fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(listen)
        .map_err(|error| io::Error::new(error.kind(), format!("listen on {listen}: {error}")))?;
    // Once more, for a longer queue than std's.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Starts a server on a thread of its own; returns its address.
fn start(serve: Serve, listener: TcpListener, setting: &Setting) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let setting = setting.clone();
    thread::Builder::new().spawn(move || {
        if let Err(error) = serve(listener, &setting) {
            eprintln!("the server ended: {error}");
            process::exit(1);
        }
    })?;
    Ok(address)
}

/// Answers each line with the counts so far.
fn answer(questions: impl BufRead, mut out: impl Write) -> io::Result<()> {
    for question in questions.lines() {
        question?;
        serde_json::to_writer(&mut out, &Counts::so_far())?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// As many descriptors as this process may have.
pub(crate) fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If that fails there are as many as before.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

#[cfg(test)]
mod tests;
