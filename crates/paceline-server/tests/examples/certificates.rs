//! An authority, and certificates that it has signed, as PEM files.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::program::Folder;

/// PEM files: an authority, and certificates that it has signed.
pub(super) struct Certificates {
    folder: Folder,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// With one for `localhost` and 127.0.0.1.
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = rcgen::DnType::CommonName;
        params
            .distinguished_name
            .push(name, "the authority of the tests");
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let certificates = Self {
            folder: Folder::new(),
            issuer: Issuer::new(params, key),
        };
        fs::write(certificates.root(), root.pem()).unwrap();
        certificates.sign("localhost", &["localhost", "127.0.0.1"]);
        certificates
    }

    /// A certificate for these names, in files that begin with `file`.
    pub(super) fn sign(&self, file: &str, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.chain(file), signed.pem()).unwrap();
        fs::write(self.key(file), key.serialize_pem()).unwrap();
    }

    /// The file of the authority.
    pub(super) fn root(&self) -> String {
        self.folder.file("root.pem")
    }

    pub(super) fn chain(&self, file: &str) -> String {
        self.folder.file(&format!("{file}.pem"))
    }

    pub(super) fn key(&self, file: &str) -> String {
        self.folder.file(&format!("{file}.key"))
    }
}
