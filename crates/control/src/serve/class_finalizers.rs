//! The finalizers of GatewayClasses that Gateways refer to.
//!
//! In: the classes of this instance, and whether this replica leads. Out: finalizers on the API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use sesame_api::ObjectKey;
use sesame_engine::Change;
use sesame_fleet::kube::set_class_finalizer;
use sesame_translate::gateway_api::class_in_use::ClassInUse;
use tokio::sync::watch;

/// The delay before failed writes are retried.
const RETRY: Duration = Duration::from_secs(5);

/// The desired state of each class, by name. A class that no longer is this instance's is not in use.
type Classes = BTreeMap<Arc<str>, ClassInUse>;

/// Sets the desired finalizers. Calls return immediately.
#[derive(Clone, Debug)]
pub(crate) struct ClassFinalizers(Arc<watch::Sender<Classes>>);

impl ClassFinalizers {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Classes::new())))
    }

    pub(crate) fn set(&self, class: &ObjectKey, change: &Change<ClassInUse>) {
        let name = Arc::clone(&class.name);
        self.0.send_modify(|classes| match change.value() {
            Some(class) => drop(classes.insert(name, ClassInUse::clone(class))),
            None => {
                if let Some(class) = classes.get_mut(&name) {
                    class.in_use = false;
                }
            }
        });
    }

    /// Writes while this replica leads. Never returns.
    pub(super) async fn write(self, client: Client, mut is_leader: watch::Receiver<bool>) {
        let mut desired = self.0.subscribe();
        loop {
            if is_leader.wait_for(|leader| *leader).await.is_err() {
                return std::future::pending().await;
            }
            tokio::select! {
                () = write_changes(&client, &mut desired) => {}
                _ = is_leader.wait_for(|leader| !*leader) => {}
            }
        }
    }
}

async fn write_changes(client: &Client, desired: &mut watch::Receiver<Classes>) {
    let mut written = Classes::new();
    loop {
        let classes = desired.borrow_and_update().clone();
        written.retain(|name, _| classes.contains_key(name));
        let mut failed = false;
        for (name, class) in classes {
            if written.get(&name) == Some(&class) {
                continue;
            }
            let set = set_class_finalizer(client, &name, &class.uid, class.in_use);
            match set.await {
                Ok(()) => drop(written.insert(name, class)),
                Err(error) => {
                    tracing::warn!("cannot write the finalizer of GatewayClass {name}: {error}");
                    failed = true;
                }
            }
        }
        let retry = async {
            match failed {
                true => tokio::time::sleep(RETRY).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = desired.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
            () = retry => {}
        }
    }
}
