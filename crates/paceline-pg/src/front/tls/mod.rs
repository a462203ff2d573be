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

pub(crate) use self::files::Fault;
use self::{
    files::{roots, Faults, Pair},
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
    /// Each names the key that can't be used.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Vec<Fault>> {
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
    /// Each names the key that can't be used.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Vec<Fault>> {
        let mode = settings.server_tls_sslmode;
        let tls = match mode {
            SslMode::Disable => None,
            _ => Some(TlsClient::from_config(Arc::new(asking(settings)?))),
        };
        Ok(Self { mode, tls })
    }
}

fn accepting(settings: &Settings) -> Result<ServerConfig, Vec<Fault>> {
    let mut faults = Faults::default();
    let config = accepting_with(settings, &mut faults);
    config.ok_or(faults.0)
}

fn accepting_with(settings: &Settings, faults: &mut Faults) -> Option<ServerConfig> {
    let suites = suites("client_tls13_ciphers", &settings.client_tls13_ciphers);
    let provider = faults.take(suites);
    let pair = Pair {
        certificate: ("client_tls_cert_file", &settings.client_tls_cert_file),
        key: ("client_tls_key_file", &settings.client_tls_key_file),
    };
    let pair = pair.read(&self::provider(), faults);
    let ca_file = ("client_tls_ca_file", settings.client_tls_ca_file.as_str());
    let verifies = settings.client_tls_sslmode >= SslMode::VerifyCa;
    let roots = verifies.then(|| faults.take(roots(ca_file.0, ca_file.1)));
    let (provider, pair) = (provider?, pair?);
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(settings.client_tls_protocols));
    let config = faults.take(config.map_err(fault("client_tls_protocols")))?;
    let config = match roots {
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots?), provider);
            let verifier = faults.take(verifier.build().map_err(fault(ca_file.0)))?;
            config.with_client_cert_verifier(verifier)
        }
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(pair);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Some(config)
}

fn asking(settings: &Settings) -> Result<ClientConfig, Vec<Fault>> {
    let mut faults = Faults::default();
    let config = asking_with(settings, &mut faults);
    config.ok_or(faults.0)
}

fn asking_with(settings: &Settings, faults: &mut Faults) -> Option<ClientConfig> {
    let suites = suites("server_tls13_ciphers", &settings.server_tls13_ciphers);
    let provider = faults.take(suites);
    let verifies = settings.server_tls_sslmode >= SslMode::VerifyCa;
    let ca_file = ("server_tls_ca_file", settings.server_tls_ca_file.as_str());
    let roots = verifies.then(|| faults.take(roots(ca_file.0, ca_file.1)));
    let has_pair = !settings.server_tls_cert_file.is_empty();
    let pair = Pair {
        certificate: ("server_tls_cert_file", &settings.server_tls_cert_file),
        key: ("server_tls_key_file", &settings.server_tls_key_file),
    };
    let pair = has_pair.then(|| pair.read(&self::provider(), faults));
    let provider = provider?;
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(settings.server_tls_protocols));
    let config = faults.take(config.map_err(fault("server_tls_protocols")))?;
    let config = match (roots, settings.server_tls_sslmode) {
        (Some(roots), SslMode::VerifyFull) => config.with_root_certificates(roots?),
        (Some(roots), _) => {
            let verifier = NamelessServer::new(roots?, provider).map_err(fault(ca_file.0));
            let verifier = faults.take(verifier)?;
            config
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
        (None, _) => {
            let verifier = AnyServer::new(provider);
            config
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = match pair {
        Some(pair) => config.with_client_cert_resolver(pair?),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Some(config)
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
fn suites(key: &'static str, list: &str) -> Result<Arc<CryptoProvider>, Fault> {
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
        let why = format!("failed to set the TLSv1.3 cipher suites \"{list}\"");
        Err(Fault { key, why })
    }
}

/// The error of the library, as a fault of this key.
fn fault<E: std::fmt::Display>(key: &'static str) -> impl FnOnce(E) -> Fault {
    move |error| Fault {
        key,
        why: error.to_string(),
    }
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
