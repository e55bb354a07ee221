//! Getting Secrets and ConfigMaps by name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use ::kube::api::GetParams;
use ::kube::core::Request;
use sesame_api::ObjectKey;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::failure::Failure;
use super::follow::{Means, in_time};
use super::hub::{Fetched, Message};
use super::pace::Row;
use super::path;
use super::reading::Reading;
use super::references::{Found, Order, Ticket};

/// So many are asked for at once.
const AT_ONCE: usize = 16;

/// The fetches under way. Dropping it ends them.
pub(super) struct Fetches {
    means: Means,
    out: mpsc::Sender<Message>,
    turn: Arc<Semaphore>,
    tasks: JoinSet<()>,
    by_key: HashMap<ObjectKey, AbortHandle>,
}

impl Fetches {
    /// None yet.
    pub(super) fn new(means: Means, out: mpsc::Sender<Message>) -> Self {
        Self {
            means,
            out,
            turn: Arc::new(Semaphore::new(AT_ONCE)),
            tasks: JoinSet::new(),
            by_key: HashMap::new(),
        }
    }

    /// Does what was ordered.
    pub(super) fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            let (Order::Fetch(key, _) | Order::Drop(key)) = &order;
            if let Some(before) = self.by_key.remove(key) {
                before.abort();
            }
            if let Order::Fetch(key, ticket) = order {
                let (means, out) = (self.means.clone(), self.out.clone());
                let task = fetch(means, key.clone(), ticket, self.turn.clone(), out);
                self.by_key.insert(key, self.tasks.spawn(task));
            }
        }
        while self.tasks.try_join_next().is_some() {}
        self.by_key.retain(|_, task| !task.is_finished());
    }
}

/// Gets one, until it is clear what it is, or that it is not there.
async fn fetch(
    means: Means,
    key: ObjectKey,
    ticket: Ticket,
    turn: Arc<Semaphore>,
    out: mpsc::Sender<Message>,
) {
    let mut row = Row::default();
    let mut attempts = 0;
    loop {
        let result = {
            let Ok(_turn) = turn.acquire().await else {
                return;
            };
            get(&means, &key).await
        };
        let wait = match &result {
            Ok(_) | Err(Failure::Missing) => None,
            Err(failure) => {
                attempts = row.failed(failure);
                Some(means.pace.after(failure, attempts, ticket))
            }
        };
        let message = Message::Fetch(key.clone(), ticket, Instant::now(), result, attempts);
        if out.send(message).await.is_err() {
            return;
        }
        match wait {
            Some(wait) => sleep(wait).await,
            None => return,
        }
    }
}

async fn get(means: &Means, key: &ObjectKey) -> Result<Fetched, Failure> {
    let path = path::collection(key.kind, key.kind.versions()[0], Some(&key.namespace));
    let request = Request::new(path).get(&key.name, &GetParams::default());
    let Ok(request) = request else {
        // A name that no object can have.
        return Ok(Fetched::Found(Found::Nothing));
    };
    means.work.count_get();
    let text = in_time(means.client.request_text(request)).await?;
    let reading = match Reading::of(key.kind, &text) {
        Ok(reading) => reading,
        Err(error) => return Ok(Fetched::Unreadable(error.to_string())),
    };
    let (version, fingerprint) = (reading.version.clone(), reading.fingerprint);
    match reading.object() {
        Ok(object) => Ok(Fetched::Found(Found::Object {
            object: Box::new(object),
            version,
            fingerprint,
        })),
        Err(mut error) => {
            error.key = None;
            Ok(Fetched::Unreadable(error.to_string()))
        }
    }
}
