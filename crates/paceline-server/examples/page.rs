//! A pool of the core with the live page, and clients that keep it busy.
//!
//! ```text
//! cargo run --release -p paceline-server --example page
//! cargo run --release -p paceline-server --example page -- --page 127.0.0.1:9000 --threads 8 --clients 0
//! ```
//!
//! The service echoes lines. A line that begins with `sleep` is answered after 20 ms in which its
//! handler blocks, one that begins with `work` after 2 ms of computing.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use lexopt::prelude::{Long, Short, ValueExt};
use paceline::{Context, Next, Pool};

const HELP: &str = "\
A pool of the core with the live page, and clients that keep it busy.

usage: page [options]

  --page ADDR      where the page is (default 127.0.0.1:9000)
  --listen ADDR    where the service is (default: a free port)
  --threads N      threads of the pool (default 4)
  --clients N      clients that this program runs itself (default 6; 0: none)
  --help           this text";

struct Options {
    page: String,
    listen: String,
    threads: usize,
    clients: usize,
}

fn main() -> ExitCode {
    let ran = match parse() {
        Ok(Some(options)) => run(&options),
        Ok(None) => writeln!(io::stdout(), "{HELP}"),
        Err(error) => {
            eprintln!("page: {error} (--help lists the options)");
            return ExitCode::from(2);
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("page: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options {
        page: "127.0.0.1:9000".to_owned(),
        listen: "127.0.0.1:0".to_owned(),
        threads: 4,
        clients: 6,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("page") => options.page = parser.value()?.string()?,
            Long("listen") => options.listen = parser.value()?.string()?,
            Long("threads") => options.threads = parser.value()?.parse()?,
            Long("clients") => options.clients = parser.value()?.parse()?,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn run(options: &Options) -> io::Result<()> {
    // The board adds the names of threads and handlers to the page.
    let pool = Pool::builder()
        .threads(options.threads)
        .board(true)
        .build()?;
    let listener = pool.listen(&*options.listen, |_: &TcpStream, _| Some(echo))?;
    let page = paceline_server::page(&pool)
        .name("echo")
        .at(&*options.page)
        .start()?;
    println!("listening on {}", listener.local_addr());
    println!("page on {}", page.url());
    for number in 0..options.clients {
        let address = listener.local_addr();
        thread::spawn(move || {
            if let Err(error) = client(address, number) {
                eprintln!("page: client {number}: {error}");
            }
        });
    }
    loop {
        thread::park();
    }
}

/// Answers what has come. The clients of this program send one line at a time.
fn echo(cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
    let mut buffer = paceline::scratch();
    let count = cx.read(&mut buffer)?;
    let bytes = &buffer[..count];
    if bytes.is_empty() {
        return Ok(Next::Close);
    }
    if bytes.starts_with(b"sleep") {
        cx.blocking(|| thread::sleep(Duration::from_millis(20)));
    } else if bytes.starts_with(b"work") {
        let until = Instant::now() + Duration::from_millis(2);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
    cx.write_all(bytes)?;
    Ok(Next::Continue)
}

/// Sends a line after the other: now many quick ones, now one that takes longer.
fn client(address: SocketAddr, number: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut answer = String::new();
    for round in number.. {
        let line = match round % 40 {
            0 => "sleep\n",
            10 | 11 => "work\n",
            _ => "quick\n",
        };
        stream.write_all(line.as_bytes())?;
        answer.clear();
        answers.read_line(&mut answer)?;
        // A pause now and then, longer for some: so the lanes differ.
        if round % 8 == 0 {
            thread::sleep(Duration::from_millis(3 + 4 * number as u64));
        }
    }
    Ok(())
}
