//! Lines by a handler on the pool itself, which finds their ends on its own: what `paceline-server` is measured by.
//! No limit, no time-out but those of the pool.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
};

use memchr::{memchr_iter, memrchr};
use paceline::{scratch, Context, EventHandler, Next, Pool};

use super::{keep, Setting};
use crate::service::Task;

/// The longest line, with its end.
const LONGEST: usize = 8192;

/// Serves with `setting.threads` threads of the pool's own.
pub(super) fn serve(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let pool = Pool::builder().threads(setting.threads).build()?;
    let steps = setting.steps;
    let connection = move |stream: &TcpStream, _: SocketAddr| {
        // If it has gone already, its first read fails.
        let _ = stream.set_nodelay(true);
        Some(LineSplitter {
            rest: Vec::new(),
            steps,
        })
    };
    pool.listener().on(listener, connection)?;
    keep(pool)
}

/// One connection.
struct LineSplitter {
    /// The beginning of a line.
    rest: Vec<u8>,
    steps: u32,
}

impl EventHandler<TcpStream> for LineSplitter {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut buffer = scratch();
        let Some(lines) = whole_lines(&mut self.rest, &mut buffer, cx)? else {
            return Ok(Next::Close);
        };
        self.perform(lines);
        if !lines.is_empty() {
            cx.write_all(lines)?;
        }
        Ok(Next::Continue)
    }
}

/// Reads behind the `rest` of the last line, and keeps the new rest. `None`: the stream has ended.
#[inline]
pub(crate) fn whole_lines<'b>(
    rest: &mut Vec<u8>,
    buffer: &'b mut [u8],
    cx: &mut Context<'_, TcpStream>,
) -> io::Result<Option<&'b [u8]>> {
    let before = rest.len();
    buffer[..before].copy_from_slice(rest);
    let count = cx.read(&mut buffer[before..])?;
    if count == 0 {
        return Ok(None);
    }
    let filled = &buffer[..before + count];
    let whole = memrchr(b'\n', filled).map_or(0, |last| last + 1);
    let (lines, behind) = filled.split_at(whole);
    rest.clear();
    rest.extend_from_slice(behind);
    if rest.len() > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some(lines))
}

impl LineSplitter {
    /// Does what each line asks for.
    fn perform(&self, lines: &[u8]) {
        let mut start = 0;
        for end in memchr_iter(b'\n', lines) {
            Task::of_line(&lines[start..end]).perform(self.steps);
            start = end + 1;
        }
    }
}
