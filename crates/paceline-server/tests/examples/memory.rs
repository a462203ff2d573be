//! How much memory an idle connection of `line_echo` takes: an upper bound, with room for the allocator.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

use paceline_server::tls::rustls::{
    pki_types::{pem::PemObject, CertificateDer, ServerName},
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
};

use super::{certificates::Certificates, program::Server};

/// Has a line echoed, so that the connection has done everything once.
fn speak(client: &mut (impl Read + Write)) {
    client.write_all(b"hello\n").unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello\r\n");
}

/// Bytes of memory for each of `count` further connections.
fn bytes_each<C: Read + Write>(server: &Server, count: usize, connect: impl Fn() -> C) -> usize {
    let open = |count: usize| -> Vec<C> {
        let connections = (0..count).map(|_| {
            let mut client = connect();
            speak(&mut client);
            client
        });
        connections.collect()
    };
    // Buffers of threads, and whatever is made once.
    let _first = open(64);
    let before = server.memory();
    let _idle = open(count);
    let each = server.memory().saturating_sub(before) / count;
    println!("{each} bytes for each of {count} idle connections");
    each
}

/// The aim is 1 KiB at 10,000 connections; the bound has room for a table that has just grown.
#[test]
fn an_idle_connection_is_small() {
    let server = Server::start("line_echo", &["--threads", "4", "--idle", "600"]);
    let connect = || TcpStream::connect(server.address).unwrap();
    let each = bytes_each(&server, 3000, connect);
    assert!(each < 1600, "{each} bytes");
}

/// The aim is 9 KiB beside what rustls itself takes.
#[test]
fn an_idle_tls_connection_is_small() {
    let certificates = Certificates::new();
    let (chain, key) = (
        certificates.chain("localhost"),
        certificates.key("localhost"),
    );
    let args = ["--threads", "4", "--idle", "600", "--tls", &chain, &key];
    let server = Server::start("line_echo", &args);
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(certificates.root()).unwrap();
    roots.add(root).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let connect = || {
        let stream = TcpStream::connect(server.address).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(&config), name).unwrap();
        StreamOwned::new(tls, stream)
    };
    let each = bytes_each(&server, 300, connect);
    assert!(each < 14_000, "{each} bytes");
}
