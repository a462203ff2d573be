//! Certificates and keys in PEM files.

use std::{fmt, io, sync::Arc};

use paceline_server::tls::rustls::{
    crypto::CryptoProvider,
    pki_types::{
        pem::{Error as PemError, PemObject},
        CertificateDer, PrivateKeyDer,
    },
    sign::{CertifiedKey, SingleCertAndKey},
    Error, RootCertStore,
};

/// A certificate and its key: the keys of the configuration that name their files, and the files.
pub(super) struct Pair<'s> {
    pub(super) certificate: (&'static str, &'s str),
    pub(super) key: (&'static str, &'s str),
}

impl Pair<'_> {
    /// Reads both.
    pub(super) fn read(&self, provider: &CryptoProvider) -> io::Result<Arc<SingleCertAndKey>> {
        let chain = certificates(self.certificate.0, self.certificate.1)?;
        let key = private_key(self.key.0, self.key.1)?;
        let both = CertifiedKey::from_der(chain.clone(), key.clone_key(), provider);
        let both = match both {
            Ok(both) => both,
            Err(Error::InvalidCertificate(_)) => {
                // It may be of version 1, as old tools make them. Peers that use OpenSSL accept
                // that, but this library can't read it, to compare it with the key.
                let key = provider.key_provider.load_private_key(key);
                let key = key.map_err(|why| unusable(self.key.0, self.key.1, &why))?;
                CertifiedKey::new(chain, key)
            }
            Err(why) => return Err(unusable(self.key.0, self.key.1, &why)),
        };
        Ok(Arc::new(SingleCertAndKey::from(both)))
    }
}

/// The certificates of the authorities in the file that `key` names.
pub(super) fn roots(key: &str, path: &str) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, path)? {
        let added = roots.add(certificate);
        added.map_err(|why| unusable(key, path, &why))?;
    }
    Ok(roots)
}

/// The chain of certificates in the file that `key` names.
fn certificates(key: &str, path: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    ensure_named(key, path)?;
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let chain: Vec<_> = read.map_err(|why| unreadable(key, path, why))?;
    if chain.is_empty() {
        return Err(unusable(key, path, &"it has no certificate"));
    }
    Ok(chain)
}

/// The private key in the file that `key` names.
fn private_key(key: &str, path: &str) -> io::Result<PrivateKeyDer<'static>> {
    ensure_named(key, path)?;
    PrivateKeyDer::from_pem_file(path).map_err(|why| unreadable(key, path, why))
}

fn ensure_named(key: &str, path: &str) -> io::Result<()> {
    if path.is_empty() {
        let text = format!("{key} is not set, but the TLS mode needs it");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

fn unreadable(key: &str, path: &str, why: PemError) -> io::Error {
    match why {
        // As the C library says it, without the number.
        PemError::Io(why) if why.kind() == io::ErrorKind::NotFound => {
            unusable(key, path, &"No such file or directory")
        }
        why => unusable(key, path, &why),
    }
}

fn unusable(key: &str, path: &str, why: &dyn fmt::Display) -> io::Error {
    let text = format!("failed to load {key} \"{path}\": {why}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}
