//! TLS for the benchmark: one certificate, one provider and one set of options for every server and for the client.

use std::{io, sync::Arc};

use rustls::{
    client::Resumption,
    crypto::{aws_lc_rs::default_provider, CryptoProvider},
    pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer, ServerName},
    ClientConfig, ConfigBuilder, ConfigSide, RootCertStore, ServerConfig, WantsVerifier,
    WantsVersions,
};

/// A self-signed certificate (ECDSA, P-256, valid until 2120).
const CERTIFICATE: &[u8] = include_bytes!("tls/cert.pem");

/// Its key. It is public, so it protects nothing.
const KEY: &[u8] = include_bytes!("tls/key.pem");

/// The name in the certificate.
pub(crate) fn name() -> io::Result<ServerName<'static>> {
    ServerName::try_from("localhost").map_err(io::Error::other)
}

/// The settings of every server.
pub(crate) fn server() -> io::Result<Arc<ServerConfig>> {
    let key = PrivateKeyDer::from_pem_slice(KEY).map_err(io::Error::other)?;
    let config = versions(ServerConfig::builder_with_provider(provider()))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate()?], key);
    config.map(Arc::new).map_err(io::Error::other)
}

/// The settings of the client: it verifies the certificate, and resumes no session, so that each handshake is a full
/// one.
pub(crate) fn client() -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate()?).map_err(io::Error::other)?;
    let mut config = versions(ClientConfig::builder_with_provider(provider()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn versions<S: ConfigSide>(
    builder: ConfigBuilder<S, WantsVersions>,
) -> io::Result<ConfigBuilder<S, WantsVerifier>> {
    let builder = builder.with_safe_default_protocol_versions();
    builder.map_err(io::Error::other)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

fn certificate() -> io::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(CERTIFICATE).map_err(io::Error::other)
}
