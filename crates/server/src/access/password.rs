//! Passwords: Argon2id hashes, and keyed hashes of passwords that were verified.
//!
//! An Argon2id hash with [`PasswordCost::DEFAULT`] takes tens of milliseconds of a core and 19 MiB.
//! It is never computed on an event loop: [`super::logins`] has threads of its own for it, and
//! [`super::hash_memory`] the memory.

use super::hash_memory::HashMemory;
use argon2::password_hash::{PasswordHash, PasswordHasher, Salt, SaltString};
use argon2::{Algorithm, Argon2, MIN_SALT_LEN, Params, Version};
use blake2::digest::consts::U32;
use blake2::digest::{Digest, Mac};
use blake2::{Blake2b, Blake2bMac};
use std::sync::OnceLock;
use subtle::ConstantTimeEq;

/// Length of a salt, in bytes.
const SALT_BYTES: usize = 16;

/// Length of a keyed hash, and of the hash of a token, in bytes.
const HASH_BYTES: usize = 32;

/// Length of a new token, in random bytes. It is written with twice as many hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// Cost of a password's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Number of passes over the memory.
    pub passes: u32,
    /// Number of lanes of the memory. They are computed one after the other.
    pub lanes: u32,
}

impl PasswordCost {
    /// Cost of new hashes: one that OWASP recommends for Argon2id.
    pub const DEFAULT: Self = Self { memory_kib: 19 * 1024, passes: 2, lanes: 1 };

    /// Highest cost of a hash that a file may have.
    pub const MAX: Self = Self { memory_kib: 128 * 1024, passes: 16, lanes: 8 };

    /// Lowest cost of a hash that a file may have. Only tests should use it.
    pub const MIN: Self = Self { memory_kib: 8, passes: 1, lanes: 1 };

    fn is_within_limits(self) -> bool {
        let (least, most) = (Self::MIN, Self::MAX);
        (least.memory_kib..=most.memory_kib).contains(&self.memory_kib)
            && (least.passes..=most.passes).contains(&self.passes)
            && (least.lanes..=most.lanes).contains(&self.lanes)
    }
}

/// The system has no random bytes, or a cost is invalid.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cannot hash a password: {0}")]
pub struct HashError(&'static str);

/// Returns the Argon2id hash of a password as a PHC string, with a new salt.
pub fn hash_password(password: &[u8], cost: PasswordCost) -> Result<String, HashError> {
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, None);
    let params = params.map_err(|_| HashError("the cost is invalid"))?;
    let salt = SaltString::encode_b64(&random::<SALT_BYTES>()?);
    let salt = salt.map_err(|_| HashError("the salt is invalid"))?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash = argon2.hash_password(password, &salt);
    Ok(hash.map_err(|_| HashError("Argon2id has failed"))?.to_string())
}

/// Returns a new token, in hexadecimal digits.
pub fn new_token() -> Result<String, HashError> {
    Ok(hexadecimal(&random::<TOKEN_BYTES>()?))
}

/// Returns the hash of a token as a file has it: BLAKE2b with 256 bits, in hexadecimal digits. A
/// token has enough random bits that a fast hash does not help to guess it.
pub fn hash_token(token: &[u8]) -> String {
    hexadecimal(&Blake2b::<U32>::digest(token))
}

/// Returns whether `text` has the form of [`hash_token`].
pub(super) fn is_token_hash(text: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == 2 * HASH_BYTES && text.as_bytes().iter().all(is_digit)
}

/// Returns why a text is no hash that [`verify`] accepts, if it is none.
pub(super) fn flaw(hash: &str) -> Option<&'static str> {
    let Ok(parsed) = PasswordHash::new(hash) else {
        return Some("has a password that is no hash");
    };
    if parsed.algorithm.as_str() != "argon2id" || parsed.version.is_some_and(|one| one != 0x13) {
        return Some("has a hash of another kind than argon2id, version 19");
    }
    let cost = Params::try_from(&parsed).map(|params| PasswordCost {
        memory_kib: params.m_cost(),
        passes: params.t_cost(),
        lanes: params.p_cost(),
    });
    match cost {
        Ok(cost) if cost.is_within_limits() && parsed.hash.is_some() && has_valid_salt(&parsed) => {
            None
        }
        _ => Some("has a hash whose cost is beyond the limits, or without a salt of 8 bytes"),
    }
}

/// Returns whether Argon2 accepts the salt. With another, it computes no hash.
fn has_valid_salt(hash: &PasswordHash<'_>) -> bool {
    let Some(salt) = hash.salt else { return false };
    salt.decode_b64(&mut [0; Salt::MAX_LENGTH]).is_ok_and(|salt| salt.len() >= MIN_SALT_LEN)
}

