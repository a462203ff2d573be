//! Which handler gets a request: by path and method, with the settings of each route.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use matchit::Params;
use paceline::{HandlerKind, Level, Pool};

use super::{
    files::Folder, response::Answer, upgrade::Upgrades, IntoAnswer, Request, Response, Result,
};
use crate::routes::RouteCounters;

/// How a route gets the body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// The handler is called when all of the body is there: in memory up to 64 KiB, and longer while
    /// there is [memory for long bodies](super::HttpServer::body_memory); otherwise in a temporary
    /// file without a name. A slow client holds no thread.
    #[default]
    Whole,
    /// The handler is called after the head, and returns a [`Push`](super::Push) that gets the body
    /// as it comes. A slow client holds no thread.
    Push,
    /// The handler is called after the head, on a thread of its own unless the body has come with
    /// the head. It reads the body from [`Request::stream`], which waits for the client. So many clients can do that at once as
    /// [`HttpServer::pulls`](super::HttpServer::pulls) says; one more gets 503.
    Pull,
}

/// The routes of an application, and its state.
///
/// A path may have parameters: `/user/{id}`, and at its end `/files/{*path}`. `HEAD` is answered by
/// the handler of `GET`, without the body. A path that is there, but not with this method, is
/// answered with 405 and the methods that it has.
///
/// ```
/// use paceline_server::http::{Error, Router};
///
/// struct App { names: Vec<String> }
///
/// let app = Router::new(App { names: vec!["Ada".to_owned()] })
///     .get("/", |_, _| "hello\n")
///     .get("/user/{id}", |app, req| {
///         let id: usize = req.param("id")?; // 400 if it is no number
///         app.names.get(id).cloned().ok_or_else(|| Error::new(404, "no such user"))
///     })
///     .post("/echo", |_, req| req.bytes().map(|body| String::from_utf8_lossy(&body).into_owned()))
///     .limit(1 << 20);
/// ```
#[must_use = "give it to `Server::http`"]
pub struct Router<A> {
    state: Arc<A>,
    table: Table,
    /// The last one: settings that follow are for it.
    last: Option<(usize, usize)>,
}

/// Routes, without the type of the state.
#[derive(Default)]
pub(super) struct Table {
    paths: matchit::Router<usize>,
    routes: Vec<Path>,
    before: Vec<Before>,
    after: Vec<After>,
    faults: Vec<String>,
    /// How many routes there are.
    count_of_routes: u32,
    /// The level where connections begin, if routes have levels.
    home: OnceLock<String>,
}

