//! TLS, by rustls driven by hand: certificates and settings for both sides of a connection.
//!
//! ```text
//!   Tls        certificates of a server, by name; read anew while connections use them
//!   TlsClient  whom outgoing connections trust
//!   TlsInfo    what a handshake has agreed on: Peer::tls
//!   TlsConnection   the protocol of one connection, for programs that move the bytes themselves
//! ```
//!
//! A handshake is events like any other: it holds no thread while the peer is slow, and it has a
//! deadline ([`Limits::silent`](crate::Limits::silent)) and a limit
//! ([`Limits::handshakes`](crate::Limits::handshakes)).

mod by_hand;
mod certificates;
mod layer;
mod records;

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
pub use rustls;
use rustls::{
    crypto::CryptoProvider,
    pki_types::{pem::PemObject, CertificateDer},
    ClientConfig, RootCertStore, ServerConfig,
};

pub use self::by_hand::{TlsConnection, TlsReceived};
use self::certificates::{ByName, Files};
pub(crate) use self::layer::{ensure_no_plaintext, EndOfInput, Received, TlsLayer};

/// The server's side of TLS: certificates and what is agreed on with clients. TLS 1.2 and 1.3, no
/// early data.
///
/// Cloning gives another handle to the same certificates.
///
/// ```no_run
/// use paceline_server::{codec::{line, Message}, tls::Tls, Listen, Next, Peer, Server};
///
/// let tls = Tls::pem("cert.pem", "key.pem")?;
/// Server::builder()
///     .listener(Listen::tcp("[::]:7443").tls(&tls), line(8192), |_peer| {
///         |line: Message<'_>, cx: &mut Peer<'_>| {
///             cx.reply(line)?;
///             Ok(Next::Continue)
///         }
///     })
///     .run()?; // SIGHUP reads the certificates anew
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Certificates>,
}