/// Returns whether a password has this hash. Takes as long as the hash costs.
pub(super) fn verify(hash: &str, password: &[u8]) -> bool {
    let Ok(parsed) = PasswordHash::new(hash) else { return false };
    let (Some(salt), Some(expected)) = (parsed.salt, parsed.hash) else { return false };
    let Ok(params) = Params::try_from(&parsed) else { return false };
    let mut salt_bytes = [0; Salt::MAX_LENGTH];
    let Ok(salt) = salt.decode_b64(&mut salt_bytes) else { return false };
    let blocks = params.block_count();
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut found = vec![0; expected.len()];
    let computed = HashMemory::of_process().with(blocks, |blocks| {
        argon2.hash_password_into_with_memory(password, salt, &mut found, blocks)
    });
    computed.is_ok() && found.ct_eq(expected.as_bytes()).into()
}

/// Keyed hash of a verified password, which is recognised by it at once.
pub(super) type Digested = [u8; HASH_BYTES];

/// Returns the keyed hash of a password. The key is random, and lives as long as the process.
/// Returns `None` if the system had no random bytes for it.
pub(super) fn digest(password: &[u8]) -> Option<Digested> {
    static KEY: OnceLock<Option<Digested>> = OnceLock::new();
    let key = KEY.get_or_init(|| random().ok()).as_ref()?;
    let mac = <Blake2bMac<U32> as Mac>::new_from_slice(key).ok()?;
    Some(mac.chain_update(password).finalize().into_bytes().into())
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], HashError> {
    let mut bytes = [0; BYTES];
    // The system returns up to 256 bytes at once.
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(length) if length == BYTES => Ok(bytes),
        _ => Err(HashError("the system has no random bytes")),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_its_own_hashes_only() {
        let hash = hash_password(b"secret", PasswordCost::MIN).expect("a hash");
        assert_eq!(flaw(&hash), None);
        assert!(hash.starts_with("$argon2id$v=19$m=8,t=1,p=1$"), "{hash}");
        assert!(verify(&hash, b"secret"));
        assert!(!verify(&hash, b"secret ") && !verify(&hash, b""));
        // Each has a salt of its own.
        assert_ne!(hash, hash_password(b"secret", PasswordCost::MIN).expect("a hash"));
    }

    #[test]
    fn passwords_that_many_threads_verify_share_two_buffers() {
        let costs = [PasswordCost::MIN, PasswordCost { memory_kib: 64, ..PasswordCost::MIN }];
        let hashes = costs.map(|cost| hash_password(b"secret", cost).expect("a hash"));
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for hash in &hashes {
                        // The second hash finds what the first one has left in its buffer.
                        assert!(verify(hash, b"secret") && !verify(hash, b"other"));
                        let buffers = HashMemory::of_process().buffers();
                        assert!((1..=super::super::hash_memory::BUFFERS_MAX).contains(&buffers));
                    }
                });
            }
        });
    }

    #[test]
    fn a_hash_of_another_kind_or_beyond_the_limits_has_a_flaw() {
        let hash = hash_password(b"secret", PasswordCost::MIN).expect("a hash");
        for (from, to) in [
            ("argon2id", "argon2i"),
            ("argon2id", "scrypt"),
            ("v=19", "v=16"),
            ("m=8,", "m=131073,"),
            ("t=1,", "t=17,"),
            ("p=1$", "p=9$"),
        ] {
            assert!(flaw(&hash.replace(from, to)).is_some(), "{to}");
        }
        let highest = hash.replace("m=8,t=1,p=1", "m=131072,t=16,p=8");
        assert_eq!(flaw(&highest), None);
        let cut = hash.rsplit_once('$').expect("a hash").0;
        for text in ["", "secret", "$argon2id$", cut] {
            assert!(flaw(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_salt_that_argon2_refuses_is_a_flaw() {
        let hash = hash_password(b"secret", PasswordCost::MIN).expect("a hash");
        let salt = hash.split('$').nth(4).expect("a salt");
        for bytes in 3..=MIN_SALT_LEN {
            let short = SaltString::encode_b64(&vec![1; bytes]).expect("a salt");
            let replaced = hash.replace(salt, short.as_str());
            assert_eq!(flaw(&replaced).is_some(), bytes < MIN_SALT_LEN, "{replaced}");
        }
        let longest = SaltString::encode_b64(&[1; 48]).expect("a salt");
        assert_eq!(flaw(&hash.replace(salt, longest.as_str())), None);
        let params = Params::new(8, 1, 1, None).expect("a cost");
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let shortest = SaltString::encode_b64(&[1; MIN_SALT_LEN]).expect("a salt");
        let hash = argon2.hash_password(b"secret", &shortest).expect("a hash").to_string();
        assert!(flaw(&hash).is_none() && verify(&hash, b"secret"));
    }

    #[test]
    fn keyed_hashes_distinguish_passwords_and_tokens_have_the_known_hash() {
        assert_eq!(digest(b"a"), digest(b"a"));
        assert_ne!(digest(b"a"), digest(b"b"));
        // printf abc | b2sum -l 256
        let known = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319";
        assert_eq!(hash_token(b"abc"), known);
        assert!(is_token_hash(known) && !is_token_hash(&known[1..]));
        assert!(!is_token_hash(&known.to_uppercase()));
        assert_eq!(new_token().expect("a token").len(), 64);
    }
}
