//! `hello` where the disk takes no more.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use super::program::{bound, bounded, example, Folder, Server};

/// The status of a request with a body of so many bytes, which is sent while the answer may come already.
fn status_of(server: &Server, length: usize) -> String {
    let mut stream = bound(TcpStream::connect(server.address).unwrap());
    let head = format!(
        "POST /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that has refused the body takes some of it, so that its answer arrives, and no more.
    let _ = stream.write_all(&vec![b'x'; length]);
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    String::from_utf8_lossy(&status).into_owned()
}

/// The system lets the server write files of 128 KiB: a body fits into the first writes of its file, and then into none.
/// It is answered 503, the server serves on, and no file is left.
#[test]
fn a_file_that_grows_no_more_is_503() {
    let folder = Folder::new();
    let mut shell = bounded("sh");
    shell
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\"")
        .arg(example("hello"))
        .args(["--listen", "127.0.0.1:0", "--body-memory", "0"])
        .env("TMPDIR", folder.path());
    let server = Server::run(&mut shell);
    assert_eq!(status_of(&server, 50_000), "HTTP/1.1 200");
    assert_eq!(status_of(&server, 100_000), "HTTP/1.1 200");
    assert_eq!(status_of(&server, 2_000_000), "HTTP/1.1 503");
    assert_eq!(status_of(&server, 100_000), "HTTP/1.1 200");
    assert!(folder.list(".").is_empty(), "{:?}", folder.list("."));
    server.end();
}