/// The certificates of a server, and the settings that are in force.
struct Certificates {
    /// Where the certificates are read anew: none if the settings were made by the caller.
    files: Vec<Files>,
    alpn: Vec<Vec<u8>>,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// With the certificate chain and the private key in these PEM files.
    ///
    /// # Errors
    /// A file can't be read, has no certificate or no key, or the two do not belong together: the
    /// text names the file.
    pub fn pem(certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> io::Result<Self> {
        Self::builder(certificates, key).build()
    }

    /// With the certificate in these PEM files for every client, and with further settings.
    pub fn builder(certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> TlsBuilder {
        TlsBuilder {
            files: vec![Files::new(None, certificates.as_ref(), key.as_ref())],
            alpn: Vec::new(),
        }
    }

    /// With a certificate chain and a private key in PEM form that are in memory: from a store of
    /// secrets, or made for a test. There is nothing to [reload](Self::reload).
    ///
    /// # Errors
    /// There is no certificate or no key, or the two do not belong together.
    pub fn from_pem(certificates: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> io::Result<Self> {
        let provider = provider();
        let certificates = ByName::one(certificates.as_ref(), key.as_ref(), &provider)?;
        let config = config_for(certificates, provider, &[])?;
        Ok(Self::from_config(Arc::new(config)))
    }

    /// With settings of the caller, such as client certificates. There is nothing to
    /// [reload](Self::reload).
    #[must_use]
    pub fn from_config(config: Arc<ServerConfig>) -> Self {
        Self::new(Vec::new(), Vec::new(), config)
    }

    fn new(files: Vec<Files>, alpn: Vec<Vec<u8>>, config: Arc<ServerConfig>) -> Self {
        Self {
            shared: Arc::new(Certificates {
                files,
                alpn,
                config: ArcSwap::new(config),
            }),
        }
    }

    /// Reads the certificates anew. Handshakes that begin after this use them; connections that
    /// stand keep what they have agreed on.
    ///
    /// # Errors
    /// As [`pem`](Self::pem): the old certificates stay in force.
    pub fn reload(&self) -> io::Result<()> {
        if self.shared.files.is_empty() {
            return Ok(());
        }
        let config = server_config(&self.shared.files, &self.shared.alpn)?;
        self.shared.config.store(Arc::new(config));
        Ok(())
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.shared.config.load_full()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.shared.files)
            .finish_non_exhaustive()
    }
}

/// Settings of the server's side of TLS: see [`Tls::builder`].
#[derive(Debug)]
#[must_use = "`build` reads the files"]
pub struct TlsBuilder {
    files: Vec<Files>,
    alpn: Vec<Vec<u8>>,
}

impl TlsBuilder {
    /// A further certificate, for clients that ask for the server `name` (SNI). `*.example.org`
    /// stands for every name with one more label. Clients that ask for no known name get the first
    /// certificate.
    pub fn named(
        mut self,
        name: impl Into<String>,
        certificates: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Self {
        let files = Files::new(Some(name.into()), certificates.as_ref(), key.as_ref());
        self.files.push(files);
        self
    }

    /// The application protocols that the server speaks (ALPN), the preferred one first. A client
    /// that offers others only is refused.
    pub fn alpn<P: AsRef<[u8]>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        let protocols = protocols.into_iter().map(|name| name.as_ref().to_vec());
        self.alpn = protocols.collect();
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// As [`Tls::pem`].
    pub fn build(self) -> io::Result<Tls> {
        let config = server_config(&self.files, &self.alpn)?;
        Ok(Tls::new(self.files, self.alpn, Arc::new(config)))
    }
}

fn server_config(files: &[Files], alpn: &[Vec<u8>]) -> io::Result<ServerConfig> {
    let provider = provider();
    let certificates = ByName::read(files, &provider)?;
    config_for(certificates, provider, alpn)
}

fn config_for(
    certificates: ByName,
    provider: Arc<CryptoProvider>,
    alpn: &[Vec<u8>],
) -> io::Result<ServerConfig> {
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(invalid)?;
    let mut config = config
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = alpn.to_vec();
    Ok(config)
}

/// The client's side of TLS: whose certificates outgoing connections trust.
///
/// Cloning gives another handle to the same settings.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// Trusts the authorities that this system trusts.
    ///
    /// # Errors
    /// This system has none.
    pub fn system() -> io::Result<Self> {
        let mut found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(std::mem::take(&mut found.certs));
        if added == 0 {
            let why = found.errors.first().map(ToString::to_string);
            let why = why.unwrap_or_else(|| "none was found".to_owned());
            let text = format!("read the authorities that this system trusts: {why}");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Self::trusting(roots, &[])
    }

    /// Trusts the certificates in this PEM file, and those that they have signed.
    ///
    /// # Errors
    /// The file can't be read, or has no certificate.
    pub fn pem(roots: impl AsRef<Path>) -> io::Result<Self> {
        Self::pem_with_alpn(roots, &[])
    }

    /// As [`pem`](Self::pem), and offers these application protocols (ALPN), the preferred one
    /// first.
    ///
    /// # Errors
    /// As [`pem`](Self::pem).
    pub fn pem_with_alpn(roots: impl AsRef<Path>, protocols: &[&[u8]]) -> io::Result<Self> {
        let path = roots.as_ref();
        let mut store = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            store.add(certificate).map_err(|why| unusable(path, &why))?;
        }
        Self::trusting(store, protocols)
    }

    /// With settings of the caller, such as a certificate of the client's own.
    #[must_use]
    pub fn from_config(config: Arc<ClientConfig>) -> Self {
        Self { config }
    }

    fn trusting(roots: RootCertStore, protocols: &[&[u8]]) -> io::Result<Self> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(invalid)?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Self::from_config(Arc::new(config)))
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

/// What a handshake has agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The name of the server that the client asked for (SNI).
    pub server_name: Option<String>,
    /// The application protocol (ALPN).
    pub alpn: Option<Vec<u8>>,
    /// The version of the protocol: `"TLSv1.3"`.
    pub version: &'static str,
    /// The cipher suite, by the name that OpenSSL shows: `"TLS_AES_256_GCM_SHA384"`.
    pub cipher_suite: String,
}

/// Why TLS ended a connection: the source of an [`io::Error`] of kind `InvalidData`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The peer does not speak TLS: its first byte begins no record of a handshake.
    NotTls {
        /// That byte.
        first: u8,
    },
    /// The peer sent bytes in plain text behind the command that begins TLS.
    PlaintextLeft {
        /// How many.
        bytes: usize,
    },
    /// The protocol itself failed.
    Protocol(rustls::Error),
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTls { first } => {
                write!(
                    f,
                    "the peer does not speak TLS: its first byte is {first:#04x}"
                )
            }
            Self::PlaintextLeft { bytes } => {
                write!(f, "{bytes} bytes in plain text before the TLS handshake")
            }
            Self::Protocol(error) => write!(f, "TLS: {error}"),
        }
    }
}

impl error::Error for TlsFailure {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Protocol(error) => Some(error),
            _ => None,
        }
    }
}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, failure)
    }
}

/// The cryptography of this build: for settings of the caller.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "tls")]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "tls"))]
    let provider = rustls::crypto::ring::default_provider();
    Arc::new(provider)
}

fn read_certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|why| unusable(path, &why))?;
    if certificates.is_empty() {
        return Err(unusable(path, &"it has no certificate"));
    }
    Ok(certificates)
}

/// A file of certificates or keys that is of no use.
fn unusable(path: &Path, why: &dyn fmt::Display) -> io::Error {
    let text = format!("read {}: {why}", PathBuf::from(path).display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
