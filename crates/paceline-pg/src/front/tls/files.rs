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

/// Why TLS can't be set up: the key of the configuration, and the reason.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) key: &'static str,
    pub(crate) why: String,
}

/// The faults of one side, so that all of them are reported at once.
#[derive(Debug, Default)]
pub(super) struct Faults(pub(super) Vec<Fault>);

impl Faults {
    /// The value, or `None` and one more fault.
    pub(super) fn take<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.0.push(fault)).ok()
    }
}

/// A certificate and its key: the keys of the configuration that name their files, and the files.
pub(super) struct Pair<'s> {
    pub(super) certificate: (&'static str, &'s str),
    pub(super) key: (&'static str, &'s str),
}

impl Pair<'_> {
    /// Reads both.
    pub(super) fn read(
        &self,
        provider: &CryptoProvider,
        faults: &mut Faults,
    ) -> Option<Arc<SingleCertAndKey>> {
        let chain = faults.take(certificates(self.certificate.0, self.certificate.1));
        let key = faults.take(private_key(self.key.0, self.key.1));
        faults.take(self.joined(chain?, key?, provider))
    }

    fn joined(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Arc<SingleCertAndKey>, Fault> {
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
pub(super) fn roots(key: &'static str, path: &str) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, path)? {
        let added = roots.add(certificate);
        added.map_err(|why| unusable(key, path, &why))?;
    }
    Ok(roots)
}

/// The chain of certificates in the file that `key` names.
fn certificates(key: &'static str, path: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
    ensure_named(key, path)?;
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let chain: Vec<_> = read.map_err(|why| unreadable(key, path, why))?;
    if chain.is_empty() {
        return Err(unusable(key, path, &"it has no certificate"));
    }
    Ok(chain)
}

/// The private key in the file that `key` names.
fn private_key(key: &'static str, path: &str) -> Result<PrivateKeyDer<'static>, Fault> {
    ensure_named(key, path)?;
    PrivateKeyDer::from_pem_file(path).map_err(|why| unreadable(key, path, why))
}

fn ensure_named(key: &'static str, path: &str) -> Result<(), Fault> {
    if path.is_empty() {
        let why = format!("{key} is not set, but the TLS mode needs it");
        return Err(Fault { key, why });
    }
    Ok(())
}

fn unreadable(key: &'static str, path: &str, why: PemError) -> Fault {
    match why {
        // As the C library says it, without the number.
        PemError::Io(why) if why.kind() == io::ErrorKind::NotFound => {
            unusable(key, path, &"No such file or directory")
        }
        why => unusable(key, path, &why),
    }
}

fn unusable(key: &'static str, path: &str, why: &dyn fmt::Display) -> Fault {
    let why = format!("failed to load {key} \"{path}\": {why}");
    Fault { key, why }
}
