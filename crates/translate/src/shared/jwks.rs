//! JWKS (RFC 7517), which verify JSON Web Tokens, validated so that Envoy accepts all valid ones.
//!
//! Envoy ignores unusable keys, and rejects a set without usable keys. So it gets only usable keys, with only their
//! public parameters.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sesame_model::CertificateKey;
use x509_parser::num_bigint::BigUint;

use crate::shared::certificates::SecretData;

/// The maximum size of a JWKS, in bytes: each host that uses it adds a copy to its route table.
const MAX_SIZE: usize = 64 << 10;

/// The maximum number of keys in a JWKS.
const MAX_KEYS: usize = 100;

/// The maximum time to verify a token with all keys of a JWKS, in microseconds: Envoy tries all if the token names none.
const MAX_MICROS: u64 = 2_000;

/// An entry of a Secret.
pub(crate) type JwksEntry = (CertificateKey, Arc<str>);

/// The JWKS in an entry, as JSON, or why there is none: a clause to follow "Secret ns/name".
pub(crate) type JwksState = Result<Arc<str>, String>;

/// Reads an entry of a Secret; `None` if the Secret doesn't exist.
pub(crate) fn read(secret: Option<&SecretData>, entry: &str) -> JwksState {
    let secret = secret.ok_or("does not exist")?;
    let text = secret.data.get(entry).filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| format!("has no data in {entry}"))?;
    if text.len() > MAX_SIZE {
        return Err(format!("has more than {MAX_SIZE} bytes in {entry}"));
    }
    let set: Set<serde_json::Value> = serde_json::from_slice(text)
        .map_err(|error| format!("has no JSON Web Key Set in {entry}: {error}"))?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("has more than {MAX_KEYS} keys in {entry}"));
    }
    let keys = set.keys.into_iter();
    let keys = keys.filter_map(|key| serde_json::from_value(key).ok().and_then(usable));
    let keys: Vec<Key> = keys.collect();
    if keys.is_empty() {
        return Err(format!(
            "has no usable key in {entry}; use RSA keys with 2048 to 8192 bits, ECDSA keys for P-256, P-384 or P-521, \
             Ed25519 keys, or symmetric keys for HMAC"
        ));
    }
    let micros: u64 = keys.iter().map(Key::micros).sum();
    if micros > MAX_MICROS {
        return Err(format!(
            "has keys in {entry} with which Envoy would take about {:.1} ms to reject a token that names none of them; the \
             limit is {} ms; use fewer keys, or smaller ones",
            micros as f64 / 1_000.0,
            MAX_MICROS / 1_000
        ));
    }
    let json = serde_json::to_string(&Set { keys });
    Ok(json
        .map_err(|error| format!("has invalid keys in {entry}: {error}"))?
        .into())
}

#[derive(Deserialize, Serialize)]
struct Set<T> {
    keys: Vec<T>,
}

/// The parameters of a key that Envoy reads. Numbers are big-endian, in base64.
#[derive(Deserialize, Serialize)]
struct Key {
    kty: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    k: Option<String>,
}

impl Key {
    /// The time that Envoy takes to verify a signature, in microseconds.
    fn micros(&self) -> u64 {
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("EC", Some("P-521")) => 640,
            ("EC", Some("P-384")) => 280,
            ("EC", _) => 40,
            ("OKP", _) => 60,
            ("RSA", _) => {
                // In base64, a number of 1,024 bits has 171 characters. The time grows with the square of the length.
                let units = self.n.as_ref().map_or(0, |n| n.len().div_ceil(171));
                3 * u64::try_from(units * units).unwrap_or(u64::MAX)
            }
            _ => 1,
        }
    }
}

