//! The client: one thread asks on all connections, as soon as each answer is there.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    fd::OwnedFd,
    io::Errno,
};
use rustls::ClientConfig;

use super::{
    wire::{length_of_answer, Wire},
    works::{self, Request, Work},
    Found,
};
use crate::{serve::raise_descriptors, usage::Sample};

/// Before anything counts.
const WARM_UP: Duration = Duration::from_millis(500);
/// How often a slow client sends a byte.
const SLOW_BYTE: Duration = Duration::from_secs(1);
/// Connections that come and go before memory is counted.
const FIRST: usize = 64;

/// What is asked of whom.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Where the server listens
    pub(super) address: SocketAddr,
    /// The work
    #[arg(long, value_name = "NAME")]
    pub(super) work: String,
    /// The server's process
    #[arg(long, value_name = "PID")]
    pub(super) pid: u32,
    /// How long the measurement lasts
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS")]
    pub(super) seconds: f64,
}

/// The connections, and what came over them.
struct Load<'w> {
    work: &'w Work,
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    epoll: OwnedFd,
    wires: Vec<Wire>,
    /// The bytes and the length of the answer of each kind of request.
    forms: Vec<(Vec<u8>, usize)>,
    /// How many requests were sent.
    asked: u64,
    answers: u64,
    errors: u64,
    latencies: Histogram<u64>,
    buffer: Vec<u8>,
}