pub(super) type Handler = Box<dyn Fn(&mut Request<'_>) -> Answer + Send + Sync>;
type Before = Box<dyn Fn(&mut Request<'_>) -> Result<Option<Response>> + Send + Sync>;
type After = Box<dyn Fn(&mut Request<'_>, &mut Response) + Send + Sync>;

/// The routes of one path.
struct Path {
    pattern: String,
    routes: Vec<Arc<Route>>,
}

/// One route.
pub(super) struct Route {
    method: String,
    /// Method and path, as metrics and reports show it.
    pub(super) name: String,
    handler: Handler,
    pub(super) body: Body,
    pub(super) limit: Option<u64>,
    blocks: bool,
    kind: OnceLock<HandlerKind>,
    /// The level whose threads run the handler: that of the listener if it names none.
    level_name: Option<String>,
    level: OnceLock<Level>,
    pub(super) counters: RouteCounters,
    /// Its number among all routes, from 1 on.
    pub(super) number: u32,
    /// What the connection becomes behind the answer.
    pub(super) upgrades: Option<Upgrades>,
}

/// What a router knows of a request.
pub(super) enum Found<'r> {
    Route(&'r Arc<Route>, Params<'r, 'r>),
    /// The path has other methods: these.
    Methods(String),
    Nothing,
}

impl<A: Send + Sync + 'static> Router<A> {
    /// No routes yet. Every handler gets `state`.
    pub fn new(state: A) -> Self {
        Self {
            state: Arc::new(state),
            table: Table::default(),
            last: None,
        }
    }

    /// A route for this method and path.
    pub fn route<F, R>(mut self, method: &str, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoAnswer,
    {
        let state = Arc::clone(&self.state);
        let handler: Handler = Box::new(move |request| handler(&state, request).into_answer());
        self.last = self.table.add(method, path, handler);
        self
    }

    /// A route for `GET` and `HEAD`.
    pub fn get<F, R>(self, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoAnswer,
    {
        self.route("GET", path, handler)
    }

    /// A route for `POST`.
    pub fn post<F, R>(self, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoAnswer,
    {
        self.route("POST", path, handler)
    }

    /// A route for `PUT`.
    pub fn put<F, R>(self, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoAnswer,
    {
        self.route("PUT", path, handler)
    }

    /// A route for `PATCH`.
    pub fn patch<F, R>(self, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoAnswer,
    {
        self.route("PATCH", path, handler)
    }

    /// A route for `DELETE`.
    pub fn delete<F, R>(self, path: &str, handler: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> R + Send + Sync + 'static,
        R: IntoAnswer,
    {
        self.route("DELETE", path, handler)
    }

    /// Serves the files below `folder` under the path `prefix`, for `GET` and `HEAD`: single ranges,
    /// `if-none-match`, and `name.br` or `name.gz` in place of `name` if the client takes it. What
    /// leaves the folder, through `..` or a link, is not found.
    pub fn files(self, prefix: &str, folder: impl Into<PathBuf>) -> Self {
        let folder = Folder::new(folder.into());
        let path = format!("{}/{{*path}}", prefix.trim_end_matches('/'));
        self.get(&path, move |_, request| folder.serve(request))
            .blocks()
    }

    /// Calls `hook` before each handler, the first one first. An answer that it returns is sent in
    /// place of the handler's. It sees no body.
    pub fn before<F>(mut self, hook: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>) -> Result<Option<Response>> + Send + Sync + 'static,
    {
        let state = Arc::clone(&self.state);
        let hook: Before = Box::new(move |request| hook(&state, request));
        self.table.before.push(hook);
        self
    }

    /// Calls `hook` behind each handler, and for the answers of the router itself: it may change the
    /// answer, and sees its [error](Response::error).
    pub fn after<F>(mut self, hook: F) -> Self
    where
        F: Fn(&A, &mut Request<'_>, &mut Response) + Send + Sync + 'static,
    {
        let state = Arc::clone(&self.state);
        let hook: After = Box::new(move |request, response| hook(&state, request, response));
        self.table.after.push(hook);
        self
    }

    /// How the last route gets the body of a request. Default: [`Body::Whole`].
    pub fn body(self, body: Body) -> Self {
        let name = "body: a WebSocket or a stream of events has no body";
        self.set_if(
            name,
            |route| route.upgrades.is_none(),
            |route| route.body = body,
        )
    }

    /// The longest body of the last route. Default: that of the server, 2 MiB.
    pub fn limit(self, bytes: u64) -> Self {
        self.set("limit", |route| route.limit = Some(bytes))
    }

    /// The handler of the last route is known to block: another thread leads as soon as it is
    /// called. Without this the server learns it.
    pub fn blocks(self) -> Self {
        self.set("blocks", |route| route.blocks = true)
    }

    /// The threads of this [level](crate::ServerBuilder::level) run the handler of the last route: the
    /// connection moves there, and back with the next request for another level. So routes that take
    /// long can't use up the threads of the others. The half-sync engine has no levels for items.
    pub fn level(self, name: impl Into<String>) -> Self {
        self.set("level", |route| route.level_name = Some(name.into()))
    }

    fn set(self, name: &str, change: impl FnOnce(&mut Route)) -> Self {
        self.set_if(name, |_| true, change)
    }

    /// Changes the last route, if it is of the kind that has this setting.
    pub(super) fn set_if(
        mut self,
        name: &str,
        has: impl FnOnce(&Route) -> bool,
        change: impl FnOnce(&mut Route),
    ) -> Self {
        let route = self.last.and_then(|(path, route)| {
            let path = self.table.routes.get_mut(path)?;
            Arc::get_mut(path.routes.get_mut(route)?).filter(|route| has(route))
        });
        match route {
            Some(route) => change(route),
            None => {
                let fault = format!("{name}: it follows no route that it could be for");
                self.table.faults.push(fault);
            }
        }
        self
    }

    /// A route whose connections become something else.
    pub(super) fn upgrading(mut self, path: &str, upgrades: Upgrades, handler: Handler) -> Self {
        self.last = self.table.add("GET", path, handler);
        self.set("route", |route| route.upgrades = Some(upgrades))
    }

    pub(super) fn state(&self) -> Arc<A> {
        Arc::clone(&self.state)
    }

    pub(super) fn into_table(self) -> Table {
        self.table
    }
}

impl Table {
    /// Adds a route. Where it is; `None` if it can't be.
    fn add(&mut self, method: &str, path: &str, handler: Handler) -> Option<(usize, usize)> {
        let known = self.routes.iter().position(|known| known.pattern == path);
        let place = match known {
            Some(place) => place,
            None => self.add_path(path)?,
        };
        let name = format!("{method} {path}");
        self.count_of_routes += 1;
        let routes = &mut self.routes[place].routes;
        if routes.iter().any(|route| route.method == method) {
            self.faults
                .push(format!("{name}: there are two such routes"));
            return None;
        }
        routes.push(Arc::new(Route {
            method: method.to_owned(),
            name,
            handler,
            body: Body::Whole,
            limit: None,
            blocks: false,
            kind: OnceLock::new(),
            level_name: None,
            level: OnceLock::new(),
            upgrades: None,
            counters: RouteCounters::default(),
            number: self.count_of_routes,
        }));
        Some((place, routes.len() - 1))
    }

    fn add_path(&mut self, path: &str) -> Option<usize> {
        let place = self.routes.len();
        if let Err(why) = self.paths.insert(path, place) {
            self.faults.push(format!("the path {path:?}: {why}"));
            return None;
        }
        self.routes.push(Path {
            pattern: path.to_owned(),
            routes: Vec::new(),
        });
        Some(place)
    }

    /// What can't be among the routes, in words.
    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }

    /// All routes.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().flat_map(|path| &path.routes)
    }

    /// Lets the pool learn of each route how long its calls take, and whether they sleep.
    pub(super) fn learn_in(&self, pool: &Pool) {
        for route in self.all() {
            let kind = pool.handler_kind(&route.name);
            let kind = if route.blocks { kind.blocks() } else { kind };
            // A router has one server.
            let _ = route.kind.set(kind);
        }
    }

    /// The level where connections begin.
    pub(super) fn home(&self) -> &str {
        self.home.get().map_or("", String::as_str)
    }

    /// Looks up the levels of all routes.
    ///
    /// # Errors
    /// A route names a level that there is not.
    pub(super) fn find_levels<'s>(
        &self,
        home: &str,
        level: impl Fn(&str) -> Option<&'s Level>,
    ) -> io::Result<()> {
        let missing = |route: &&Arc<Route>| {
            let name = route.level_name.as_deref();
            name.is_some_and(|name| level(name).is_none())
        };
        if let Some(route) = self.all().find(missing) {
            let name = route.level_name.as_deref().unwrap_or_default();
            let text = format!("route {}: there is no level {name:?}", route.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if self.all().all(|route| route.level_name.is_none()) {
            return Ok(());
        }
        // A router has one server.
        let _ = self.home.set(home.to_owned());
        for route in self.all() {
            let name = route.level_name.as_deref().unwrap_or(home);
            if let Some(level) = level(name) {
                let _ = route.level.set(level.clone());
            }
        }
        Ok(())
    }

    pub(super) fn find<'r>(&'r self, method: &str, path: &'r str) -> Found<'r> {
        let Ok(found) = self.paths.at(path) else {
            return Found::Nothing;
        };
        let Some(path) = self.routes.get(*found.value) else {
            return Found::Nothing;
        };
        match path.with(method) {
            Some(route) => Found::Route(route, found.params),
            None => Found::Methods(path.methods()),
        }
    }

    /// Calls the hooks that come before a handler.
    pub(super) fn call_before(&self, request: &mut Request<'_>) -> Result<Option<Response>> {
        for hook in &self.before {
            if let Some(response) = hook(request)? {
                return Ok(Some(response));
            }
        }
        Ok(None)
    }

    pub(super) fn call_after(&self, request: &mut Request<'_>, response: &mut Response) {
        self.after.iter().for_each(|hook| hook(request, response));
    }

    pub(super) fn has_after(&self) -> bool {
        !self.after.is_empty()
    }
}

impl Path {
    /// The route for a method: that of `GET` for `HEAD` too.
    fn with(&self, method: &str) -> Option<&Arc<Route>> {
        let of = |method: &str| self.routes.iter().find(|route| route.method == method);
        of(method).or_else(|| if method == "HEAD" { of("GET") } else { None })
    }

    /// Its methods, as the header `allow` lists them.
    fn methods(&self) -> String {
        let mut methods: Vec<_> = self.routes.iter().map(|route| &*route.method).collect();
        if methods.contains(&"GET") && !methods.contains(&"HEAD") {
            methods.push("HEAD");
        }
        if !methods.contains(&"OPTIONS") {
            methods.push("OPTIONS");
        }
        methods.join(", ")
    }
}

impl Route {
    pub(super) fn call(&self, request: &mut Request<'_>) -> Answer {
        match &self.upgrades {
            None => (self.handler)(request),
            Some(upgrades) => upgrades.call(&self.handler, request),
        }
    }

    /// Where its handler runs, if it matters.
    pub(super) fn level(&self) -> Option<&Level> {
        self.level.get()
    }

    /// What the pool knows of its calls.
    pub(super) fn kind(&self) -> Option<&HandlerKind> {
        self.kind.get()
    }
}

impl<A> fmt::Debug for Router<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.table.routes.iter().flat_map(|path| &path.routes);
        let names = routes.map(|route| &route.name);
        f.debug_list().entries(names).finish()
    }
}
