//! TLS as the keys `client_tls_*` and `server_tls_*` ask for it: files and modes to rustls's settings.
//!
//! Everything is made anew at RELOAD, so changed files take effect; connections that stand keep what
//! they have agreed on.

mod files;
mod verify;

use std::{io, sync::Arc};

use paceline_server::tls::{
    provider,
    rustls::{
        crypto::CryptoProvider, server::WebPkiClientVerifier, version, ClientConfig, ServerConfig,
        SupportedProtocolVersion,
    },
    Tls, TlsClient,
};

use self::{
    files::{roots, Pair},
    verify::{AnyServer, NamelessServer},
};
use crate::config::{Settings, SslMode, TlsVersions};

/// The name of PostgreSQL's protocol in TLS's list of protocols (ALPN).
pub(crate) const PROTOCOL: &[u8] = b"postgresql";

/// What clients get that ask for TLS.
#[derive(Clone, Debug)]
pub(crate) struct ClientSide {
    pub(crate) mode: SslMode,
    /// `None`: TLS is off.
    pub(crate) tls: Option<Tls>,
}

/// How servers are asked for TLS.
#[derive(Clone, Debug)]
pub(crate) struct ServerSide {
    pub(crate) mode: SslMode,
    /// `None`: TLS is off.
    pub(crate) tls: Option<TlsClient>,
}

impl ClientSide {
    /// # Errors
    /// Names the file or the setting that can't be used.
    pub(crate) fn new(settings: &Settings) -> io::Result<Self> {
        let mode = settings.client_tls_sslmode;
        let tls = match mode {
            SslMode::Disable => None,
            _ => Some(Tls::from_config(Arc::new(accepting(settings)?))),
        };
        Ok(Self { mode, tls })
    }

    /// Whether a client without TLS is refused.
    pub(crate) fn is_required(&self) -> bool {
        self.mode >= SslMode::Require
    }
}

impl ServerSide {
    /// # Errors
    /// Names the file or the setting that can't be used.
    pub(crate) fn new(settings: &Settings) -> io::Result<Self> {
        let mode = settings.server_tls_sslmode;
        let tls = match mode {
            SslMode::Disable => None,
            _ => Some(TlsClient::from_config(Arc::new(asking(settings)?))),
        };
        Ok(Self { mode, tls })
    }
}

fn accepting(settings: &Settings) -> io::Result<ServerConfig> {
    let provider = suites(&settings.client_tls13_ciphers)?;
    let pair = Pair {
        certificate: ("client_tls_cert_file", &settings.client_tls_cert_file),
        key: ("client_tls_key_file", &settings.client_tls_key_file),
    };
    let pair = pair.read(&provider)?;
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(settings.client_tls_protocols))
        .map_err(invalid)?;
    let config = if settings.client_tls_sslmode >= SslMode::VerifyCa {
        let roots = roots("client_tls_ca_file", &settings.client_tls_ca_file)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        config.with_client_cert_verifier(verifier.build().map_err(io::Error::other)?)
    } else {
        config.with_no_client_auth()
    };
    let mut config = config.with_cert_resolver(pair);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn asking(settings: &Settings) -> io::Result<ClientConfig> {
    let provider = suites(&settings.server_tls13_ciphers)?;
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(settings.server_tls_protocols))
        .map_err(invalid)?;
    let ca_file = || roots("server_tls_ca_file", &settings.server_tls_ca_file);
    let config = match settings.server_tls_sslmode {
        SslMode::VerifyFull => config.with_root_certificates(ca_file()?),
        SslMode::VerifyCa => {
            let verifier = NamelessServer::new(ca_file()?, provider)?;
            config
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
        _ => {
            let verifier = AnyServer::new(provider);
            config
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = if settings.server_tls_cert_file.is_empty() {
        config.with_no_client_auth()
    } else {
        let pair = Pair {
            certificate: ("server_tls_cert_file", &settings.server_tls_cert_file),
            key: ("server_tls_key_file", &settings.server_tls_key_file),
        };
        let provider = suites(&settings.server_tls13_ciphers)?;
        config.with_client_cert_resolver(pair.read(&provider)?)
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn versions(allowed: TlsVersions) -> Vec<&'static SupportedProtocolVersion> {
    let known = [
        (allowed.v1_3, &version::TLS13),
        (allowed.v1_2, &version::TLS12),
    ];
    let allowed = known.into_iter().filter(|(is_allowed, _)| *is_allowed);
    allowed.map(|(_, version)| version).collect()
}

/// The cryptography with the TLS 1.3 suites of this list only; those of TLS 1.2 stay.
fn suites(list: &str) -> io::Result<Arc<CryptoProvider>> {
    let all = provider();
    if list.is_empty() {
        return Ok(all);
    }
    let asked: Vec<String> = list
        .split([':', ','])
        .map(|name| name.trim().replacen("TLS_", "TLS13_", 1))
        .collect();
    let mut chosen = CryptoProvider::clone(&all);
    chosen.cipher_suites.retain(|suite| {
        let name = suite.suite().as_str().unwrap_or_default();
        suite.tls13().is_none() || asked.iter().any(|asked| asked == name)
    });
    if chosen
        .cipher_suites
        .iter()
        .any(|suite| suite.tls13().is_some())
    {
        Ok(Arc::new(chosen))
    } else {
        let text = format!("failed to set the TLSv1.3 cipher suites \"{list}\"");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// A failure of TLS in the words of OpenSSL where users search for those.
pub(crate) fn explained(error: &io::Error) -> String {
    use paceline_server::tls::{rustls::Error, TlsFailure};
    let failure = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<TlsFailure>());
    match failure {
        Some(TlsFailure::Protocol(Error::InvalidCertificate(why))) => {
            format!("TLS handshake failed: certificate verify failed: {why}")
        }
        Some(failure) => format!("TLS handshake failed: {failure}"),
        None => format!("TLS handshake failed: {error}"),
    }
}