/// The key without superfluous parameters, if Envoy can use it.
fn usable(key: Key) -> Option<Key> {
    let Key {
        kty,
        kid,
        alg,
        crv,
        n,
        e,
        x,
        y,
        k,
    } = key;
    let (algorithms, crv, [n, e, x, y, k]): (&[&str], _, _) = match kty.as_str() {
        "RSA" => {
            let (n, e) = (decoded(n)?, decoded(e)?);
            rsa(&n, &e)?;
            let algorithms = &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
            (algorithms, None, [Some(n), Some(e), None, None, None])
        }
        "EC" => {
            let curve = Curve::named(crv.as_deref()?)?;
            let (x, y) = (decoded(x)?, decoded(y)?);
            curve.has_point(&x, &y).then_some(())?;
            (curve.algorithm, crv, [None, None, Some(x), Some(y), None])
        }
        "OKP" => {
            let x = decoded(x)?;
            (crv.as_deref()? == "Ed25519" && x.len() == 32).then_some(())?;
            (&["EdDSA"], crv, [None, None, Some(x), None, None])
        }
        "oct" => {
            let k = decoded(k)?;
            (
                &["HS256", "HS384", "HS512"],
                None,
                [None, None, None, None, Some(k)],
            )
        }
        _ => return None,
    };
    if alg.as_deref().is_some_and(|alg| !algorithms.contains(&alg)) {
        return None;
    }
    let encoded = |bytes: Option<Vec<u8>>| bytes.map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    Some(Key {
        kty,
        kid,
        alg,
        crv,
        n: encoded(n),
        e: encoded(e),
        x: encoded(x),
        y: encoded(y),
        k: encoded(k),
    })
}

/// The bytes of a parameter, which must not be empty.
fn decoded(text: Option<String>) -> Option<Vec<u8>> {
    const BASE64: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::URL_SAFE,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let bytes = BASE64.decode(text?).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

fn rsa(n: &[u8], e: &[u8]) -> Option<()> {
    let (n, e) = (BigUint::from_bytes_be(n), BigUint::from_bytes_be(e));
    let exponents = [3u32, 65_537].map(BigUint::from);
    (n.bit(0) && (2048..=8192).contains(&n.bits()) && exponents.contains(&e)).then_some(())
}

/// A curve y² = x³ - 3x + b modulo p (SEC 2).
struct Curve {
    algorithm: &'static [&'static str],
    p: &'static str,
    b: &'static str,
}

