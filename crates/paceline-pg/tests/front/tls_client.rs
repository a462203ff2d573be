//! A client under TLS, and a channel whose bytes arrive one by one.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use paceline_pg_wire::startup;
use paceline_server::tls::{
    provider,
    rustls::{
        crypto::CryptoProvider,
        pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer, ServerName},
        ClientConfig, ClientConnection, NamedGroup, RootCertStore, StreamOwned,
    },
};
use socket2::{Domain, Socket, Type};

use crate::{
    client::{connect, Channel, Client},
    LIMIT,
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
        // Keys of other groups are long, and tests send them byte by byte.
        let mut provider = CryptoProvider::clone(&provider());
        let groups = &mut provider.kx_groups;
        groups.retain(|group| group.name() == NamedGroup::X25519);
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
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
            wait_until_read(&self.0);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Waits until the other side has read everything. Looks often: a dialogue has thousands of bytes.
fn wait_until_read(stream: &TcpStream) {
    let end = Instant::now() + LIMIT;
    while unread(stream) > 0 {
        assert!(Instant::now() < end, "a byte is not read");
        thread::sleep(Duration::from_micros(50));
    }
}

/// How many bytes the kernel keeps for the other side, which is on this machine; none if that side has
/// closed. The kernel is asked for this one socket (`sock_diag(7)`): its whole table may be long.
fn unread(stream: &TcpStream) -> u32 {
    const FAMILY: i32 = 16;
    const RAW: i32 = 3;
    const INET_DIAG: i32 = 4;
    /// Where the answer has the length of the queue.
    const QUEUE: usize = 72;
    let (Ok(ours), Ok(theirs)) = (stream.local_addr(), stream.peer_addr()) else {
        return 0;
    };
    let socket = Socket::new(
        Domain::from(FAMILY),
        Type::from(RAW),
        Some(INET_DIAG.into()),
    );
    let mut socket = socket.expect("the kernel answers questions about sockets");
    socket
        .write_all(&question(theirs, ours))
        .expect("it takes a question");
    let mut answer = [0; 1024];
    let length = socket.read(&mut answer).expect("it answers");
    let queue = answer[..length].get(QUEUE..QUEUE + 4);
    // An error is shorter: there is no such socket any more.
    queue.map_or(0, |bytes| {
        u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    })
}

/// The question for the socket between these two addresses.
fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let ip = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => [&ip.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let family = if local.is_ipv4() { 2 } else { 10 };
    let body = [
        // The family, TCP, no extensions, and all states.
        &[family, 6, 0, 0, 0xff, 0xff, 0xff, 0xff][..],
        &local.port().to_be_bytes(),
        &remote.port().to_be_bytes(),
        &ip(local),
        &ip(remote),
        // Any interface, and no cookie.
        &[0; 4],
        &[0xff; 8],
    ]
    .concat();
    // The length, the type, that it is a request, its number, and the sender.
    let length = u32::try_from(16 + body.len()).expect("a short question");
    let head = [
        &length.to_ne_bytes()[..],
        &20_u16.to_ne_bytes(),
        &1_u16.to_ne_bytes(),
        &1_u32.to_ne_bytes(),
        &[0; 4],
    ];
    [head.concat(), body].concat()
}
