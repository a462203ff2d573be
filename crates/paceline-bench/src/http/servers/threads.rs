//! Servers whose handlers are plain functions: may_minihttp, tiny_http, rouille, khttp.

use std::{
    fs::File,
    io::{self, Read},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, available_parallelism},
};

use super::{length_text, order_text, sleep, Site};
use crate::http::works::{HELLO, OTHER_ROUTES};

pub(super) fn may(address: SocketAddr, site: &Site) -> io::Result<()> {
    use may_minihttp::{HttpServer, HttpService, Request, Response};

    #[derive(Clone)]
    struct Service(Site);

    impl HttpService for Service {
        fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
            match request.path() {
                "/hello" => response.body(HELLO),
                "/sleep" => {
                    sleep();
                    response.body(HELLO);
                }
                "/post" => {
                    let mut body = Vec::new();
                    request.body().read_to_end(&mut body)?;
                    response.body_vec(length_text(body.len()).into_bytes());
                }
                "/file" => response.body_vec(std::fs::read(&self.0.file)?),
                path => {
                    let numbers = path.strip_prefix("/user/");
                    let numbers = numbers.and_then(|rest| rest.split_once("/orders/"));
                    let parsed = numbers
                        .and_then(|(id, number)| Some((id.parse().ok()?, number.parse().ok()?)));
                    match parsed {
                        Some((id, number)) => {
                            response.body_vec(order_text(id, number).into_bytes());
                        }
                        None => {
                            response.status_code(404, "Not Found");
                        }
                    }
                }
            }
            Ok(())
        }
    }

    may::config().set_workers(available_parallelism().map_or(1, usize::from));
    may::config().set_worker_pin(false);
    // Reading a body takes more than the 16 KiB that a coroutine has otherwise.
    may::config().set_stack_size(0x4000);
    let server = HttpServer(Service(site.clone())).start(address)?;
    let ended = server.join();
    ended.map_err(|_| io::Error::other("may_minihttp panicked"))
}

pub(super) fn tiny(listener: TcpListener, site: &Site) -> io::Result<()> {
    let server = tiny_http::Server::from_listener(listener, None);
    let server = Arc::new(server.map_err(io::Error::other)?);
    let threads: Vec<_> = (0..site.threads)
        .map(|_| {
            let (server, site) = (Arc::clone(&server), site.clone());
            thread::spawn(move || {
                while let Ok(request) = server.recv() {
                    // A client that is gone gets no answer.
                    let _ = answer(request, &site);
                }
            })
        })
        .collect();
    for thread in threads {
        let _ = thread.join();
    }
    Err(io::Error::other("tiny_http ended"))
}

fn answer(mut request: tiny_http::Request, site: &Site) -> io::Result<()> {
    use tiny_http::Response;

    let text = match request.url() {
        "/hello" => HELLO.to_owned(),
        "/sleep" => {
            sleep();
            HELLO.to_owned()
        }
        "/post" => {
            let mut body = Vec::new();
            request.as_reader().read_to_end(&mut body)?;
            length_text(body.len())
        }
        "/file" => {
            let response = Response::from_file(File::open(&site.file)?);
            // The client counts by lengths.
            return request.respond(response.with_chunked_threshold(usize::MAX));
        }
        url => {
            let numbers = url.strip_prefix("/user/");
            let numbers = numbers.and_then(|rest| rest.split_once("/orders/"));
            match numbers.map(|(id, number)| (id.parse(), number.parse())) {
                Some((Ok(id), Ok(number))) => order_text(id, number),
                _ => return request.respond(Response::empty(404)),
            }
        }
    };
    request.respond(Response::from_string(text))
}

pub(super) fn rouille(address: SocketAddr, site: &Site) -> io::Result<()> {
    use rouille::{router, Response};

    let file = site.file.clone();
    let server = rouille::Server::new(address, move |request| {
        router!(request,
            (GET) ["/hello"] => { Response::text(HELLO) },
            (GET) ["/sleep"] => {
                sleep();
                Response::text(HELLO)
            },
            (GET) ["/user/{id}/orders/{number}", id: u64, number: u64] => {
                Response::text(order_text(id, number))
            },
            (POST) ["/post"] => {
                let mut body = Vec::new();
                let read = request.data().map(|mut data| data.read_to_end(&mut body));
                match read {
                    Some(Ok(length)) => Response::text(length_text(length)),
                    _ => Response::empty_400(),
                }
            },
            (GET) ["/file"] => {
                match File::open(&file) {
                    Ok(file) => Response::from_file("application/octet-stream", file),
                    Err(_) => Response::empty_404(),
                }
            },
            _ => Response::empty_404()
        )
    });
    server
        .map_err(io::Error::other)?
        .pool_size(site.threads)
        .run();
    Err(io::Error::other("rouille ended"))
}

pub(super) fn khttp(address: SocketAddr, site: &Site) -> io::Result<()> {
    use khttp::{Headers, Method, Server, Status};

    let file = site.file.clone();
    let mut app = Server::builder(address)?;
    app.thread_count(site.threads);
    app.route(Method::Get, "/hello", |_, response| {
        response.ok(Headers::empty(), HELLO)
    });
    app.route(Method::Get, "/sleep", |_, response| {
        sleep();
        response.ok(Headers::empty(), HELLO)
    });
    app.route(
        Method::Get,
        "/user/:id/orders/:number",
        |context, response| {
            let number = |name| context.params.get(name).and_then(|text| text.parse().ok());
            match (number("id"), number("number")) {
                (Some(id), Some(number)) => response.ok(Headers::empty(), order_text(id, number)),
                _ => response.send0(&Status::BAD_REQUEST, Headers::empty()),
            }
        },
    );
    app.route(Method::Post, "/post", |mut context, response| {
        let body = context.body().vec()?;
        response.ok(Headers::empty(), length_text(body.len()))
    });
    app.route(Method::Get, "/file", move |_, response| {
        response.ok(Headers::empty(), std::fs::read(&file)?)
    });
    for number in 0..OTHER_ROUTES {
        let path = format!("/other/{number}/:id");
        app.route(Method::Get, &path, |_, response| {
            response.ok(Headers::empty(), HELLO)
        });
    }
    app.build().serve_epoll()
}
