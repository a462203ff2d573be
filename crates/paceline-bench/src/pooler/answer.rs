//! A back-end that has one answer, and gives it at once: a pool of ours that speaks PostgreSQL's protocol.

use std::{
    env,
    io::{self, BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use paceline::{scratch, Context, EventHandler, Next, Pool};
use paceline_pg_wire::{
    backend::{self, Authentication},
    frontend::Request,
    startup::Startup,
    Message, TransactionStatus,
};

/// The longest message that is understood.
const LONGEST: usize = 1 << 16;
/// The row description of `abalance`, an int4, and one row.
const COLUMN: &[u8] =
    b"T\0\0\0\x21\0\x01abalance\0\0\0\x40\x04\0\x03\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
const ROW: &[u8] = b"D\0\0\0\x0b\0\x01\0\0\0\x010";

/// Where it is to listen.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    listen: SocketAddr,
}

/// Answers until standard input ends.
///
/// # Errors
/// The address can't be bound.
pub(crate) fn serve(args: &AnswerArgs) -> io::Result<()> {
    let pool = Pool::builder().threads(1).build()?;
    let listener = pool.listen(args.listen, |stream: &TcpStream, _| {
        stream.set_nodelay(true).ok().map(|()| Session::default())
    })?;
    println!("listening on {}", listener.local_addr());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

#[derive(Default)]
struct Session {
    is_started: bool,
    /// The start of a message that is not whole.
    rest: Vec<u8>,
}

impl EventHandler<TcpStream> for Session {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut buffer = scratch();
        let count = cx.read(&mut buffer)?;
        if count == 0 {
            return Ok(Next::Close);
        }
        let mut output = Vec::new();
        let is_over = if self.rest.is_empty() {
            let taken = self.answer(&buffer[..count], &mut output)?;
            self.rest.extend_from_slice(&buffer[taken.0..count]);
            taken.1
        } else {
            let mut input = std::mem::take(&mut self.rest);
            input.extend_from_slice(&buffer[..count]);
            let taken = self.answer(&input, &mut output)?;
            self.rest.extend_from_slice(&input[taken.0..]);
            taken.1
        };
        cx.write_all(&output)?;
        Ok(if is_over { Next::Close } else { Next::Continue })
    }
}

impl Session {
    /// Answers every whole message. How many bytes they have, and whether the client ends.
    fn answer(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<(usize, bool)> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let taken = if self.is_started {
                match Message::first(rest, LONGEST)? {
                    Some((Message { tag: b'X', .. }, _)) => return Ok((input.len(), true)),
                    Some((message, length)) => {
                        reply(Request::read(message)?, output);
                        length
                    }
                    None => return Ok((at, false)),
                }
            } else {
                match Startup::first(rest)? {
                    Some((packet, length)) => {
                        self.start(&packet, output);
                        length
                    }
                    None => return Ok((at, false)),
                }
            };
            at += taken;
        }
    }

    fn start(&mut self, packet: &Startup<'_>, output: &mut Vec<u8>) {
        if !matches!(packet, Startup::Session(_)) {
            output.push(b'N');
            return;
        }
        self.is_started = true;
        backend::authentication(output, Authentication::Ok);
        let parameters = [
            ("server_version", "15.0"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("TimeZone", "UTC"),
            ("standard_conforming_strings", "on"),
            ("integer_datetimes", "on"),
        ];
        for (name, value) in parameters {
            backend::parameter(output, name.as_bytes(), value.as_bytes());
        }
        backend::key_data(output, 1, &[0; 4]);
        backend::ready_for_query(output, TransactionStatus::Idle);
    }
}

fn reply(request: Request<'_>, output: &mut Vec<u8>) {
    match request {
        Request::Query(sql) => {
            if sql.starts_with(b"SELECT") {
                output.extend_from_slice(COLUMN);
                output.extend_from_slice(ROW);
                backend::command_complete(output, b"SELECT 1");
            } else {
                backend::command_complete(output, b"SET");
            }
            backend::ready_for_query(output, TransactionStatus::Idle);
        }
        Request::Parse(_) => backend::parse_complete(output),
        Request::Bind(_) => backend::bind_complete(output),
        Request::Describe(_) => output.extend_from_slice(COLUMN),
        Request::Execute { .. } => {
            output.extend_from_slice(ROW);
            backend::command_complete(output, b"SELECT 1");
        }
        Request::Close(_) => backend::close_complete(output),
        Request::Sync => backend::ready_for_query(output, TransactionStatus::Idle),
        _ => {}
    }
}

/// The back-end in a process of its own. Dropped, it ends.
pub(super) struct Answering {
    process: Child,
    port: u16,
}

impl Answering {
    pub(super) fn start() -> io::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg("pooler-answer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = process.stdout.as_mut() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .and_then(|it| it.parse::<SocketAddr>().ok());
        match address {
            Some(address) => Ok(Self {
                process,
                port: address.port(),
            }),
            None => Err(io::Error::other(format!(
                "the back-end says {line:?}, not where it listens"
            ))),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
