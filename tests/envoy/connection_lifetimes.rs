//! How long connections and requests may last: timeouts of listeners, and the number of requests on a connection.

use std::iter::repeat_n;
use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use sesame_testkit::client::send;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{backends, route, to};
use crate::listener_settings::{get, plain};

/// Long enough for all timeouts on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The interval between the parts of a slow request.
const INTERVAL: Duration = Duration::from_millis(250);

/// A request on a persistent connection.
const GET: &str = "GET /public HTTP/1.1\r\nhost: a.example.com\r\n\r\n";

/// The beginning of the only request on a connection.
const POST: &str = "POST /public HTTP/1.1\r\nhost: a.example.com\r\nconnection: close\r\n";

/// Sends text, then parts with pauses. Returns what arrives until the connection is closed.
async fn slowly(
    address: SocketAddr,
    text: impl AsRef<str>,
    parts: impl IntoIterator<Item = &str>,
) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let (mut reader, mut writer) = stream.split();
    let mut response = Vec::new();
    let writing = async {
        writer.write_all(text.as_ref().as_bytes()).await?;
        for part in parts {
            sleep(INTERVAL).await;
            writer.write_all(part.as_bytes()).await?;
        }
        std::io::Result::Ok(())
    };
    let reading = timeout(LIMIT, reader.read_to_end(&mut response));
    // Writing fails once the connection is closed; a reset also closes it.
    let (closed, _) = tokio::join!(reading, writing);
    assert!(closed.is_ok(), "the connection stays open");
    String::from_utf8_lossy(&response).into_owned()
}

/// The status of the only response.
fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or("no response")
}

/// The number of successful responses.
fn served(responses: &str) -> usize {
    responses.matches("HTTP/1.1 200").count()
}

/// A POST whose body has this length.
fn post(length: usize) -> String {
    format!("{POST}content-length: {length}\r\n\r\n")
}

#[tokio::test]
async fn requests_that_arrive_too_slowly_get_408() {
    let (_backends, services) = backends(&["a"]).await;
    let sesame = plain("timeouts: {requestHeaders: 1s, request: 5s}", &services).await;
    let address = sesame.at(8080);
    let delayed = get("/public?delay=6s");
    // Faster than the default timeout of 10 s.
    let headers = repeat_n("x-a: b\r\n", 24).chain(["\r\n"]);
    let (headers, body, in_time, delayed) = tokio::join!(
        slowly(address, POST, headers),
        slowly(address, post(40), repeat_n("a", 40)),
        // Slower than the timeout for headers.
        slowly(address, post(8), repeat_n("a", 8)),
        // The timeouts end when the request is complete.
        sesame.ask_well(&delayed),
    );
    assert_eq!(status(&headers), "408", "{headers}");
    assert_eq!(status(&body), "408", "{body}");
    assert_eq!(status(&in_time), "200", "{in_time}");
    assert_eq!(delayed.backend(), "a");
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let (_backends, services) = backends(&["a"]).await;
    let timeouts = "timeouts: {connectionIdle: 2s, connectionShutdownGrace: 1s}";
    let sesame = plain(timeouts, &services).await;
    let address = sesame.at(8080);
    let delayed = get("/public?delay=4s");
    let (unused, used, busy, delayed) = tokio::join!(
        slowly(address, "", []),
        slowly(address, GET, []),
        slowly(address, GET, repeat_n(GET, 16)),
        sesame.ask_well(&delayed),
    );
    assert_eq!(unused, "");
    assert_eq!(status(&used), "200", "{used}");
    assert_eq!(served(&busy), 17, "{busy}");
    assert_eq!(delayed.backend(), "a");
}

/// Sends messages over a WebSocket, then waits until it is closed.
async fn silent_websocket(address: SocketAddr, url: &str) {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let opened = tokio_tungstenite::client_async(url, stream).await;
    let (mut socket, _) = opened.expect("a handshake");
    let message = Message::text("a");
    for _ in 0..20 {
        sleep(INTERVAL).await;
        socket.send(message.clone()).await.expect("an open socket");
        let echo = socket.next().await.expect("an echo");
        assert_eq!(echo.expect("an echo"), message);
    }
    let end = timeout(LIMIT, socket.next()).await.expect("it is closed");
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
}

#[tokio::test]
async fn idle_requests_and_websockets_are_ended() {
    let (_backends, services) = backends(&["a"]).await;
    let all = route("all", &["web"], &["b.example.com"], &[to("a")]);
    let sesame = plain("timeouts: {streamIdle: 3s}", &(services + &all)).await;
    let address = sesame.at(8080);
    let waiting = get("/public?delay=15s");
    let begun = get("/public?pause=15s");
    let (waiting, begun, stalled, active, ()) = tokio::join!(
        sesame.send(&waiting),
        send(address, &begun),
        slowly(address, post(10), ["a"]),
        // Longer than the timeout, with shorter pauses.
        slowly(address, post(20), repeat_n("a", 20)),
        silent_websocket(address, "ws://b.example.com/ws"),
    );
    assert_eq!(waiting.status, 504, "{waiting:?}");
    let error = begun.expect_err("an incomplete response").to_string();
    assert!(error.contains("the body is incomplete"), "{error}");
    assert_eq!(status(&stalled), "408", "{stalled}");
    assert_eq!(status(&active), "200", "{active}");
}

