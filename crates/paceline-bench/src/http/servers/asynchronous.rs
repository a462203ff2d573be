//! Servers on tokio: hyper, axum, actix-web.

use std::{convert::Infallible, io, net::TcpListener, thread::available_parallelism};

use actix_web::web;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::spawn_blocking,
};

use super::{length_text, order_text, sleep, Site};
use crate::{
    http::works::{HELLO, OTHER_ROUTES},
    servers::tokio as on_tokio,
};

pub(super) fn hyper_inline(listener: TcpListener, site: &Site) -> io::Result<()> {
    hyper(listener, site, false)
}

pub(super) fn hyper_blocking(listener: TcpListener, site: &Site) -> io::Result<()> {
    hyper(listener, site, true)
}

fn hyper(listener: TcpListener, site: &Site, in_threads: bool) -> io::Result<()> {
    let (setting, site) = (site.setting(), site.clone());
    let tls = site.tls.then(crate::tls::server).transpose()?;
    let tls = tls.map(tokio_rustls::TlsAcceptor::from);
    on_tokio::serve_by(listener, &setting, move |stream| {
        let (tls, site) = (tls.clone(), site.clone());
        async move {
            match tls {
                None => converse(stream, site, in_threads).await,
                Some(tls) => converse(tls.accept(stream).await?, site, in_threads).await,
            }
        }
    })
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    site: Site,
    in_threads: bool,
) -> io::Result<()> {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(answer(request, site, in_threads).await) }
    });
    let connection = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(TokioIo::new(stream), service);
    connection.await.map_err(io::Error::other)
}

async fn answer(request: Request<Incoming>, site: Site, in_threads: bool) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    match path {
        "/hello" | "/sleep" => {
            let sleeps = path == "/sleep";
            if in_threads {
                // No server knows which request sleeps: so each handler runs there.
                let _ = spawn_blocking(move || {
                    if sleeps {
                        sleep()
                    }
                })
                .await;
            } else if sleeps {
                sleep();
            }
            whole(HELLO)
        }
        "/post" => {
            let body = request.into_body().collect().await;
            let length = body.map_or(0, |body| body.to_bytes().len());
            whole(length_text(length))
        }
        "/file" => whole(read(site).await),
        path => match numbers(path) {
            Some((id, number)) => whole(order_text(id, number)),
            None => {
                let mut response = whole("");
                *response.status_mut() = hyper::StatusCode::NOT_FOUND;
                response
            }
        },
    }
}

fn whole(body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::new(Full::new(body.into()))
}

async fn read(site: Site) -> Vec<u8> {
    let read = spawn_blocking(move || std::fs::read(site.file));
    read.await
        .map(Result::unwrap_or_default)
        .unwrap_or_default()
}

/// The parameters of `/user/{id}/orders/{number}`. hyper has no router.
fn numbers(path: &str) -> Option<(u64, u64)> {
    let (id, number) = path.strip_prefix("/user/")?.split_once("/orders/")?;
    Some((id.parse().ok()?, number.parse().ok()?))
}

pub(super) fn axum(listener: TcpListener, site: &Site) -> io::Result<()> {
    use axum::{
        extract::{DefaultBodyLimit, Path, State},
        routing::{get, post},
        Router,
    };
    let mut router = Router::new()
        .route("/hello", get(|| async { HELLO }))
        .route(
            "/sleep",
            get(|| async {
                sleep();
                HELLO
            }),
        )
        .route(
            "/user/{id}/orders/{number}",
            get(|Path((id, number)): Path<(u64, u64)>| async move { order_text(id, number) }),
        )
        .route(
            "/post",
            post(|body: Bytes| async move { length_text(body.len()) }),
        )
        .route(
            "/file",
            get(|State(site): State<Site>| async move { read(site).await }),
        )
        .layer(DefaultBodyLimit::max(4 << 20));
    for number in 0..OTHER_ROUTES {
        let path = format!("/other/{number}/{{id}}");
        router = router.route(&path, get(|| async { HELLO }));
    }
    let router = router.with_state(site.clone());
    let setting = site.setting();
    let tls = site.tls.then(crate::tls::server).transpose()?;
    let tls = tls.map(tokio_rustls::TlsAcceptor::from);
    on_tokio::serve_by(listener, &setting, move |stream| {
        let (tls, service) = (tls.clone(), router.clone());
        async move {
            let service = hyper_util::service::TowerToHyperService::new(service);
            let http = http1::Builder::new();
            let served = match tls {
                None => http.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => {
                    let stream = TokioIo::new(tls.accept(stream).await?);
                    http.serve_connection(stream, service).await
                }
            };
            served.map_err(io::Error::other)
        }
    })
}

pub(super) fn actix(listener: TcpListener, site: &Site) -> io::Result<()> {
    let workers = available_parallelism().map_or(1, usize::from);
    let site = site.clone();
    let run = async move {
        let server = actix_web::HttpServer::new(move || {
            let mut app = actix_web::App::new()
                .app_data(web::PayloadConfig::new(4 << 20))
                .app_data(web::Data::new(site.clone()))
                .route("/hello", web::get().to(|| async { HELLO }))
                .route(
                    "/sleep",
                    web::get().to(|| async {
                        sleep();
                        HELLO
                    }),
                )
                .route(
                    "/user/{id}/orders/{number}",
                    web::get().to(|path: web::Path<(u64, u64)>| async move {
                        order_text(path.0, path.1)
                    }),
                )
                .route(
                    "/post",
                    web::post().to(|body: web::Bytes| async move { length_text(body.len()) }),
                )
                .route(
                    "/file",
                    web::get().to(|site: web::Data<Site>| async move {
                        let file = site.file.clone();
                        let read = web::block(move || std::fs::read(file)).await;
                        read.map(Result::unwrap_or_default).unwrap_or_default()
                    }),
                );
            for number in 0..OTHER_ROUTES {
                let path = format!("/other/{number}/{{id}}");
                app = app.route(&path, web::get().to(|| async { HELLO }));
            }
            app
        });
        let server = server.workers(workers).disable_signals();
        server.listen(listener)?.run().await
    };
    actix_web::rt::System::new().block_on(run)
}
