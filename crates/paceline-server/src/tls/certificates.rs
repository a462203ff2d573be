//! The certificates of a server, and which of them a client gets.

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    crypto::CryptoProvider,
    pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{read_certificates, unusable};

/// A certificate chain and its key as files.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The name of the server for which it is; `None`: for all others.
    name: Option<String>,
    certificates: PathBuf,
    key: PathBuf,
}

impl Files {
    pub(super) fn new(name: Option<String>, certificates: &Path, key: &Path) -> Self {
        Self {
            name: name.map(|name| name.to_ascii_lowercase()),
            certificates: certificates.to_owned(),
            key: key.to_owned(),
        }
    }

    fn read(&self, provider: &CryptoProvider) -> io::Result<Arc<CertifiedKey>> {
        let chain = read_certificates(&self.certificates)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|why| unusable(&self.key, &why))?;
        // It checks that the key belongs to the certificate.
        let both = CertifiedKey::from_der(chain, key, provider);
        both.map(Arc::new).map_err(|why| unusable(&self.key, &why))
    }
}

/// Certificates by the name of the server that a client asks for.
pub(super) struct ByName {
    named: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that ask for no known name.
    other: Option<Arc<CertifiedKey>>,
}

impl ByName {
    /// Reads all files.
    pub(super) fn read(files: &[Files], provider: &CryptoProvider) -> io::Result<Self> {
        let mut certificates = Self {
            named: HashMap::new(),
            other: None,
        };
        for one in files {
            let key = one.read(provider)?;
            match &one.name {
                Some(name) => drop(certificates.named.insert(name.clone(), key)),
                None => certificates.other = Some(key),
            }
        }
        Ok(certificates)
    }

    /// One certificate for all clients, from PEM texts.
    pub(super) fn one(
        certificates: &[u8],
        key: &[u8],
        provider: &CryptoProvider,
    ) -> io::Result<Self> {
        let unusable = |what: &str, why: &dyn fmt::Display| {
            let text = format!("read {what} in memory: {why}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|why| unusable("certificates", &why))?;
        if chain.is_empty() {
            return Err(unusable("certificates", &"there is none"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| unusable("a key", &why))?;
        let both = CertifiedKey::from_der(chain, key, provider);
        Ok(Self {
            named: HashMap::new(),
            other: Some(Arc::new(both.map_err(|why| unusable("a key", &why))?)),
        })
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let wildcard = || {
            let (_, parent) = name.split_once('.')?;
            self.named.get(&format!("*.{parent}"))
        };
        self.named.get(name).or_else(wildcard)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let named = name.as_deref().and_then(|name| self.find(name));
        named.or(self.other.as_ref()).cloned()
    }
}

impl fmt::Debug for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByName")
            .field("names", &self.named.keys())
            .finish_non_exhaustive()
    }
}
