//! An authorization service that speaks Envoy's gRPC protocol. For HTTP, use [`Backend`](crate::backend::Backend).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use envoy_types::ext_authz::v3::pb::{
    Authorization, AuthorizationServer, CheckRequest, CheckResponse, DeniedHttpResponse,
    HeaderValue, HeaderValueOption, HttpResponse, HttpStatus, OkHttpResponse,
};
use envoy_types::pb::envoy::service::auth::v3::attribute_context::HttpRequest;
use envoy_types::pb::google::rpc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, async_trait};

/// The service's decision.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// `None` permits the request, otherwise the response's status.
    pub denied: Option<u16>,
    /// Headers set in the request or in the response.
    pub set: Vec<(String, String)>,
    /// Headers removed from the request.
    pub remove: Vec<String>,
    /// The body of the response.
    pub body: String,
}

type Decide = dyn Fn(&HttpRequest) -> Decision + Send + Sync;

/// A server that runs until dropped.
#[derive(Debug)]
pub struct AuthServer {
    address: SocketAddr,
    checked: Arc<Mutex<Vec<Checked>>>,
    server: JoinHandle<()>,
}

/// A request, and the context entries of the check.
type Checked = (HttpRequest, BTreeMap<String, String>);

impl AuthServer {
    /// Starts a server on this address; port 0 picks a free port. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the address can't be bound.
    pub async fn start(
        address: SocketAddr,
        decide: impl Fn(&HttpRequest) -> Decision + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let checked = Arc::default();
        let service = AuthorizationServer::new(Checker {
            checked: Arc::clone(&checked),
            decide: Box::new(decide),
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
            checked,
            server,
        })
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The checked requests.
    pub fn checked(&self) -> Vec<HttpRequest> {
        let checked = lock(&self.checked);
        checked.iter().map(|(request, _)| request.clone()).collect()
    }

    /// The context entries of the checks.
    pub fn contexts(&self) -> Vec<BTreeMap<String, String>> {
        let checked = lock(&self.checked);
        checked.iter().map(|(_, context)| context.clone()).collect()
    }
}

impl Drop for AuthServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Checker {
    checked: Arc<Mutex<Vec<Checked>>>,
    decide: Box<Decide>,
}

#[async_trait]
impl Authorization for Checker {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let attributes = request.into_inner().attributes.unwrap_or_default();
        let http = attributes.request.and_then(|request| request.http);
        let http = http.ok_or_else(|| Status::invalid_argument("no HTTP request"))?;
        let decision = (self.decide)(&http);
        let context = attributes.context_extensions.into_iter().collect();
        lock(&self.checked).push((http, context));
        Ok(Response::new(respond(decision)))
    }
}

fn respond(decision: Decision) -> CheckResponse {
    let set = decision.set.into_iter();
    let headers = set.map(|(key, value)| HeaderValueOption {
        header: Some(HeaderValue {
            key,
            value,
            ..Default::default()
        }),
        ..Default::default()
    });
    let headers = headers.collect();
    let (code, response) = match decision.denied {
        None => {
            let ok = OkHttpResponse {
                headers,
                headers_to_remove: decision.remove,
                ..Default::default()
            };
            (Code::Ok, HttpResponse::OkResponse(ok))
        }
        Some(status) => {
            let denied = DeniedHttpResponse {
                status: Some(HttpStatus {
                    code: status.into(),
                }),
                headers,
                body: decision.body,
            };
            (Code::PermissionDenied, HttpResponse::DeniedResponse(denied))
        }
    };
    CheckResponse {
        status: Some(rpc::Status {
            code: code as i32,
            ..Default::default()
        }),
        http_response: Some(response),
        ..Default::default()
    }
}

/// Ignores poisoning: a panic leaves the list consistent.
fn lock(checked: &Mutex<Vec<Checked>>) -> MutexGuard<'_, Vec<Checked>> {
    checked.lock().unwrap_or_else(PoisonError::into_inner)
}
