//! Requests to the API server: for a single response or a stream of watch events.
//!
//! Errors keep the server's `Retry-After`, which kube's own request functions drop.

use std::io;
use std::time::Duration;

use ::kube::Client;
use ::kube::client::Body;
use ::kube::core::{Status, WatchEvent};
use futures::{Stream, StreamExt, TryStreamExt};
use http::header::{ACCEPT_ENCODING, HeaderValue, RETRY_AFTER};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use super::error::RequestError;

/// API servers give up on a request after 60 s and then respond. After this long without a response, the connection is
/// dead.
const TIMEOUT: Duration = Duration::from_secs(70);

/// Returns the body of the response.
///
/// # Errors
/// If there is no timely response, or it isn't a success.
pub(super) async fn text(
    client: &Client,
    request: Request<Vec<u8>>,
) -> Result<String, RequestError> {
    in_time(async { read(send(client, request).await?).await }).await
}

/// Returns the events of a watch as they arrive.
///
/// # Errors
/// If there is no timely response, or it isn't a success.
pub(super) async fn events(
    client: &Client,
    mut request: Request<Vec<u8>>,
) -> Result<impl Stream<Item = io::Result<WatchEvent<Box<RawValue>>>>, RequestError> {
    // Kubernetes 1.37 compresses each event separately, but tower-http decodes only the first.
    let identity = HeaderValue::from_static("identity");
    request.headers_mut().insert(ACCEPT_ENCODING, identity);
    let response = in_time(send(client, request)).await?;
    let body = response
        .into_body()
        .into_data_stream()
        .map_err(io::Error::other);
    let lines = FramedRead::new(StreamReader::new(body), LinesCodec::new());
    Ok(lines.map(|line| {
        let line = line.map_err(io::Error::other)?;
        Ok(serde_json::from_str(&line)?)
    }))
}

async fn in_time<T>(
    answer: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    match timeout(TIMEOUT, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(RequestError::Unreachable(format!(
            "no response within {TIMEOUT:?}"
        ))),
    }
}

async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Response<Body>, RequestError> {
    let response = client.send(request.map(Body::from)).await?;
    let code = response.status();
    if code.is_success() {
        return Ok(response);
    }
    let retry_after = retry_after(&response);
    let body = read(response).await?;
    let status = serde_json::from_str(&body)
        .unwrap_or_else(|_| Status::failure(body.trim(), "").with_code(code.as_u16()));
    Err(RequestError::of_status(&status, retry_after))
}

async fn read(response: Response<Body>) -> Result<String, RequestError> {
    let body = response.into_body().collect().await?;
    String::from_utf8(body.to_bytes().into())
        .map_err(|error| RequestError::Unreachable(error.to_string()))
}

fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}
