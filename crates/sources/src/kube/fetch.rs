//! GETs of Secrets and ConfigMaps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kube::api::GetParams;
use ::kube::core::Request;
use sesame_api::ObjectKey;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::error::RequestError;
use super::hub::{Fetched, Message};
use super::parse::ParsedObject;
use super::references::{FetchCommand, FetchId, Found};
use super::watcher::Context;
use super::{path, request};

/// Maximum number of concurrent GETs.
const CONCURRENCY: usize = 16;

/// The running fetches, cancelled on drop.
pub(super) struct Fetches {
    context: Context,
    out: mpsc::Sender<Message>,
    permits: Arc<Semaphore>,
    tasks: JoinSet<()>,
    by_key: HashMap<ObjectKey, AbortHandle>,
}

impl Fetches {
    pub(super) fn new(context: Context, out: mpsc::Sender<Message>) -> Self {
        Self {
            context,
            out,
            permits: Arc::new(Semaphore::new(CONCURRENCY)),
            tasks: JoinSet::new(),
            by_key: HashMap::new(),
        }
    }

    pub(super) fn run(&mut self, commands: Vec<FetchCommand>) {
        for command in commands {
            let (FetchCommand::Start(key, _) | FetchCommand::Cancel(key)) = &command;
            if let Some(before) = self.by_key.remove(key) {
                before.abort();
            }
            if let FetchCommand::Start(key, id) = command {
                let (context, permits) = (self.context.clone(), self.permits.clone());
                let task = fetch(context, key.clone(), id, permits, self.out.clone());
                self.by_key.insert(key, self.tasks.spawn(task));
            }
        }
        while self.tasks.try_join_next().is_some() {}
        self.by_key.retain(|_, task| !task.is_finished());
    }
}

/// Retries the GET until it succeeds or the object is missing. Sends each result.
async fn fetch(
    context: Context,
    key: ObjectKey,
    id: FetchId,
    permits: Arc<Semaphore>,
    out: mpsc::Sender<Message>,
) {
    let mut retries = context.retries();
    loop {
        let Ok(permit) = permits.acquire().await else {
            return;
        };
        let result = get(&context, &key).await;
        drop(permit);
        let at = Instant::now();
        let (delay, duration) = match &result {
            Ok(_) | Err(RequestError::Missing) => (None, Duration::ZERO),
            Err(error) => {
                let (delay, duration) = retries.failed(error, at);
                (Some(delay), duration)
            }
        };
        let key = key.clone();
        let fetched = Fetched {
            key,
            id,
            at,
            result,
        };
        if out.send(Message::Fetch(fetched, duration)).await.is_err() {
            return;
        }
        match delay {
            Some(delay) => sleep(delay).await,
            None => return,
        }
    }
}

async fn get(context: &Context, key: &ObjectKey) -> Result<Found, RequestError> {
    let path = path::collection(key.kind, key.kind.versions()[0], Some(&key.namespace));
    let Ok(request) = Request::new(path).get(&key.name, &GetParams::default()) else {
        return Ok(Found::Nothing);
    };
    context.counters.count_get();
    let text = request::text(&context.client, request).await?;
    Ok(found(key, &text))
}

/// Converts the response to a GET of an object.
fn found(key: &ObjectKey, text: &str) -> Found {
    let parsed = match ParsedObject::parse(key.kind, text) {
        Ok(parsed) if parsed.key != *key => return Found::Nothing,
        Ok(parsed) => parsed,
        Err(error) => return Found::Unreadable(error.to_string()),
    };
    let (version, fingerprint) = (parsed.resource_version.clone(), parsed.fingerprint);
    match parsed.decode() {
        Ok(object) => Found::Object {
            object: Box::new(object),
            version,
            fingerprint,
        },
        Err(error) => Found::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use sesame_api::Kind;

    use super::*;

    #[test]
    fn another_object_is_not_the_requested_one() {
        let text = r#"{"metadata": {"namespace": "a", "name": "b", "resourceVersion": "1"}}"#;
        let found =
            |namespace, name| found(&ObjectKey::new(Kind::ConfigMap, namespace, name), text);
        assert!(matches!(found("a", "b"), Found::Object { .. }));
        for (namespace, name) in [("a", "c"), ("c", "b"), ("a/services/b?x=", "b")] {
            assert!(matches!(found(namespace, name), Found::Nothing));
        }
    }
}