/// Asks for a while.
///
/// # Errors
/// The server does not answer as it should from the start, or the system has no descriptors left.
pub(super) fn run(args: &LoadArgs) -> io::Result<Found> {
    raise_descriptors();
    let work = works::find(&args.work).ok_or_else(|| {
        let text = format!("there is no work {:?}", args.work);
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    let mut load = Load::new(work, args.address)?;
    if work.is_idle {
        return load.measure_memory(args.pid);
    }
    load.connect(work.connections)?;
    let mut slow = slow_clients(args.address, work.slow)?;
    load.begin()?;
    load.go_on_until(Instant::now() + WARM_UP, &mut slow)?;
    load.forget();
    let (before, since) = (Sample::begin(Some(args.pid))?, Instant::now());
    load.go_on_until(since + Duration::from_secs_f64(args.seconds), &mut slow)?;
    let seconds = since.elapsed().as_secs_f64();
    let used = Sample::end(Some(args.pid))?.since(&before);
    Ok(Found {
        seconds,
        server_cpu: used.server_cpu,
        client_cpu: used.client_cpu,
        ..load.found()
    })
}

impl<'w> Load<'w> {
    fn new(work: &'w Work, address: SocketAddr) -> io::Result<Self> {
        let tls = work.tls.then(crate::tls::client).transpose()?;
        let wanted = [work.request(0), work.request(99)];
        let forms = Request::ALL.map(|request| {
            let bytes = work.bytes(request);
            let length = if wanted.contains(&request) {
                length_of_answer(address, tls.as_ref(), &bytes)?
            } else {
                0
            };
            Ok((bytes, length))
        });
        Ok(Self {
            work,
            address,
            tls,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wires: Vec::new(),
            forms: forms.into_iter().collect::<io::Result<_>>()?,
            asked: 0,
            answers: 0,
            errors: 0,
            latencies: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .map_err(io::Error::other)?,
            buffer: vec![0; 256 * 1024],
        })
    }

    fn connect(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let wire = Wire::connect(self.address, self.tls.as_ref())?;
            let data = EventData::new_u64(self.wires.len() as u64);
            epoll::add(&self.epoll, &wire.stream, data, EVENTS)?;
            self.wires.push(wire);
        }
        Ok(())
    }

    /// Sends the first requests on each connection.
    fn begin(&mut self) -> io::Result<()> {
        for at in 0..self.wires.len() {
            self.ask(at, self.work.pipeline)?;
        }
        Ok(())
    }

    /// Sends so many requests. Several at once are the same: only works without a pipeline mix them.
    fn ask(&mut self, at: usize, count: usize) -> io::Result<()> {
        let request = self.work.request(self.asked);
        self.asked += count as u64;
        self.wires[at].ask(request, &self.forms[request as usize], count)
    }

    fn go_on_until(&mut self, end: Instant, slow: &mut [TcpStream]) -> io::Result<()> {
        let mut events = Vec::with_capacity(1024);
        let mut next_byte = Instant::now() + SLOW_BYTE;
        while Instant::now() < end {
            events.clear();
            let timeout = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.serve(event.data.u64() as usize)?;
            }
            if !slow.is_empty() && Instant::now() >= next_byte {
                next_byte += SLOW_BYTE;
                // One that is closed has been refused, which is the server's right.
                slow.iter_mut().for_each(|client| drop(client.write(b"x")));
            }
        }
        Ok(())
    }

    /// Something can be done on a connection.
    fn serve(&mut self, at: usize) -> io::Result<()> {
        let wire = &mut self.wires[at];
        let came = match wire.flush().and_then(|()| wire.read(&mut self.buffer)) {
            Ok(came) if !came.is_wrong => came,
            _ => return self.replace(at),
        };
        let now = Instant::now();
        // The latency of a request that sleeps is its sleep: what counts is how the others fare.
        let quick = came
            .answered
            .iter()
            .filter(|it| it.request != Request::Sleep);
        for asked in quick {
            let took = now.duration_since(asked.since).as_nanos();
            self.latencies
                .saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
        }
        let count = came.answered.len();
        self.answers += count as u64;
        if self.work.is_fresh && count > 0 {
            return self.renew(at);
        }
        if came.is_closed {
            return self.replace(at);
        }
        if count == 0 {
            return Ok(());
        }
        self.ask(at, count)
    }

    /// A connection is lost.
    fn replace(&mut self, at: usize) -> io::Result<()> {
        self.errors += 1;
        self.renew(at)
    }

    fn renew(&mut self, at: usize) -> io::Result<()> {
        let wire = Wire::connect(self.address, self.tls.as_ref())?;
        let data = EventData::new_u64(at as u64);
        epoll::add(&self.epoll, &wire.stream, data, EVENTS)?;
        // The old one leaves the set as it is closed.
        self.wires[at] = wire;
        self.ask(at, self.work.pipeline)
    }

    fn forget(&mut self) {
        (self.answers, self.errors) = (0, 0);
        self.latencies.reset();
    }

    fn found(&self) -> Found {
        let micros = |share| self.latencies.value_at_quantile(share) as f64 / 1000.0;
        Found {
            answers: self.answers,
            errors: self.errors,
            seconds: 0.0,
            server_cpu: 0.0,
            client_cpu: 0.0,
            p50: micros(0.5),
            p99: micros(0.99),
            memory: 0.0,
        }
    }

    /// Opens the connections, asks once on each, and compares the memory of the server.
    fn measure_memory(mut self, pid: u32) -> io::Result<Found> {
        self.connect(FIRST)?;
        self.ask_each_once()?;
        self.wires.clear();
        let before = resident(pid)?;
        self.connect(self.work.connections)?;
        self.ask_each_once()?;
        let after = resident(pid)?;
        let growth = after as f64 - before as f64;
        Ok(Found {
            memory: growth / self.work.connections as f64,
            ..self.found()
        })
    }

    fn ask_each_once(&mut self) -> io::Result<()> {
        let form = self.forms[Request::Plain as usize].clone();
        let until = Instant::now() + Duration::from_secs(30);
        for wire in &mut self.wires {
            wire.ask(Request::Plain, &form, 1)?;
            loop {
                let came = wire.read(&mut self.buffer)?;
                if came.is_wrong || came.is_closed || Instant::now() > until {
                    return Err(io::Error::other("an idle connection gets no answer"));
                }
                if !came.answered.is_empty() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

const EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::ET)
    .union(EventFlags::RDHUP);

/// Clients that have begun a head.
fn slow_clients(address: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    let begin = |_| {
        let mut client = TcpStream::connect(address)?;
        client.write_all(b"GET /hello HTTP/1.1\r\nhost: localhost\r\nx-slow: ")?;
        client.set_nonblocking(true)?;
        Ok(client)
    };
    (0..count).map(begin).collect()
}

/// The process's own resident memory, in bytes.
fn resident(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| io::Error::other("read the memory of the server: no RssAnon"))?;
    Ok(kib * 1024)
}
