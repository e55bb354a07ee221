//! An issuer of JSON Web Tokens.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

/// An issuer with one Ed25519 key.
#[derive(Debug)]
pub struct Issuer {
    key: KeyPair,
}

impl Issuer {
    /// A new issuer.
    ///
    /// # Errors
    /// If a key can't be generated.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        Ok(Self { key })
    }

    /// Its JWKS.
    pub fn jwks(&self) -> String {
        let x = BASE64.encode(self.key.public_key_raw());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": x}]}).to_string()
    }

    /// A signed token with these claims.
    ///
    /// # Errors
    /// If it can't be signed.
    pub fn token(&self, claims: &Value) -> Result<String> {
        let part = |value: &Value| BASE64.encode(value.to_string());
        let text = format!(
            "{}.{}",
            part(&json!({"alg": "EdDSA", "typ": "JWT"})),
            part(claims)
        );
        let signature = self.key.sign(text.as_bytes())?;
        Ok(format!("{text}.{}", BASE64.encode(signature)))
    }
}
