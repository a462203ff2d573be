//! Certificates for tests, and a TLS client on a simulated stream.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    path::PathBuf,
    sync::Arc,
};

use paceline::simulated::SimPeer;
use paceline_server::tls::{
    rustls::{
        crypto::CryptoProvider,
        pki_types::{pem::PemObject, CertificateDer, ServerName},
        ClientConfig, ClientConnection, RootCertStore,
    },
    Tls,
};

use super::{wait_until, Folder};

/// A certificate for `name` and its key, as files.
pub struct Identity {
    folder: Folder,
}

impl Identity {
    pub fn new(name: &str) -> Self {
        let identity = Self {
            folder: Folder::new(),
        };
        identity.write(name);
        identity
    }

    /// Writes a new certificate into the files.
    pub fn write(&self, name: &str) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        fs::write(self.certificate(), made.cert.pem()).unwrap();
        fs::write(self.key(), made.signing_key.serialize_pem()).unwrap();
    }

    pub fn certificate(&self) -> PathBuf {
        self.folder.path("cert.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.folder.path("key.pem")
    }

    pub fn tls(&self) -> Tls {
        Tls::pem(self.certificate(), self.key()).expect("good files")
    }

    /// Settings of a client that trusts the present certificate.
    pub fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(self.certificate()).unwrap();
        roots.add(certificate).unwrap();
        let config = ClientConfig::builder_with_provider(provider());
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Arc::new(config)
    }
}

fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "tls")]
    let provider = paceline_server::tls::rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "tls"))]
    let provider = paceline_server::tls::rustls::crypto::ring::default_provider();
    Arc::new(provider)
}

/// A TLS client, whose bytes go where the test wants them.
pub struct TlsPeer {
    pub peer: SimPeer,
    connection: ClientConnection,
}

impl TlsPeer {
    /// A client that has not said anything.
    pub fn new(peer: SimPeer, config: &Arc<ClientConfig>, name: &str) -> Self {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self { peer, connection }
    }

    /// A client whose handshake is done.
    pub fn connected(peer: SimPeer, config: &Arc<ClientConfig>, name: &str) -> Self {
        let mut client = Self::new(peer, config, name);
        client.shake_hands();
        client
    }

    pub fn shake_hands(&mut self) {
        self.shake_hands_with(b"");
    }

    /// The same, with plain text that goes out together with the client's last message.
    pub fn shake_hands_with(&mut self, plain: &[u8]) {
        let outgoing = self.outgoing();
        self.peer.send(&outgoing);
        self.connection.writer().write_all(plain).unwrap();
        wait_until(|| {
            self.take_incoming();
            let outgoing = self.outgoing();
            if !outgoing.is_empty() {
                self.peer.send(&outgoing);
            }
            !self.connection.is_handshaking()
        });
    }

    /// What the protocol wants to send now.
    pub fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// The records that carry `plain`.
    pub fn records(&mut self, plain: &[u8]) -> Vec<u8> {
        self.connection.writer().write_all(plain).unwrap();
        self.outgoing()
    }

    pub fn send(&mut self, plain: &[u8]) {
        let records = self.records(plain);
        self.peer.send(&records);
    }

    /// The record that brings new keys.
    pub fn new_keys(&mut self) -> Vec<u8> {
        self.connection.refresh_traffic_keys().unwrap();
        self.outgoing()
    }

    /// The record that says that nothing more is sent.
    pub fn close_notify(&mut self) -> Vec<u8> {
        self.connection.send_close_notify();
        self.outgoing()
    }

    fn take_incoming(&mut self) {
        let incoming = self.peer.received();
        let mut rest = &incoming[..];
        while !rest.is_empty() {
            self.connection.read_tls(&mut rest).unwrap();
            self.connection.process_new_packets().unwrap();
        }
    }

    /// Waits for `count` bytes of plain text; fewer, if the server ends its output before.
    pub fn wait_for(&mut self, count: usize) -> Vec<u8> {
        let mut plain = Vec::new();
        wait_until(|| {
            let is_ended = self.peer.is_output_ended();
            self.take_incoming();
            let mut buffer = vec![0; count - plain.len()];
            let read = match self.connection.reader().read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => panic!("{error}"),
            };
            plain.extend_from_slice(&buffer[..read]);
            plain.len() == count || is_ended
        });
        plain
    }

    pub fn assert_gets(&mut self, plain: impl AsRef<[u8]>) {
        let plain = plain.as_ref();
        let got = self.wait_for(plain.len());
        assert_eq!(
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(plain)
        );
    }

    /// Whether the server has said that it sends nothing more.
    pub fn is_ended_properly(&mut self) -> bool {
        self.take_incoming();
        matches!(self.connection.reader().read(&mut [0; 1]), Ok(0))
    }
}
