//! `--tls CERT KEY` and `--tls-self-signed`: the certificate of an example.

use std::{fs, io, path::PathBuf};

use lexopt::Parser;
use paceline_server::tls::Tls;

use super::attempted;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub(crate) enum Certificate {
    /// From these PEM files: the chain, and its key.
    Files(PathBuf, PathBuf),
    /// From this program, for `localhost`: clients can't verify it, unless they have the file that it
    /// is written to.
    SelfSigned(Option<PathBuf>),
}

impl Certificate {
    /// The two values of `--tls`.
    pub(crate) fn files(parser: &mut Parser) -> Result<Self, lexopt::Error> {
        Ok(Self::Files(parser.value()?.into(), parser.value()?.into()))
    }

    /// Reads it, or makes it.
    pub(crate) fn tls(&self) -> io::Result<Tls> {
        match self {
            Self::Files(chain, key) => Tls::pem(chain, key),
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
