//! Name by which programs find the shared library. `cargo cinstall` sets the same.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcabinet.so.1");
}
