//! gRPC messages in the bodies of HTTP requests and responses.
//!
//! In: the body of a request, the responses of a stream. Out: encoded requests, the body of the response. Both are bounded
//! in memory, which tonic's streams aren't: they read a whole request before anything else is known about it, and encode a
//! whole response before it is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Frame};
use prost::bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::config::Limits;

/// The size of the prefix of a message: a byte that says whether the message is compressed, and the message's length.
pub(crate) const PREFIX: usize = 5;
/// Larger requests take from the fleet's [`Memory`]. ACKs are smaller, if the client sends its node only once.
const SMALL: usize = 4 << 10;
/// The maximum size of an HTTP/2 frame.
const FRAME: usize = 16 << 10;
/// Clients send requests at least this fast, in bytes per second.
const RATE: usize = 64 << 10;
/// The unit of [`Memory`], in bytes.
const UNIT: usize = 1 << 10;

/// The prefix of a message of this length.
pub(crate) fn prefix(length: usize) -> BytesMut {
    let mut prefix = BytesMut::with_capacity(PREFIX);
    prefix.put_u8(0);
    prefix.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    prefix
}

/// The memory for requests of a fleet's clients that haven't been processed. If it is used up, clients wait.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Semaphore>);

impl Memory {
    /// Memory for one request of the maximum size, or several smaller ones.
    pub(crate) fn new(limits: &Limits) -> Memory {
        Memory(Arc::new(Semaphore::new(
            limits.request_bytes.div_ceil(UNIT),
        )))
    }

    /// Whether no stream uses it.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // Never closed.
        Arc::clone(&self.0).acquire_many_owned(units).await.ok()
    }
}

/// An encoded request.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) bytes: Bytes,
    /// Its part of the fleet's memory.
    _memory: Option<OwnedSemaphorePermit>,
}

type Waiting = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// The requests of a stream.
pub(crate) struct Requests {
    body: tonic::body::Body,
    /// Received bytes that haven't been returned.
    received: BytesMut,
    /// The place in the queue for the next request's memory.
    waiting: Option<Waiting>,
    /// For the request that has begun to arrive.
    begun: Option<Begun>,
    memory: Memory,
    limit: usize,
    timeout: Duration,
}

/// What a request needs until it has arrived.
#[derive(Debug)]
struct Begun {
    memory: Option<OwnedSemaphorePermit>,
    deadline: Instant,
}

impl Requests {
    pub(crate) fn new(body: tonic::body::Body, memory: Memory, limits: &Limits) -> Requests {
        Requests {
            body,
            received: BytesMut::new(),
            waiting: None,
            begun: None,
            memory,
            limit: limits.request_bytes,
            timeout: limits.request_timeout,
        }
    }

    /// Waits until the next request begins; returns its length, or `None` at the end of the stream. Cancel safe.
    pub(crate) async fn begins(&mut self) -> Result<Option<usize>, Status> {
        loop {
            match self.length()? {
                None if !self.receive().await? => return Ok(None),
                None => {}
                length => return Ok(length),
            }
        }
    }

    /// The next request; `None` at the end of the stream. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Encoded>, Status> {
        let Some(length) = self.begins().await? else {
            return Ok(None);
        };
        let deadline = self.begin(length).await;
        while self.received.len() < PREFIX + length {
            let received = timeout_at(deadline, self.receive()).await;
            let late = |_| Status::deadline_exceeded("the request didn't arrive in time");
            if !received.map_err(late)?? {
                return Ok(None);
            }
        }
        self.received.advance(PREFIX);
        let bytes = self.received.split_to(length).freeze();
        if length > SMALL || self.received.is_empty() {
            // Otherwise, the buffer would keep its size.
            self.received = BytesMut::from(&self.received[..]);
        }
        Ok(Some(Encoded {
            bytes,
            _memory: self.begun.take().and_then(|begun| begun.memory),
        }))
    }

    /// Waits for memory for a request of this length, unless it has it. Returns the deadline of the request.
    async fn begin(&mut self, length: usize) -> Instant {
        if let Some(begun) = &self.begun {
            return begun.deadline;
        }
        let mut memory = None;
        if length > SMALL {
            let fleet = self.memory.clone();
            let take = || -> Waiting { Box::pin(async move { fleet.take(length).await }) };
            memory = self.waiting.get_or_insert_with(take).await;
            self.waiting = None;
            self.received.reserve(PREFIX + length + FRAME);
        }
        let slowest = Duration::from_secs((length / RATE) as u64);
        let deadline = Instant::now() + self.timeout + slowest;
        self.begun = Some(Begun { memory, deadline });
        deadline
    }

    /// The length of the next request, if its prefix has arrived.
    fn length(&self) -> Result<Option<usize>, Status> {
        let Some((mut prefix, _)) = self.received.split_at_checked(PREFIX) else {
            return Ok(None);
        };
        if prefix.get_u8() != 0 {
            return Err(Status::unimplemented(
                "compressed requests aren't supported",
            ));
        }
        let length = prefix.get_u32() as usize;
        if length > self.limit {
            let limit = self.limit;
            return Err(Status::resource_exhausted(format!(
                "the request is larger than {limit} bytes"
            )));
        }
        Ok(Some(length))
    }

    /// Receives some bytes; `false` at the end of the body.
    async fn receive(&mut self) -> Result<bool, Status> {
        let Some(frame) = self.body.frame().await else {
            return Ok(false);
        };
        if let Ok(data) = frame?.into_data() {
            self.received.extend_from_slice(&data);
        }
        Ok(true)
    }
}

