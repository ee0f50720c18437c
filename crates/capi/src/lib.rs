//! The C face of cabinet: `libcabinet.so`, `libcabinet.a` and `cabinet.h`.
//!
//! Each function of this crate is one of the header, which cbindgen writes from it with its
//! documentation (`cargo xtask capi --write`). They are declared as safe functions of pointers:
//! only C calls them, and its side of the contract is in the header. All of them read and write
//! memory of their callers through [`border`], which has the unsafe code.
//!
//! - [`status`], [`options`]: results of calls, and structures that may grow;
//! - [`border`]: pointers in and out, panics;
//! - [`handle`]: handles of databases, which may be closed while other threads use them;
//! - the other modules: the functions by subject.

#![expect(non_camel_case_types, reason = "types have their names of C")]
#![expect(unsafe_code, reason = "the names of the functions are not mangled; see `border`")]

pub mod batch;
pub mod border;
pub mod cursor;
pub mod error;
mod fork;
pub mod handle;
pub mod iterate;
pub mod open;
pub mod options;
pub mod query;
pub mod record;
pub mod row;
pub mod status;
pub mod whole;
