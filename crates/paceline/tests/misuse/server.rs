//! What a multiplexed connection speaks, and a server that answers as its plan says.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use paceline::bound::{Header, Protocol, Whose};

use crate::support::Random;

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply,
    Late(Duration),
    Never,
    Twice,
    Unknown,
    OfItsOwn,
    /// It sends a part of the reply, and ends the connection.
    Torn,
    Drip,
}

/// Where an id has few bits, a second reply looks like that of a later call.
pub(crate) fn answer(random: &mut Random, bits: u32) -> Answer {
    let in_order = bits == 0;
    let late = Duration::from_micros(random.below(3000));
    match random.below(16) {
        0 | 1 => Answer::Late(late),
        2 if !in_order => Answer::Never,
        3 if bits > 16 => Answer::Twice,
        4 if !in_order => Answer::Unknown,
        5 if !in_order => Answer::OfItsOwn,
        6 if random.once_in(3) => Answer::Torn,
        7 => Answer::Drip,
        _ => Answer::Reply,
    }
}

/// Four bytes of id, then eight of the request, and of the reply.
pub(crate) struct Wire<const BITS: u32>;

impl<const BITS: u32> Protocol for Wire<BITS> {
    type Request = u64;
    const ID_BITS: u32 = BITS;

    fn encode(&self, request: &u64, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend((id as u32).to_be_bytes());
        out.extend(request.to_be_bytes());
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        let Some(id) = bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let whose = match u32::from_be_bytes(*id) {
            u32::MAX => Whose::Peer,
            _ if BITS == 0 => Whose::Oldest,
            id => Whose::Call(id.into()),
        };
        Ok(Some(Header {
            whose,
            skip: 4,
            length: 8,
        }))
    }
}

/// The server: a thread, and one more for each connection.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) is_calm: Arc<AtomicBool>,
    pub(crate) is_mute: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Server {
    pub(crate) fn begin(in_order: bool, answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let is_calm = Arc::new(AtomicBool::new(false));
        let is_mute = Arc::new(AtomicBool::new(false));
        let is_over = Arc::new(AtomicBool::new(false));
        let server = Serving {
            in_order,
            answers,
            is_calm: Arc::clone(&is_calm),
            is_mute: Arc::clone(&is_mute),
            is_over: Arc::clone(&is_over),
        };
        let thread = thread::spawn(move || server.accept(&listener));
        Self {
            address,
            is_calm,
            is_mute,
            is_over,
            thread,
        }
    }

    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

struct Serving {
    in_order: bool,
    answers: Vec<Answer>,
    is_calm: Arc<AtomicBool>,
    is_mute: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Serving {
    fn accept(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            while !self.is_over.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => drop(scope.spawn(move || self.serve(&stream))),
                    Err(_) => thread::sleep(Duration::from_micros(200)),
                }
            }
        });
    }

    /// Answers until the connection or the round is over.
    fn serve(&self, stream: &TcpStream) {
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        let (mut number, mut frame, mut filled) = (0, [0; 12], 0);
        while !self.is_over.load(Ordering::SeqCst) {
            match io::Read::read(&mut &*stream, &mut frame[filled..]) {
                Ok(0) => return,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => return,
            }
            if filled == frame.len() {
                filled = 0;
                number += 1;
                if self.answer(stream, number, &frame).is_err() {
                    return;
                }
            }
        }
    }

    fn answer(&self, stream: &TcpStream, number: usize, frame: &[u8; 12]) -> io::Result<()> {
        let is_calm = self.is_calm.load(Ordering::SeqCst);
        let answer = match self.answers[number % self.answers.len()] {
            _ if self.is_mute.load(Ordering::SeqCst) => return Ok(()),
            _ if is_calm => Answer::Reply,
            answer => answer,
        };
        debug_assert!(!self.in_order || answer != Answer::Never);
        let send = |bytes: &[u8]| io::Write::write_all(&mut &*stream, bytes);
        match answer {
            Answer::Reply => send(frame),
            Answer::Late(span) => {
                thread::sleep(span);
                send(frame)
            }
            Answer::Never => Ok(()),
            Answer::Twice => send(&[*frame, *frame].concat()),
            Answer::Unknown => send(&[0x7F, 0xFF, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).and(send(frame)),
            Answer::OfItsOwn => send(&[0xFF; 12]).and(send(frame)),
            Answer::Torn => {
                send(&frame[..7])?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Answer::Drip => frame.iter().try_for_each(|byte| send(&[*byte])),
        }
    }
}
