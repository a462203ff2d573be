//! `--tls CERT KEY` and `--tls-self-signed`: the certificate of an example.

use std::{ffi::OsString, fs, io, path::PathBuf};

use lexopt::Parser;
use paceline_server::tls::Tls;

use super::attempted;

/// Two PEM files: a chain of certificates, and the key of the first one.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pair {
    /// The next two values of an option.
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        let mut path = || parser.value().map(|path: OsString| PathBuf::from(path));
        let (chain, key) = (path()?, path()?);
        Ok(Self { chain, key })
    }
}

/// The source of the certificate.
#[derive(Clone, Debug)]
pub(crate) enum Certificate {
    /// From these PEM files.
    Files(Pair),
    /// From this program, for `localhost`: clients can't verify it, unless they have the file that it
    /// is written to.
    SelfSigned(Option<PathBuf>),
}

impl Certificate {
    /// The two values of `--tls`.
    pub(crate) fn files(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        Pair::parse(parser).map(Self::Files)
    }

    /// Reads it, or makes it.
    pub(crate) fn tls(&self) -> io::Result<Tls> {
        match self {
            Self::Files(Pair { chain, key }) => Tls::pem(chain, key),
            Self::SelfSigned(save) => {
                let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
                let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
                if let Some(path) = save {
                    let what = format!("write the certificate to {}", path.display());
                    fs::write(path, made.cert.pem()).map_err(attempted(what))?;
                }
                Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem())
            }
        }
    }
}
