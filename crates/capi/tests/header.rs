//! The header, which is written from the source, is up to date.

use std::path::Path;

/// Variable that makes the test write the header.
const WRITE: &str = "CABINET_WRITE_HEADER";

#[test]
fn the_header_is_that_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new()
        .with_crate(folder)
        .with_config(config)
        .generate()
        .expect("a header of the source");
    let mut written = Vec::new();
    bindings.write(&mut written);
    let written = String::from_utf8(written).expect("a header in UTF-8");
    let path = folder.join("include/cabinet.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &written).expect("the header");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == written, "cabinet.h is out of date: run `cargo xtask capi --write`");
}
