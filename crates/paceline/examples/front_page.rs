//! The fifteen-line server of the front page.

use std::{io, net::TcpStream};

use paceline::{Context, Next, Pool};

fn main() -> io::Result<()> {
    let pool = Pool::new()?;
    pool.listen("127.0.0.1:7000", |_, _| {
        Some(|cx: &mut Context<'_, TcpStream>| {
            let mut buf = [0; 4096];
            let n = cx.read(&mut buf)?;
            cx.write_all(&buf[..n])?;
            Ok(if n == 0 { Next::Close } else { Next::Continue })
        })
    })?;
    pool.join()
}
