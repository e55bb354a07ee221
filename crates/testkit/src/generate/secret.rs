//! Secrets with certificates, valid and invalid.

use std::sync::LazyLock;

use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};
use serde_json::{Value, json};

use super::json::{Json, just, may, mostly};
use super::pool;
use crate::certs::{Authority, Identity};

/// Most of the possible Secrets.
pub(super) fn secrets() -> BoxedStrategy<Vec<Value>> {
    let named = ["one", "two"]
        .into_iter()
        .flat_map(|namespace| pool::SECRETS.iter().map(move |&name| (namespace, name)));
    let each: Vec<_> = named
        .map(|(namespace, name)| may(0.8, secret_of(super::metadata(&[name], &[namespace]))))
        .collect();
    each.prop_map(|each| each.into_iter().flatten().collect())
        .boxed()
}

pub(super) fn secret() -> Json {
    secret_of(super::metadata(
        pool::SECRETS,
        &["one", "one", "two", "three"],
    ))
}

/// A certificate chain, usually valid.
pub(super) fn chain() -> Json {
    let pairs = &*PAIRS;
    prop_oneof![3 => 0..6usize, 1 => 0..pairs.len()]
        .prop_map(|at| Value::from(pairs[at].0.as_str()))
        .boxed()
}

fn secret_of(metadata: Json) -> Json {
    let type_ = prop_oneof![
        14 => just("kubernetes.io/tls"),
        1 => just("Opaque"),
    ];
    let pairs = &*PAIRS;
    let pair = prop_oneof![
        // The first six are valid.
        3 => 0..6usize,
        1 => 0..pairs.len(),
    ];
    let fields =
        prop_oneof![19 => just("both"), 1 => mostly(&["no chain", "no key"], &["nothing"])];
    (metadata, type_, pair, fields)
        .prop_map(|(metadata, type_, pair, fields)| {
            let (chain, key) = &pairs[pair];
            let lists = &*LISTS;
            let list = &lists[pair % lists.len()];
            let mut data =
                json!({"tls.crt": chain, "tls.key": key, "ca.crt": chain, "crl.pem": list});
            data["jwks"] = JWKS[pair % JWKS.len()].as_str().into();
            let gone: &[&str] = match fields.as_str() {
                Some("no chain") => &["tls.crt"],
                Some("no key") => &["tls.key"],
                Some("nothing") => &["tls.crt", "tls.key"],
                _ => &[],
            };
            if let Some(data) = data.as_object_mut() {
                data.retain(|name, _| !gone.contains(&name.as_str()));
            }
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": type_,
                "stringData": data,
            })
        })
        .boxed()
}

/// CRLs, valid and invalid, generated once.
static LISTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let authority = Authority::new().expect("an authority");
    let list = authority.revocations(&[1, 2]).expect("a list");
    let empty = authority.revocations(&[]).expect("a list");
    vec![
        list.clone(),
        format!("{empty}{list}"),
        list.replace('\n', "\r\n"),
        one_line(&list),
        String::new(),
        "junk".to_owned(),
        list.replace("-----\nM", "-----\nA"),
        list[..list.len() / 2].to_owned(),
    ]
});

/// JWKS, valid and invalid.
static JWKS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let valid = [
        // RFC 7517, appendix A.1.
        json!({"kty": "EC", "crv": "P-256", "use": "enc", "kid": "1",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}),
        json!({"kty": "RSA", "alg": "RS256", "e": "AQAB",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZ\
                  CiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJ\
                  ZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBn\
                  iIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}),
        json!({"kty": "oct", "alg": "HS512", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}),
    ];
    let invalid = [
        json!({"kty": "EC", "crv": "P-256", "x": "MKBC", "y": "4Etl"}),
        json!({"kty": "RSA", "e": "AQAB", "n": "0vx7"}),
        json!({"kty": "oct", "k": "?"}),
        json!({"kty": "OKP", "crv": "X25519", "x": "11qY"}),
        json!({"kty": "AKP", "kid": 1}),
        json!(null),
    ];
    let set = |keys: &[Value]| json!({ "keys": keys }).to_string();
    let mut sets: Vec<String> = valid
        .iter()
        .map(|key| set(std::slice::from_ref(key)))
        .collect();
    sets.push(set(&[&valid[..], &invalid[..]].concat()));
    sets.push(set(&invalid));
    sets.extend([set(&[]), "junk".to_owned(), "{}".to_owned()]);
    sets
});

