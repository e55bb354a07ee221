//! A rate limit service that speaks Envoy's gRPC protocol.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use envoy_types::pb::envoy::service::ratelimit::v3 as pb;
use pb::rate_limit_response::rate_limit::Unit;
use pb::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use pb::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use pb::{RateLimitRequest, RateLimitResponse};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, async_trait};

/// A server that runs until dropped. Every descriptor has the same limit.
#[derive(Debug)]
pub struct RateServer {
    address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
    server: JoinHandle<()>,
}

/// The number of calls for each descriptor, written as `domain key=value key=value`.
type Counts = BTreeMap<String, u32>;

impl RateServer {
    /// Starts a server on this address; port 0 picks a free port. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the address can't be bound.
    pub async fn start(address: SocketAddr, limit: u32) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let counts = Arc::default();
        let service = RateLimitServiceServer::new(Limiter {
            counts: Arc::clone(&counts),
            limit,
        });
        let server = tonic::transport::Server::builder().add_service(service);
        let server = tokio::spawn(async move {
            // Fails only if the listener does.
            let _ = server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await;
        });
        Ok(Self {
            address,
            counts,
            server,
        })
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of calls so far for each descriptor, written as `domain key=value key=value`.
    pub fn counts(&self) -> BTreeMap<String, u32> {
        lock(&self.counts).clone()
    }
}

impl Drop for RateServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Limiter {
    counts: Arc<Mutex<Counts>>,
    limit: u32,
}

#[async_trait]
impl RateLimitService for Limiter {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let RateLimitRequest {
            domain,
            descriptors,
            ..
        } = request.into_inner();
        let mut counts = lock(&self.counts);
        let statuses = descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter();
            let entries = entries.map(|entry| format!(" {}={}", entry.key, entry.value));
            let count = counts
                .entry(domain.clone() + &entries.collect::<String>())
                .or_default();
            *count += 1;
            DescriptorStatus {
                code: code(*count > self.limit),
                current_limit: Some(RateLimit {
                    requests_per_unit: self.limit,
                    unit: Unit::Hour.into(),
                    ..Default::default()
                }),
                limit_remaining: self.limit.saturating_sub(*count),
                ..Default::default()
            }
        });
        let statuses: Vec<_> = statuses.collect();
        let over = statuses.iter().any(|status| status.code == code(true));
        Ok(Response::new(RateLimitResponse {
            overall_code: code(over),
            statuses,
            ..Default::default()
        }))
    }
}

fn code(over: bool) -> i32 {
    match over {
        true => Code::OverLimit,
        false => Code::Ok,
    }
    .into()
}

/// Ignores poisoning: a panic leaves the counts consistent.
fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
