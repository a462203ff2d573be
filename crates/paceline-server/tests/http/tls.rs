//! HTTP over TLS.

use std::fs;

use paceline_server::{http::Router, tls::Tls};

use crate::support::Site;

/// A client that has the wrong scheme gets to know it in words.
#[test]
fn plain_http_on_tls_port() {
    let folder = std::env::temp_dir().join(format!("paceline-http-tls-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = Tls::pem(&certificate, &key).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let router = Router::new(()).get("/", |(), _| "secret");
    let site = Site::with(router, |server| server.tls(&tls));
    let mut client = site.client_with("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer().unwrap();
    assert_eq!(answer.status, 400);
    assert_eq!(answer.text(), "plain HTTP was sent to an HTTPS port\n");
    assert_eq!(client.rest(), b"");
}