/// Certificate chains and keys, generated once.
static PAIRS: LazyLock<Vec<(String, String)>> = LazyLock::new(pairs);

fn pairs() -> Vec<(String, String)> {
    let authority = Authority::new().expect("an authority");
    let names: &[&[&str]] = &[
        &["example.com", "*.example.com"],
        &["example.net", "localhost"],
    ];
    let [first, second] = [0, 1].map(|at| authority.issue(names[at]).expect("a certificate"));
    let alone = Identity::self_signed(&["*.net"]).expect("a certificate");
    let chained = format!("{}{}", second.chain, authority.pem());
    let mut pairs = vec![
        (first.chain.clone(), first.private_key.clone()),
        (chained, second.private_key.clone()),
        (alone.chain.clone(), alone.private_key.clone()),
        of_algorithm(&rcgen::PKCS_ECDSA_P384_SHA384),
    ];
    pairs.extend(rsa());
    // Invalid pairs.
    pairs.push((first.chain.clone(), second.private_key.clone()));
    pairs.push(of_algorithm(&rcgen::PKCS_ED25519));
    for text in ["", "junk", "-----BEGIN CERTIFICATE-----", "\0"] {
        pairs.push((text.to_owned(), text.to_owned()));
    }
    // Other encodings, which not every parser accepts.
    let written: [fn(&str) -> String; 12] = [
        |pem| pem.replace('\n', "\r\n"),
        |pem| pem.replace('\n', "\r"),
        one_line,
        |pem| pem.lines().map(|line| format!("  {line}\n")).collect(),
        |pem| pem.lines().map(|line| format!("{line}  \n")).collect(),
        |pem| pem.trim_end().to_owned(),
        |pem| format!("subject=CN = example\n\n{pem}"),
        |pem| format!("{pem}and some words"),
        |pem| format!("{pem}-----BEGIN CERTIFICATE-----\n"),
        |pem| format!("{pem}-----BEGIN OTHER THING-----\nAAAA\n-----END OTHER THING-----\n"),
        |pem| pem.replace("-----\nM", "-----\n\nM"),
        |pem| format!("\u{feff}{pem}"),
    ];
    for write in written {
        pairs.push((write(&first.chain), first.private_key.clone()));
        pairs.push((first.chain.clone(), write(&first.private_key)));
    }
    let both = format!("{}{}", first.private_key, first.chain);
    pairs.push((both.clone(), both));
    let both = format!("{}{}", first.chain, first.private_key);
    pairs.push((both.clone(), both));
    let twice = format!("{}{}", first.chain, first.chain);
    pairs.push((twice, first.private_key.clone()));
    let other_first = format!("{}{}", second.private_key, first.private_key);
    pairs.push((first.chain.clone(), other_first));
    let trusted = |pem: &str| pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    pairs.push((trusted(&first.chain), first.private_key.clone()));
    let x509 = |pem: &str| pem.replace("CERTIFICATE", "X509 CERTIFICATE");
    pairs.push((x509(&first.chain), first.private_key.clone()));
    pairs.push(expired());
    pairs
}

/// Self-signed certificates with the smallest and the largest RSA keys.
pub(super) fn rsa() -> impl Iterator<Item = (String, String)> {
    let files = [include_str!("rsa-2048.pem"), include_str!("rsa-4096.pem")];
    files.into_iter().map(|pem| {
        let at = pem.find("-----BEGIN PRIVATE").expect("a key");
        (pem[..at].to_owned(), pem[at..].to_owned())
    })
}

fn one_line(pem: &str) -> String {
    let is_body = |line: &&str| !line.starts_with("-----");
    let body: String = pem.lines().filter(is_body).collect();
    let mut frame = pem.lines().filter(|line| line.starts_with("-----"));
    let (begin, end) = (frame.next(), frame.next());
    format!(
        "{}\n{body}\n{}\n",
        begin.unwrap_or_default(),
        end.unwrap_or_default()
    )
}

fn of_algorithm(algorithm: &'static SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).expect("a key");
    let params = CertificateParams::new(vec!["example.com".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

/// An expired certificate.
fn expired() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["example.com".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2001, 1, 2);
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}
