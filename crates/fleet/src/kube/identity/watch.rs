//! The Secrets that matter here, as they are and as they change.
//!
//! In: an API server. Out: [`Seen`]. It must not know what stands in them.

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use super::{Config, secret};
use crate::kube::watch::Pace;

/// One of the watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Of the authorities' Secret.
    Authority,
    /// Of the server's.
    Server,
    /// Of the fleets', in all namespaces or one of those that there may be fleets in.
    Fleets(usize),
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// A Secret is so.
    Is(Source, Box<Secret>),
    /// A Secret is gone.
    Gone(Source, Box<Secret>),
    /// All that there is follows, then [`Seen::Complete`]; what doesn't follow is gone.
    Begin(Source),
    /// All that there is has been told.
    Complete(Source),
    /// The API server doesn't answer as it should; the watch tries again.
    Failed(Source, String),
}

/// How long a watch waits for an answer before it asks again, in seconds.
const TIMEOUT: u32 = 290;

/// All watches.
pub(super) fn all(client: &Client, config: &Config) -> SelectAll<BoxStream<'static, Seen>> {
    let own: Api<Secret> = Api::namespaced(client.clone(), &config.namespace);
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let kept =
        watcher::Config::default().labels(&format!("{}={}", secret::KEPT_BY, config.namespace));
    let fleets: Vec<Api<Secret>> = match &config.fleet_namespaces {
        None => vec![Api::all(client.clone())],
        Some(namespaces) => namespaces
            .iter()
            .map(|namespace| Api::namespaced(client.clone(), namespace))
            .collect(),
    };
    let mut out = vec![
        one(Source::Authority, own.clone(), named(secret::AUTHORITY)),
        one(Source::Server, own, named(secret::SERVER)),
    ];
    for (index, api) in fleets.into_iter().enumerate() {
        out.push(one(Source::Fleets(index), api, kept.clone()));
    }
    stream::select_all(out)
}

fn one(source: Source, api: Api<Secret>, config: watcher::Config) -> BoxStream<'static, Seen> {
    let events = watcher::watcher(api, config.timeout(TIMEOUT)).backoff(Pace::default());
    let told = events.map(move |event| match event {
        Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => {
            Seen::Is(source, Box::new(secret))
        }
        Ok(watcher::Event::Delete(secret)) => Seen::Gone(source, Box::new(secret)),
        Ok(watcher::Event::Init) => Seen::Begin(source),
        Ok(watcher::Event::InitDone) => Seen::Complete(source),
        Err(error) => Seen::Failed(source, error.to_string()),
    });
    told.boxed()
}
