//! Recursive PROPFIND of a folder.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use support::{Client, Running, start};
use webdav::{DEPTH_MAX, MEMBERS_MAX};

fn infinity(client: &mut Client, path: &str) -> (String, String) {
    let (head, body) = client.request(&format!("PROPFIND {path}"), "Depth: infinity\r\n", "");
    (head, String::from_utf8(body).unwrap())
}

/// Returns the paths in a response.
fn paths(body: &str) -> Vec<&str> {
    let hrefs = body.split("<D:href>").skip(1);
    let mut paths: Vec<_> = hrefs.map(|rest| rest.split("</D:href>").next().unwrap()).collect();
    paths.sort_unstable();
    paths
}

fn servers(folder: &std::path::Path) -> Vec<Running> {
    let names = ["*", "+"].map(str::to_owned).into_iter();
    let files = ["a.tch", "a.tcb"].map(|name| folder.join(name).display().to_string());
    names.chain(files).map(|name| start(Database::open(&name).unwrap())).collect()
}

#[test]
fn a_recursive_listing_has_every_member_once() {
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        for key in ["f", "a/", "a/b", "a/c/d", "a/c/e f", "a/g/h/i", "a/", "a//x", "a/./y", "ab"] {
            server.put(key.as_bytes(), b"value");
        }
        let mut client = server.connect();
        let (head, body) = infinity(&mut client, "/a/");
        assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
        let below =
            ["/a/", "/a/b", "/a/c/", "/a/c/d", "/a/c/e%20f", "/a/g/", "/a/g/h/", "/a/g/h/i"];
        assert_eq!(paths(&body), below);
        assert_eq!(paths(&infinity(&mut client, "/a").1), below);
        let all = [&["/"], &below[..], &["/ab", "/f"]].concat();
        assert_eq!(paths(&infinity(&mut client, "/").1), all);
        assert_eq!(paths(&infinity(&mut client, "/f").1), ["/f"]);
        assert!(infinity(&mut client, "/none").0.starts_with("HTTP/1.1 404 "));
        // The header that litmus sends does not bypass the limit.
        let headers = "Depth: 1\r\nX-Litmus: x\r\n";
        let (_, body) = client.request("PROPFIND /a/", headers, "");
        let body = String::from_utf8(body).unwrap();
        assert_eq!(paths(&body), ["/a/", "/a/b", "/a/c/", "/a/g/"]);
    }
}

#[test]
fn a_listing_with_too_many_members_is_refused_with_the_status_of_the_rfc() {
    for kind in ["*", "+"] {
        let server = start(Database::open(kind).unwrap());
        // Two of the members are folders.
        for number in 0..MEMBERS_MAX - 2 {
            server.put(format!("a/b/{number}").as_bytes(), b"");
        }
        let mut client = server.connect();
        let (head, body) = infinity(&mut client, "/");
        assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
        assert_eq!(paths(&body).len(), MEMBERS_MAX + 1);
        server.put(b"a/one more", b"");
        let (head, body) = infinity(&mut client, "/");
        assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
        assert!(body.contains("<D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>"));
        assert!(infinity(&mut client, "/a/b/").0.starts_with("HTTP/1.1 207 "));
        // With a depth it is listed.
        client.status("PROPFIND /a/b/", "Depth: 1\r\n", "", 207);
    }
}

#[test]
fn a_recursive_listing_reaches_the_deepest_path() {
    let server = start(Database::open("+").unwrap());
    let deepest = "d/".repeat(DEPTH_MAX - 1) + "file";
    server.put(deepest.as_bytes(), b"");
    server.put(format!("{}x", "e/".repeat(100 * DEPTH_MAX)).as_bytes(), b"");
    let mut client = server.connect();
    let (head, body) = infinity(&mut client, "/");
    assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
    let body = paths(&body);
    assert!(body.contains(&format!("/{deepest}").as_str()));
    assert_eq!(body.iter().filter(|path| path.starts_with("/e/")).count(), DEPTH_MAX);
}
