//! Responds to one request.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::plan::{Failure, Outcome, Plan};
use super::received::{Received, Tls};
use super::{Shared, otlp, websocket};

/// Maximum length of the recorded and echoed body, in bytes.
const BODY_KEPT: usize = 64 << 10;

/// The body of a response.
pub(super) type Body = BoxBody<Bytes, Infallible>;

/// The properties of a connection.
pub(super) struct Connection {
    pub(super) tls: Option<Tls>,
    pub(super) shared: Arc<Shared>,
}

/// Aborts the connection.
#[derive(Debug)]
pub(super) struct Reset;

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was aborted")
    }
}

impl std::error::Error for Reset {}

pub(super) async fn handle(
    mut request: Request<Incoming>,
    connection: Arc<Connection>,
) -> Result<Response<Body>, Reset> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let plan = Plan::new(&head);
    let (body, body_length) = read(body).await?;
    let received = Received::new(&head, connection.tls.as_ref(), &body, body_length);
    let shared = &connection.shared;
    shared.records.push(received.clone());
    if head.uri.path() == otlp::EXPORT {
        shared.record(otlp::spans(&body));
    }
    if let Some(document) = shared.document(head.uri.path()) {
        return Ok(Response::new(Full::new(document).boxed()));
    }
    sleep(plan.delay).await;

    let echo = |status| respond(status, &received.to_json(&shared.name));
    let mut response = match plan.outcome {
        Outcome::Echo(status) => echo(status),
        Outcome::Refused(reason) => respond(
            StatusCode::BAD_REQUEST,
            &json!({ "backend": shared.name, "error": reason }),
        ),
        Outcome::Flaky {
            key,
            failures,
            failure,
        } => match failure {
            _ if !shared.flaky.fails(&key, failures) => echo(StatusCode::OK),
            Failure::Status(status) => echo(status),
            Failure::Reset => return Err(Reset),
        },
        Outcome::WebSocket => websocket::accept(&head, upgrade, shared).map(BodyExt::boxed),
        Outcome::Exported => otlp::exported(),
    };
    for (name, value) in &plan.headers {
        response.headers_mut().append(name, value.clone());
    }
    Ok(match plan.pause.is_zero() {
        true => response,
        false => response.map(|body| pausing(body, plan.pause)),
    })
}

/// Appends a line break to the body, after a pause.
fn pausing(body: Body, pause: Duration) -> Body {
    let end = stream::once(async move {
        sleep(pause).await;
        Ok(Frame::data(Bytes::from_static(b"\n")))
    });
    BodyExt::boxed(StreamBody::new(BodyStream::new(body).chain(end)))
}

/// Reads a whole body and returns its beginning and its length.
async fn read(mut body: Incoming) -> Result<(Vec<u8>, u64), Reset> {
    let (mut kept, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| Reset)?.into_data() {
            length += data.len() as u64;
            let room = BODY_KEPT - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok((kept, length))
}

fn respond(status: StatusCode, json: &Value) -> Response<Body> {
    let body = match status {
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED => {
            Bytes::new()
        }
        _ => format!("{json:#}\n").into(),
    };
    let mut response = Response::new(Full::new(body).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}
