//! Entry points for fuzzing (`--cfg fuzzing`). They accept any bytes and must not panic.

use std::sync::Arc;
use std::time::Instant;

use crate::config::Limits;
use crate::fleet::Fleet;
use crate::nack;
use crate::resource::{FleetId, Resource, ResourceType, Update};
use crate::session::Session;
use crate::wire::{DeltaRequest, ErrorDetail};

/// Runs one stream: each step is an update of the fleet, or a request. A request is encoded as protobuf, after a byte for
/// its type, a byte that selects an ACK or a NACK, and a byte for its length.
pub fn requests(data: &[u8]) {
    let mut fleet = Fleet::new(FleetId::new("fleet"));
    fleet.join(1, "node".into());
    let mut session = Session::new(1, Limits::default(), Instant::now());
    let mut nonce = String::new();
    let mut rest = data;
    let mut revision = 0;
    while let [kind, step, length, after @ ..] = rest {
        let (body, next) = after.split_at(after.len().min(usize::from(*length)));
        rest = next;
        let ty = ResourceType::ALL[usize::from(*kind) % ResourceType::ALL.len()];
        if step % 4 == 0 {
            revision += 1;
            fleet.apply(update(ty, body, revision));
        } else if let Ok(mut request) = DeltaRequest::read(body, &Limits::default()) {
            request.type_url = ty.type_url().to_owned();
            if step % 4 > 1 {
                request.response_nonce.clone_from(&nonce);
            }
            if step % 4 == 3 {
                let message = String::from_utf8_lossy(body).into_owned();
                request.error_detail = Some(ErrorDetail { message });
            }
            if session.request(&mut fleet, &request).is_err() {
                break;
            }
        }
        while let Some(response) = session.poll(&mut fleet, Instant::now()) {
            nonce = response.nonce;
        }
        fleet.take_events();
    }
    fleet.leave(1);
}

/// An update: each byte upserts or removes one of 16 resources.
fn update(ty: ResourceType, bytes: &[u8], revision: u64) -> Update {
    let mut update = Update {
        revision,
        ..Update::default()
    };
    for byte in bytes {
        let name = format!("r{}", byte % 16);
        match byte / 16 {
            0 => update.removals.push((ty, name.into())),
            body => update.upserts.push((ty, Resource::new(name, vec![body]))),
        }
    }
    update
}

/// Parses an error of Envoy.
pub fn refusal(data: &[u8]) {
    let message = String::from_utf8_lossy(data);
    let names = ["a", "a/b", "80", "é"].map(Arc::<str>::from);
    let names: Vec<&Arc<str>> = names.iter().collect();
    for ty in ResourceType::ALL {
        nack::blame(ty, &message, &names);
        nack::reason(ty, &message, names[0]);
    }
    nack::without_dump(&message);
}
