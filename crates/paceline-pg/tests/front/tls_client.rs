//! A client under TLS, and a channel whose bytes arrive one by one.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use paceline_pg_wire::startup;
use paceline_server::tls::{
    provider,
    rustls::{
        pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer, ServerName},
        ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    },
};

use crate::{
    client::{connect, Channel, Client},
    wait_until,
};

/// How a client speaks TLS.
pub(crate) struct Secure {
    /// The file of the authority that it trusts.
    pub(crate) root: PathBuf,
    /// The files of its certificate and key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// The protocols that it names.
    pub(crate) protocols: Vec<Vec<u8>>,
    pub(crate) start: Start,
}

/// How TLS begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// By an SSLRequest.
    Asked,
    /// Without a question.
    Direct,
}

impl Secure {
    /// A client without a certificate, which asks for TLS.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            identity: None,
            protocols: vec![b"postgresql".to_vec()],
            start: Start::Asked,
        }
    }

    /// A connection without a login.
    ///
    /// # Errors
    /// The pooler refuses TLS, or the handshake fails.
    pub(crate) fn connect(&self, pooler: SocketAddr) -> io::Result<Client> {
        self.over(pooler, connect(pooler))
    }

    /// The same; the pooler gets each byte apart.
    pub(crate) fn dribble(&self, pooler: SocketAddr) -> io::Result<Client> {
        self.over(pooler, Dribble(connect(pooler)))
    }

    fn over(&self, pooler: SocketAddr, mut channel: impl Channel + 'static) -> io::Result<Client> {
        if self.start == Start::Asked {
            let mut question = Vec::new();
            startup::ask_tls(&mut question);
            channel.write_all(&question)?;
            let mut answer = [0];
            channel.read_exact(&mut answer)?;
            if answer != *b"S" {
                return Err(io::Error::other("the pooler refuses TLS"));
            }
        }
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(self.config(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, channel);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Client::through(pooler, Box::new(stream)))
    }

    fn config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&self.root).expect("a file") {
            roots.add(certificate.expect("PEM")).expect("a root");
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the versions are known")
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_file_iter(chain).expect("a file");
                let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
                let key = PrivateKeyDer::from_pem_file(key).expect("a key");
                config.with_client_auth_cert(chain, key).expect("a pair")
            }
        };
        config.alpn_protocols.clone_from(&self.protocols);
        Arc::new(config)
    }
}

/// Each byte is sent when the other side has read the one before.
pub(crate) struct Dribble(pub(crate) TcpStream);

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Dribble {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.0.write_all(&[*byte])?;
            wait_until("the byte is read", || unread(&self.0) == Some(0));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// How many bytes the kernel keeps for the other side, which is on this machine; `None` when that side
/// has closed.
fn unread(stream: &TcpStream) -> Option<u64> {
    let [ours, theirs] = [stream.local_addr(), stream.peer_addr()].map(|it| hex(it.ok()));
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel has a table");
    let mut rows = table.lines().map(|line| line.split_whitespace().collect());
    // Its columns: number, local address, remote address, state, both queues.
    let row = rows.find(|row: &Vec<&str>| row[1] == theirs && row[2] == ours);
    let Some(row) = row else { return Some(0) };
    let (_, queue) = row[4].split_once(':')?;
    u64::from_str_radix(queue, 16).ok()
}

/// An address as the table has it.
fn hex(address: Option<SocketAddr>) -> String {
    match address {
        Some(SocketAddr::V4(address)) => {
            let ip = u32::from_le_bytes(address.ip().octets());
            format!("{ip:08X}:{:04X}", address.port())
        }
        _ => String::new(),
    }
}
