//! An authority, and certificates that it has signed, as PEM files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

/// An authority, and the folder with its certificates.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one. Its files are in this folder, which it makes.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        fs::create_dir_all(folder).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let root = params.self_signed(&key).expect("a certificate");
        fs::write(folder.join("root.pem"), root.pem()).expect("a file");
        Self {
            folder: folder.to_owned(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for this user or host, in files that begin with its name. A host may have
    /// several names.
    pub(crate) fn sign(&self, common_name: &str, hosts: &[&str]) {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names of hosts");
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a signature");
        fs::write(self.chain(common_name), signed.pem()).expect("a file");
        fs::write(self.key(common_name), key.serialize_pem()).expect("a file");
    }

    /// The file of the authority.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root.pem")
    }

    pub(crate) fn chain(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pem"))
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }
}
