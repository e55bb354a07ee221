//! A DNS server for tests: the addresses of a few names, over UDP.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The TTL of answers, in seconds.
const TTL: u32 = 1;
const HEADER: usize = 12;
const NO_SUCH_NAME: u8 = 3;

/// A server that runs until dropped. Unknown names get NXDOMAIN.
#[derive(Debug)]
pub struct Dns {
    address: SocketAddr,
    names: Arc<Mutex<Names>>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Names {
    answers: BTreeMap<String, Answer>,
    queried: Vec<String>,
}

/// The answer for a name.
#[derive(Clone, Debug)]
enum Answer {
    Addresses(Vec<IpAddr>),
    /// No response.
    Silence,
}

impl Dns {
    /// Starts a server on a free port of 127.0.0.1. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let names = Arc::<Mutex<Names>>::default();
        let server = tokio::spawn(serve(socket, Arc::clone(&names)));
        Ok(Self {
            address,
            names,
            server,
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the addresses of a name.
    pub fn set(&self, name: &str, addresses: &[IpAddr]) {
        let answer = Answer::Addresses(addresses.to_vec());
        lock(&self.names).answers.insert(name.to_owned(), answer);
    }

    /// Leaves queries for a name unanswered.
    pub fn silence(&self, name: &str) {
        let mut names = lock(&self.names);
        names.answers.insert(name.to_owned(), Answer::Silence);
    }

    /// The names of all queries so far.
    pub fn queried(&self) -> Vec<String> {
        lock(&self.names).queried.clone()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Ignores poisoning: a panic leaves the names consistent.
fn lock(names: &Mutex<Names>) -> MutexGuard<'_, Names> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(socket: UdpSocket, names: Arc<Mutex<Names>>) {
    let mut buffer = [0; 512];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        if let Some(response) = buffer
            .get(..length)
            .and_then(|query| respond(query, &names))
        {
            // Clients must handle lost responses anyway.
            let _ = socket.send_to(&response, client).await;
        }
    }
}

/// The response to a query (RFC 1035).
fn respond(query: &[u8], names: &Mutex<Names>) -> Option<Vec<u8>> {
    let (name, after) = read_name(query.get(HEADER..)?)?;
    let end = HEADER + after + 4;
    let question = query.get(HEADER..end)?;
    let wanted = match question.get(after..after + 2)? {
        [0, 1] => 4,
        [0, 28] => 16,
        _ => 0,
    };
    let mut names = lock(names);
    let answer = names.answers.get(&name).cloned();
    names.queried.push(name);
    let (code, addresses) = match answer {
        Some(Answer::Silence) => return None,
        Some(Answer::Addresses(addresses)) => (0, addresses),
        None => (NO_SUCH_NAME, Vec::new()),
    };
    let octets = addresses.iter().map(|address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    });
    let octets: Vec<_> = octets.filter(|octets| octets.len() == wanted).collect();
    let mut response = query.get(..2)?.to_vec();
    // Flags: response, recursion desired and available. Counts: one question, the answers, no other records.
    response.extend([0x81, 0x80 | code, 0, 1, 0, octets.len() as u8, 0, 0, 0, 0]);
    response.extend(question);
    for octets in octets {
        // The name in the question, and its type and class.
        response.extend([0xc0, HEADER as u8]);
        response.extend(question.get(after..)?);
        response.extend(TTL.to_be_bytes());
        response.extend([0, octets.len() as u8]);
        response.extend(octets);
    }
    Some(response)
}

/// The name at the start of `text`, in lower case, and its encoded length.
fn read_name(text: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = 0;
    loop {
        let length = usize::from(*text.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = text.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u8) -> Vec<u8> {
        let mut query = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend(label.bytes());
        }
        query.extend([0, 0, kind, 0, 1]);
        query
    }

    #[test]
    fn queries_are_answered_by_name_and_type() {
        let names = Mutex::new(Names::default());
        let addresses = [[127, 0, 0, 1].into(), IpAddr::V6(1.into())];
        for (name, answer) in [
            ("a.test", Answer::Addresses(addresses.to_vec())),
            ("silent.test", Answer::Silence),
        ] {
            lock(&names).answers.insert(name.to_owned(), answer);
        }
        let four = respond(&query("A.test", 1), &names).unwrap();
        assert_eq!(four[..8], [1, 2, 0x81, 0x80, 0, 1, 0, 1]);
        assert!(four.ends_with(&[0, 4, 127, 0, 0, 1]));
        let six = respond(&query("a.test", 28), &names).unwrap();
        assert!(six.ends_with(&[0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        let unknown = respond(&query("b.test", 1), &names).unwrap();
        assert_eq!(unknown[3..8], [0x83, 0, 1, 0, 0]);
        assert_eq!(respond(&query("silent.test", 1), &names), None);
        assert_eq!(respond(&query("a.test", 1)[..20], &names), None);
        assert_eq!(
            lock(&names).queried,
            ["a.test", "a.test", "b.test", "silent.test"]
        );
    }
}