/// Settings that close a connection soon after its third request.
const LIMITED: &str = "limits: {requestsPerConnection: 3}, timeouts: {connectionShutdownGrace: 1s}";

#[tokio::test]
async fn a_connection_is_closed_after_the_last_permitted_request() {
    let (backends, services) = backends(&["a"]).await;
    let sesame = plain(LIMITED, &services).await;
    let mut connection = sesame.open().await;
    for number in 1..=9 {
        let response = connection.send(&get("/public")).await.expect("a response");
        assert_eq!(response.status, 200, "{number}");
        let last = number % 3 == 0;
        let expected = if last { "close" } else { "" };
        assert_eq!(response.header("connection"), expected, "{number}");
        if last {
            connection = sesame.open().await;
        }
    }
    assert_eq!(backends[0].count(), 9);
    // Envoy closes the connection even if the client doesn't.
    let responses = slowly(sesame.at(8080), GET, [GET, GET, GET]).await;
    assert_eq!(served(&responses), 3, "{responses}");
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    payload: Vec<u8>,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const NO_ERROR: [u8; 4] = [0; 4];
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn encoded(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let head = [&length.to_be_bytes()[1..], &[kind, flags]].concat();
    [&head, &stream.to_be_bytes()[..], payload].concat()
}

/// Sends requests at once over HTTP/2. Returns the frames that arrive until the connection is closed.
async fn at_once(address: SocketAddr, path: &str, count: u32) -> Vec<Frame> {
    // GET and http are in the static table; path and host are literals (RFC 7541, appendix A).
    let literal = |name: u8, value: &str| {
        let length = u8::try_from(value.len()).expect("a short value");
        [&[name, length], value.as_bytes()].concat()
    };
    let headers = [
        &[0x82, 0x86][..],
        &literal(4, path),
        &literal(1, "a.example.com"),
    ];
    let headers = headers.concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(encoded(SETTINGS, 0, 0, &[]));
    for stream in (1..).step_by(2).take(count as usize) {
        bytes.extend(encoded(HEADERS, END_STREAM | END_HEADERS, stream, &headers));
    }
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    connection.write_all(&bytes).await.expect("a write");
    let mut received = Vec::new();
    let closed = timeout(LIMIT, connection.read_to_end(&mut received));
    closed.await.expect("it is closed").expect("a close");
    let mut rest = &received[..];
    let mut frames = Vec::new();
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (payload, after) = after.split_at(length as usize);
        frames.push(Frame {
            kind: head[3],
            flags: head[4],
            payload: payload.to_vec(),
        });
        rest = after;
    }
    frames
}

/// The values that the first frame announces for these settings (RFC 9113, section 6.5.1).
fn announced<const N: usize>(frames: &[Frame], settings: [u16; N]) -> [Option<u32>; N] {
    assert_eq!(frames[0].kind, SETTINGS, "{frames:?}");
    settings.map(|wanted| {
        let entries = frames[0].payload.chunks_exact(6);
        let mut values = entries.filter_map(|entry| {
            let (setting, value) = entry.split_first_chunk()?;
            let value = u32::from_be_bytes(value.try_into().ok()?);
            (u16::from_be_bytes(*setting) == wanted).then_some(value)
        });
        values.next()
    })
}

#[tokio::test]
async fn http2_streams_beyond_the_limit_are_refused() {
    let (backends, services) = backends(&["a"]).await;
    let limits = "limits: {concurrentStreams: 3, http2StreamWindowBytes: 131072, ";
    let sesame = plain(&LIMITED.replace("limits: {", limits), &services).await;
    let frames = at_once(sesame.at(8080), "/public?delay=500ms", 8).await;
    let refused = frames
        .iter()
        .filter(|frame| (frame.kind, &frame.payload[..]) == (RST_STREAM, &REFUSED_STREAM[..]));
    assert_eq!((refused.count(), backends[0].count()), (5, 3), "{frames:?}");
    let values = announced(&frames, [MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE]);
    assert_eq!(values, [Some(3), Some(131_072)]);
}

#[tokio::test]
async fn http2_requests_at_the_limit_are_served_before_the_connection_is_closed() {
    let (backends, services) = backends(&["a"]).await;
    let sesame = plain(LIMITED, &services).await;
    let frames = at_once(sesame.at(8080), "/public?delay=500ms", 8).await;
    let ended = frames
        .iter()
        .filter(|frame| [DATA, HEADERS].contains(&frame.kind) && frame.flags & END_STREAM != 0);
    assert_eq!(ended.count(), 8, "{frames:?}");
    assert!(frames.iter().all(|frame| frame.kind != RST_STREAM));
    let last = frames.last().expect("frames");
    // The error code follows the number of a stream.
    assert_eq!(
        (last.kind, &last.payload[4..]),
        (GOAWAY, &NO_ERROR[..]),
        "{frames:?}"
    );
    assert_eq!(backends[0].count(), 8);
    let values = announced(&frames, [MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE]);
    assert_eq!(values, [Some(100), Some(65_536)]);
}
