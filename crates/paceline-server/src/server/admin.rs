//! What the port of metrics and the page show of a server.

use std::sync::{Arc, OnceLock, Weak};

use paceline::{HandleId, Pool};

use super::{Server, Shared};
use crate::{
    codec::Framing,
    limits::Limit,
    page::{PortSession, ServiceState, States, Subject},
    peer::PeerAddress,
    service::Service,
};

pub(super) type AdminCodec = Framing;
pub(super) type Make = Box<dyn Fn(&PeerAddress) -> PortSession + Send + Sync>;

/// The server whose state is served, from its start on.
#[derive(Debug, Default)]
pub(super) struct Status(OnceLock<Weak<Shared>>);

impl Status {
    pub(super) fn set(&self, shared: &Arc<Shared>) {
        // It is set once, by `start`.
        let _ = self.0.set(Arc::downgrade(shared));
    }

    fn server(&self) -> Option<Server> {
        let shared = self.0.get()?.upgrade()?;
        Some(Server { shared })
    }
}

impl Subject for Status {
    fn name(&self) -> String {
        let server = self.server();
        let first = server.and_then(|server| server.local_addr());
        first.map_or_else(|| "server".to_owned(), |address| address.to_string())
    }

    fn metrics(&self) -> String {
        let server = self.server();
        server.map_or_else(String::new, |server| server.open_metrics())
    }

    fn is_ready(&self) -> bool {
        self.server().is_some_and(|server| server.is_ready())
    }

    fn pools(&self) -> Vec<(String, Pool)> {
        let server = self.server();
        server.map_or_else(Vec::new, |server| server.shared.pools.all())
    }

    fn service_of(&self, handle: HandleId) -> Option<String> {
        let server = self.server()?;
        server.shared.services.iter().find_map(|service| {
            let mut links = service.links().into_iter();
            let link = links.find(|link| link.handle().id() == handle)?;
            let routes = service.routes.as_ref();
            let route = routes.and_then(|routes| routes.name(link.route()));
            Some(route.unwrap_or_else(|| service.name.clone()))
        })
    }

    fn set_watched(&self, is_watched: bool) {
        if let Some(server) = self.server() {
            let services = server.shared.services.iter();
            let routes = services.filter_map(|service| service.routes.as_ref());
            routes.for_each(|routes| routes.set_timed(is_watched));
        }
    }

    fn services(&self) -> Vec<ServiceState> {
        let Some(server) = self.server() else {
            return Vec::new();
        };
        let services = server.shared.services.iter();
        services
            .map(|service| server.shared.state_of(service))
            .collect()
    }
}

impl Shared {
    fn state_of(&self, service: &Arc<Service>) -> ServiceState {
        let counters = service.counters();
        let met = |limit: &Limit| match limit {
            Limit::Connections => self.refused(service),
            limit => counters.times_met(*limit),
        };
        let is_counted = |(_, count): &(&str, u64)| *count > 0;
        let limits = Limit::ALL.iter().map(|limit| (limit.name(), met(limit)));
        ServiceState {
            name: service.name.clone(),
            opened: counters.opened.get(),
            items: counters.items.get(),
            bytes_in: counters.bytes_in.get(),
            refused: self.refused(service),
            states: states_of(service),
            limits: limits.filter(is_counted).collect(),
            endings: counters.endings().filter(is_counted).collect(),
            routes: service.route_reports(),
        }
    }
}

fn states_of(service: &Service) -> States {
    let links = service.links();
    States {
        open: links.len(),
        handshaking: service.handshakes().min(links.len()),
        paused: links.iter().filter(|link| link.is_paused()).count(),
        with_mail: links
            .iter()
            .filter(|link| link.mailbox().has_mail())
            .count(),
    }
}
