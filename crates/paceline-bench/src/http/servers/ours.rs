//! `paceline-server`.

use std::{fs::File, io, net::TcpListener};

use paceline_server::{
    http::{Content, HttpServer, Response, Router},
    tls::Tls,
    Engine, HalfSync, Listen,
};

use super::{length_text, order_text, sleep, Site};
use crate::http::works::{HELLO, OTHER_ROUTES};

pub(super) fn default(listener: TcpListener, site: &Site) -> io::Result<()> {
    serve(listener, site, |server| server)
}

pub(super) fn half_sync(listener: TcpListener, site: &Site) -> io::Result<()> {
    let engine = Engine::HalfSyncHalfAsync(HalfSync::default().workers(site.threads));
    serve(listener, site, |server| server.engine(engine))
}

type Web = HttpServer<std::path::PathBuf>;

fn serve(listener: TcpListener, site: &Site, change: impl FnOnce(Web) -> Web) -> io::Result<()> {
    let listen = Listen::tcp_socket(listener);
    let mut server = HttpServer::new(listen, router(site))
        .threads(site.threads)
        .limits(|limits| limits.connections(20_000));
    if site.tls {
        server = server.tls(&Tls::from_config(crate::tls::server()?));
    }
    let _server = change(server).start()?;
    loop {
        std::thread::park();
    }
}

fn router(site: &Site) -> Router<std::path::PathBuf> {
    let mut router = Router::new(site.file.clone())
        .get("/hello", |_, _| HELLO)
        .get("/sleep", |_, _| {
            sleep();
            HELLO
        })
        .get("/user/{id}/orders/{number}", |_, req| {
            Ok::<_, paceline_server::http::Error>(order_text(
                req.param("id")?,
                req.param("number")?,
            ))
        })
        .post("/post", |_, req| {
            req.bytes().map(|body| length_text(body.len()))
        })
        .get("/file", |file, _| {
            File::open(file).and_then(|file| Ok(Response::new(Content::file(file)?)))
        });
    for number in 0..OTHER_ROUTES {
        router = router.get(&format!("/other/{number}/{{id}}"), |_, _| HELLO);
    }
    router
}