/// The parts of an encoded message, with its prefix.
pub(crate) type Message = Box<dyn Iterator<Item = Bytes> + Send>;

/// The body of a response: messages, then the status of the stream.
pub(crate) struct Responses {
    messages: mpsc::Receiver<Message>,
    /// Separate, since an unread message mustn't keep it back.
    status: oneshot::Receiver<Status>,
    /// The rest of the current message.
    parts: Message,
    ended: bool,
}

impl Responses {
    /// A stream that ends with the status, or else with `OK`, once there are no more messages.
    pub(crate) fn new(
        messages: mpsc::Receiver<Message>,
        status: oneshot::Receiver<Status>,
    ) -> Responses {
        Responses {
            messages,
            status,
            parts: Box::new(std::iter::empty()),
            ended: false,
        }
    }
}

impl Body for Responses {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(part) = self.parts.next() {
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(message) = ready!(self.messages.poll_recv(cx)) {
                self.parts = message;
                continue;
            }
            self.ended = true;
            let status = self.status.try_recv().unwrap_or_else(|_| Status::ok(""));
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use tonic::Code;

    use super::*;

    type Frames = mpsc::Sender<Result<Frame<Bytes>, Status>>;

    fn limits() -> Limits {
        Limits {
            request_bytes: 2 * SMALL,
            ..Limits::default()
        }
    }

    /// A stream, and a sender for the frames of its body.
    fn requests(memory: &Memory, limits: &Limits) -> (Frames, Requests) {
        let (sender, receiver) = mpsc::channel(1_000);
        let body = StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
        let body = tonic::body::Body::new(body);
        (sender, Requests::new(body, memory.clone(), limits))
    }

    /// A request of this length, with its prefix.
    fn request(length: usize) -> Vec<u8> {
        let mut request = prefix(length);
        request.resize(PREFIX + length, b'r');
        request.to_vec()
    }

    async fn send(frames: &Frames, bytes: &[u8]) {
        let frame = Frame::data(Bytes::copy_from_slice(bytes));
        frames.send(Ok(frame)).await.unwrap();
    }

    async fn next(requests: &mut Requests) -> Option<usize> {
        let encoded = requests.next().await.unwrap()?;
        assert!(encoded.bytes.iter().all(|byte| *byte == b'r'));
        Some(encoded.bytes.len())
    }

    async fn refused(bytes: &[u8]) -> Code {
        let limits = Limits {
            request_timeout: Duration::from_millis(10),
            ..limits()
        };
        let (frames, mut requests) = requests(&Memory::new(&limits), &limits);
        send(&frames, bytes).await;
        requests.next().await.unwrap_err().code()
    }

    #[tokio::test]
    async fn requests_may_begin_and_end_anywhere_in_a_frame() {
        let lengths = [0, 1, 300, 2 * SMALL, 7];
        let bytes: Vec<u8> = lengths.into_iter().flat_map(request).collect();
        for size in [1, 4, 5, 6, 4_096, bytes.len()] {
            let limits = limits();
            let (frames, mut requests) = requests(&Memory::new(&limits), &limits);
            let sending = tokio::spawn({
                let bytes = bytes.clone();
                async move {
                    for part in bytes.chunks(size) {
                        send(&frames, part).await;
                    }
                }
            });
            for length in lengths {
                assert_eq!(next(&mut requests).await, Some(length), "frames of {size}");
            }
            assert_eq!(next(&mut requests).await, None);
            sending.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_large_request_waits_until_others_are_processed() {
        let limits = limits();
        let memory = Memory::new(&limits);
        let (first_frames, mut first) = requests(&memory, &limits);
        let (second_frames, mut second) = requests(&memory, &limits);
        let (small_frames, mut small) = requests(&memory, &limits);
        let large = request(SMALL + 1);
        send(&first_frames, &large).await;
        send(&second_frames, &large).await;
        send(&small_frames, &request(SMALL)).await;
        let processing = first.next().await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(10), second.next()).await;
        assert!(waiting.is_err());
        assert_eq!(next(&mut small).await, Some(SMALL));
        drop(processing);
        assert_eq!(next(&mut second).await, Some(SMALL + 1));
        drop((first, second, small));
        assert!(memory.is_unused());
    }

    #[tokio::test]
    async fn invalid_requests_are_refused() {
        assert_eq!(refused(&[1, 0, 0, 0, 0]).await, Code::Unimplemented);
        let too_large = prefix(2 * SMALL + 1);
        assert_eq!(refused(&too_large).await, Code::ResourceExhausted);
        assert_eq!(refused(&request(9)[..8]).await, Code::DeadlineExceeded);
    }

    #[tokio::test]
    async fn a_buffer_does_not_keep_the_size_of_a_large_request() {
        let limits = limits();
        let (frames, mut requests) = requests(&Memory::new(&limits), &limits);
        send(&frames, &[request(2 * SMALL), request(1)].concat()).await;
        assert_eq!(next(&mut requests).await, Some(2 * SMALL));
        assert!(requests.received.capacity() < SMALL);
        assert_eq!(next(&mut requests).await, Some(1));
        assert_eq!(requests.received.capacity(), 0);
    }
}
