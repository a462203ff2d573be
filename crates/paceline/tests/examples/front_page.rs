//! The front page: the README's server is the example `front_page`, and it runs.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
};

use crate::support::{self, bounded, example::Process, wait_until, LONG};

const ADDRESS: &str = "127.0.0.1:7000";

/// What a newcomer copies from the README is what is compiled and run here.
#[test]
fn readme_shows_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("../../README.md")).unwrap();
    let example = fs::read_to_string(root.join("examples/front_page.rs")).unwrap();
    let (_story, program) = example.split_once("\n\n").unwrap();
    assert!(
        readme.contains(program),
        "README.md does not show examples/front_page.rs"
    );
}

/// The server answers. It has a fixed address, because a front page has no options.
#[test]
fn front_page_serves() {
    if TcpListener::bind(ADDRESS).is_err() {
        println!("skipped: {ADDRESS} is in use");
        return;
    }
    let front_page = support::example("front_page");
    bounded(|| {
        let _server = Process::start(&mut Command::new(front_page));
        let mut client = connect();
        client.set_read_timeout(Some(LONG)).unwrap();
        client.write_all(b"once around").unwrap();
        let mut answer = [0; 11];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"once around");
    });
}

/// Connects as soon as the server listens.
fn connect() -> TcpStream {
    let mut client = None;
    wait_until(|| {
        client = TcpStream::connect(ADDRESS).ok();
        client.is_some()
    });
    client.unwrap()
}