impl Curve {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "P-256" => Self {
                algorithm: &["ES256"],
                p: "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff",
                b: "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
            },
            "P-384" => Self {
                algorithm: &["ES384"],
                p: "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff",
                b: "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef",
            },
            "P-521" => Self {
                algorithm: &["ES512"],
                p: "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
                    ffffffffffffffffffffffffffffffffffff",
                b: "0051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e156193951ec7e937b1652c0bd3bb1\
                    bf073573df883d2c34f1ef451fd46b503f00",
            },
            _ => return None,
        })
    }

    /// Whether the point is on the curve, with coordinates below p.
    fn has_point(&self, x: &[u8], y: &[u8]) -> bool {
        let number = |hex: &str| BigUint::parse_bytes(hex.as_bytes(), 16).unwrap_or_default();
        let (p, b) = (number(self.p), number(self.b));
        let (x, y) = (BigUint::from_bytes_be(x), BigUint::from_bytes_be(y));
        if x >= p || y >= p {
            return false;
        }
        // x³ + (p - 3)x + b
        let right = &x * &x * &x + (&p - 3u32) * &x + b;
        &y * &y % &p == right % &p
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(text: &str) -> JwksState {
        let secret = SecretData {
            type_: "Opaque".into(),
            data: [("keys".to_owned(), text.as_bytes().into())].into(),
        };
        read(Some(&secret), "keys")
    }

    /// The keys that Envoy gets.
    fn kept(keys: Value) -> Value {
        match state(&json!({ "keys": keys }).to_string()) {
            Ok(text) => serde_json::from_str::<Value>(&text).expect("JSON")["keys"].take(),
            Err(reason) => Value::from(reason),
        }
    }

    fn p256() -> Value {
        // RFC 7517, appendix A.1.
        json!({
            "kty": "EC", "crv": "P-256", "kid": "1",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
        })
    }

    fn with(mut key: Value, field: &str, value: &str) -> Value {
        key[field] = value.into();
        key
    }

    #[test]
    fn public_parameters_of_usable_keys_are_kept() {
        let n = URL_SAFE_NO_PAD.encode([255; 256]);
        let rsa = json!({"kty": "RSA", "alg": "PS384", "n": n, "e": "AQAB"});
        let symmetric = json!({"kty": "oct", "k": "c2VjcmV0"});
        let edwards = json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode([7; 32])});
        let all = json!([p256(), rsa, symmetric, edwards]);
        assert_eq!(kept(all.clone()), all);
        let private = with(with(p256(), "d", "c2VjcmV0"), "use", "sig");
        let padded = with(symmetric.clone(), "k", "c2VjcmU=");
        let keys = json!([private, padded, {"kty": "AKP"}, 7, {"kty": "oct", "k": 7}]);
        assert_eq!(kept(keys), json!([p256(), with(symmetric, "k", "c2VjcmU")]));
    }

    #[test]
    fn keys_of_all_curves_are_usable() {
        for algorithm in [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
            let point = &key.public_key_raw()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            let curve = format!("P-{}", x.len() * 8);
            let key = json!({
                "kty": "EC", "crv": curve, "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
            });
            assert_eq!(kept(json!([key])), json!([key]));
        }
        // The base point of SEC 2.
        let bytes = |hex: &str| {
            let number = BigUint::parse_bytes(hex.as_bytes(), 16);
            number.expect("a number").to_bytes_be()
        };
        let x = bytes(
            "c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a4\
             29bf97e7e31c2e5bd66",
        );
        let y = bytes(
            "011839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e662c97ee72995ef42640c550b9013fad0761353c7086a27\
             2c24088be94769fd16650",
        );
        assert!(Curve::named("P-521").expect("a curve").has_point(&x, &y));
    }

    #[test]
    fn keys_that_take_too_much_time_together_are_refused() {
        let rsa = |bytes: usize| {
            let n = URL_SAFE_NO_PAD.encode(vec![255; bytes]);
            json!({"kty": "RSA", "n": n, "e": "AQAB"})
        };
        for (key, fitting) in [
            (rsa(256), 100),
            (rsa(512), 41),
            (rsa(1_024), 10),
            (p256(), 50),
        ] {
            assert!(
                kept(Value::from(vec![key.clone(); fitting])).is_array(),
                "{key}"
            );
            let too_many = kept(Value::from(vec![key.clone(); fitting + 1]));
            assert!(too_many.is_string(), "{key}");
        }
        let reason = kept(Value::from(vec![p256(); 60]));
        let reason = reason.as_str().expect("a reason");
        assert!(
            reason.starts_with("has keys in keys with which Envoy would take about 2.4 ms"),
            "{reason}"
        );
    }

    #[test]
    fn sets_without_usable_keys_are_refused_with_a_reason() {
        assert_eq!(read(None, "keys").expect_err("an error"), "does not exist");
        let reason = |text: &str| state(text).expect_err("an error");
        assert_eq!(reason(""), "has no data in keys");
        assert!(reason("junk").starts_with("has no JSON Web Key Set in keys: "));
        assert!(reason("{}").starts_with("has no JSON Web Key Set in keys: "));
        assert!(reason(&" ".repeat(MAX_SIZE + 1)).starts_with("has more than 65536 bytes"));
        let rsa = |n: &[u8], e: &str| json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode(n), "e": e});
        for key in [
            with(p256(), "y", "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyQ"),
            with(p256(), "crv", "P-384"),
            with(p256(), "crv", "secp256k1"),
            with(p256(), "alg", "ES384"),
            with(p256(), "alg", "RS256"),
            rsa(&[255; 255], "AQAB"),
            rsa(&[255; 1025], "AQAB"),
            rsa(&[254; 256], "AQAB"),
            rsa(&[255; 256], "AQAC"),
            json!({"kty": "oct", "k": ""}),
            json!({"kty": "oct", "k": "?"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}),
        ] {
            let found = kept(json!([key]));
            let reason = found.as_str().unwrap_or_default();
            assert!(
                reason.starts_with("has no usable key in keys"),
                "{key}: {found}"
            );
        }
    }
}
