//! Properties of files and folders: PROPFIND and PROPPATCH.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::Config;
use std::collections::BTreeMap;
use support::{Client, Running, config, start, start_with, users_with};
use xmltree::Element;

const DAV: &str = "DAV:";

/// Properties of the RFC that a file and a folder have.
const LIVE_OF_FILES: [&str; 6] = [
    "{DAV:}getcontentlength",
    "{DAV:}getcontenttype",
    "{DAV:}getetag",
    "{DAV:}lockdiscovery",
    "{DAV:}resourcetype",
    "{DAV:}supportedlock",
];
const LIVE_OF_FOLDERS: [&str; 4] =
    ["{DAV:}getcontenttype", "{DAV:}lockdiscovery", "{DAV:}resourcetype", "{DAV:}supportedlock"];

fn memory() -> Running {
    start(Database::open("+").unwrap())
}

/// Properties in a response: the status of each, and its element.
type Properties = BTreeMap<String, (u16, Element)>;

fn elements(parent: &Element) -> Vec<&Element> {
    parent.children.iter().filter_map(|node| node.as_element()).collect()
}

fn child<'e>(parent: &'e Element, name: &str) -> &'e Element {
    let children = elements(parent);
    let found: Vec<_> = children
        .into_iter()
        .filter(|child| child.name == name && child.namespace.as_deref() == Some(DAV))
        .collect();
    assert_eq!(found.len(), 1, "{name} in {parent:?}");
    found[0]
}

fn text(element: &Element) -> String {
    element.get_text().unwrap_or_default().into_owned()
}

fn full_name(element: &Element) -> String {
    format!("{{{}}}{}", element.namespace.as_deref().unwrap_or_default(), element.name)
}

/// Parses a multistatus. Checks its form, and that each property is in it once.
fn multistatus(body: &[u8]) -> BTreeMap<String, Properties> {
    let root = Element::parse(body).unwrap();
    assert_eq!(full_name(&root), "{DAV:}multistatus");
    let mut responses = BTreeMap::new();
    for response in elements(&root) {
        assert_eq!(full_name(response), "{DAV:}response");
        let mut properties = Properties::new();
        let (mut parts, mut statuses) = (0, Vec::new());
        for part in elements(response) {
            match part.name.as_str() {
                "href" => continue,
                "status" => {}
                "propstat" => {
                    let status = text(child(part, "status"));
                    let status = status.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
                    statuses.push(status);
                    for property in elements(child(part, "prop")) {
                        let old =
                            properties.insert(full_name(property), (status, property.clone()));
                        assert!(old.is_none(), "{} twice", property.name);
                    }
                }
                name => panic!("{name} in a response"),
            }
            parts += 1;
        }
        assert!(parts > 0, "a response without status");
        statuses.dedup();
        assert_eq!(statuses.len(), parts.min(statuses.len()), "a propstat for each status");
        assert!(responses.insert(text(child(response, "href")), properties).is_none());
    }
    responses
}

fn find(
    client: &mut Client,
    path: &str,
    headers: &str,
    body: &str,
) -> BTreeMap<String, Properties> {
    let (head, body) = client.request(&format!("PROPFIND {path}"), headers, body);
    assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
    assert_eq!(
        Client::header(&head, "content-type").as_deref(),
        Some("application/xml; charset=utf-8")
    );
    multistatus(&body)
}

/// Returns the properties of one file or folder, for the inner part of a document.
fn properties(client: &mut Client, path: &str, inner: &str) -> Properties {
    let body = format!("<D:propfind xmlns:D=\"DAV:\" xmlns:x=\"urn:x\">{inner}</D:propfind>");
    let found = find(client, path, "Depth: 0\r\n", &body);
    assert_eq!(found.len(), 1);
    found.into_values().next().unwrap()
}

/// Returns the names with a status.
fn names(properties: &Properties, status: u16) -> Vec<&str> {
    let having = properties.iter().filter(|(_, (found, _))| *found == status);
    having.map(|(name, _)| name.as_str()).collect()
}

/// Changes properties. Returns the status of each.
fn patch(client: &mut Client, path: &str, inner: &str) -> BTreeMap<String, u16> {
    let body =
        format!("<D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"urn:x\">{inner}</D:propertyupdate>");
    let (head, body) = client.request(&format!("PROPPATCH {path}"), "", &body);
    assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
    let responses = multistatus(&body);
    assert_eq!(responses.len(), 1);
    let properties = responses.into_values().next().unwrap();
    properties.into_iter().map(|(name, (status, _))| (name, status)).collect()
}

fn set(client: &mut Client, path: &str, properties: &str) {
    let statuses = patch(client, path, &format!("<D:set><D:prop>{properties}</D:prop></D:set>"));
    assert!(statuses.values().all(|status| *status == 200), "{statuses:?}");
}

#[test]
fn a_named_property_is_given_once_or_reported_missing() {
    let server = memory();
    let mut client = server.connect();
    client.status("PUT /k", "", "value", 201);
    set(&mut client, "/k", "<x:mood>glad</x:mood><x:other>1</x:other>");
    let prop = "<D:prop><D:getcontentlength/><x:mood/><x:none/><D:getlastmodified/><none/>\
        <D:nonsense/><x:mood/><D:getcontentlength/><none/></D:prop>";
    let found = properties(&mut client, "/k", prop);
    assert_eq!(names(&found, 200), ["{DAV:}getcontentlength", "{urn:x}mood"]);
    let missing = ["{DAV:}getlastmodified", "{DAV:}nonsense", "{urn:x}none", "{}none"];
    assert_eq!(names(&found, 404), missing);
    assert_eq!(text(&found["{DAV:}getcontentlength"].1), "5");
    assert_eq!(text(&found["{urn:x}mood"].1), "glad");
    assert!(found["{urn:x}none"].1.children.is_empty());
    // Properties of clients are not given unasked, and there is always a status.
    let found = properties(&mut client, "/k", "<D:prop><D:getcontentlength/></D:prop>");
    assert_eq!((found.len(), names(&found, 200)), (1, vec!["{DAV:}getcontentlength"]));
    let found = properties(&mut client, "/k", "<D:prop><x:none/></D:prop>");
    assert_eq!((found.len(), names(&found, 404)), (1, vec!["{urn:x}none"]));
    assert!(properties(&mut client, "/k", "<D:prop/>").is_empty());
}

#[test]
fn propname_gives_all_names_without_values() {
    let server = memory();
    let mut client = server.connect();
    client.status("MKCOL /f", "", "", 201);
    client.status("PUT /f/k", "", "value", 201);
    for (path, live) in [("/f/k", &LIVE_OF_FILES[..]), ("/f/", &LIVE_OF_FOLDERS)] {
        set(&mut client, path, "<x:mood>glad</x:mood><D:displayname>n</D:displayname>");
        let found = properties(&mut client, path, "<D:propname/>");
        for name in live.iter().chain(&["{urn:x}mood", "{DAV:}displayname"]) {
            assert!(found.contains_key(*name), "{name}");
        }
        for (name, (status, element)) in &found {
            assert_eq!(*status, 200, "{name}");
            assert!(element.children.is_empty() && element.attributes.is_empty(), "{name}");
        }
        // They are the names of properties that exist.
        for name in found.keys().filter(|name| name.starts_with("{DAV:}")) {
            let prop = format!("<D:prop><D:{}/></D:prop>", &name["{DAV:}".len()..]);
            assert_eq!(names(&properties(&mut client, path, &prop), 200), [name]);
        }
    }
}

#[test]
fn allprop_gives_live_and_dead_properties_and_those_included() {
    let server = memory();
    let mut client = server.connect();
    client.status("PUT /k", "", "value", 201);
    set(&mut client, "/k", "<x:mood>glad</x:mood>");
    let all = [&LIVE_OF_FILES[..], &["{urn:x}mood"]].concat();
    let found = find(&mut client, "/k", "Depth: 0\r\n", "");
    assert_eq!(names(&found["/k"], 200), all);
    assert_eq!(found["/k"].len(), all.len());
    let found = properties(&mut client, "/k", "<D:allprop/>");
    assert_eq!((names(&found, 200), found.len()), (all.clone(), all.len()));
    assert_eq!(text(&found["{urn:x}mood"].1), "glad");
    let include = "<D:allprop/><D:include><D:quota-used-bytes/><D:getetag/><x:mood/><x:none/>\
        </D:include>";
    let found = properties(&mut client, "/k", include);
    let mut with = [&all[..], &["{DAV:}quota-used-bytes"]].concat();
    with.sort_unstable();
    assert_eq!((names(&found, 200), names(&found, 404)), (with, vec!["{urn:x}none"]));
    let folder = find(&mut client, "/", "Depth: 0\r\n", "");
    assert_eq!(names(&folder["/"], 200), LIVE_OF_FOLDERS);
    assert_eq!(child(&folder["/"]["{DAV:}resourcetype"].1, "collection").children.len(), 0);
    assert!(found["{DAV:}resourcetype"].1.children.is_empty());
}

#[test]
fn a_missing_depth_is_infinity_and_any_other_than_three_is_refused() {
    let server = memory();
    for key in ["a/b/c", "a/d"] {
        server.put(key.as_bytes(), b"");
    }
    let mut client = server.connect();
    let all = vec!["/", "/a/", "/a/b/", "/a/b/c", "/a/d"];
    for (depth, expected) in [
        ("", all.clone()),
        ("Depth: infinity\r\n", all.clone()),
        ("Depth: Infinity\r\n", all),
        ("Depth: 1\r\n", vec!["/", "/a/"]),
        ("Depth: 0\r\n", vec!["/"]),
    ] {
        let found = find(&mut client, "/", depth, "");
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected, "{depth}");
    }
    for depth in ["2", "", "-1", "1,noroot", "00", "infinite"] {
        server.connect().status("PROPFIND /", &format!("Depth: {depth}\r\n"), "", 400);
    }
    server.connect().status("PROPFIND /", "Depth: 0\r\nDepth: 0\r\n", "", 400);
}

#[test]
fn live_properties_equal_the_headers_of_a_file() {
    let server = memory();
    let mut client = server.connect();
    client.status("MKCOL /f", "", "", 201);
    let types = [("a.txt", ""), ("b", ""), ("c.png", "Content-Type: text/x-own; a=\"<&>\"\r\n")];
    for (name, content_type) in types {
        client.status(&format!("PUT /f/{name}"), content_type, name, 201);
    }
    let pairs = [
        ("etag", "getetag"),
        ("content-length", "getcontentlength"),
        ("content-type", "getcontenttype"),
        ("last-modified", "getlastmodified"),
    ];
    let listed = find(&mut client, "/f", "Depth: 1\r\n", "");
    for path in ["/f/a.txt", "/f/b", "/f/c.png", "/f/"] {
        for method in ["GET", "HEAD"] {
            let (head, _) = client.request(&format!("{method} {path}"), "", "");
            for (header, property) in pairs {
                let found = listed[path].get(&format!("{{DAV:}}{property}"));
                let found = found.map(|(_, element)| text(element));
                assert_eq!(found, Client::header(&head, header), "{property} of {path}");
            }
        }
    }
    let tag = text(&listed["/f/b"]["{DAV:}getetag"].1);
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    client.status("PUT /f/b", &format!("If-Match: {tag}\r\n"), "new", 204);
}

#[test]
fn a_folder_that_a_user_may_not_read_is_refused_at_every_depth() {
    let rights: &[&str] = &["read:docs/", "write:docs/"];
    let writer: &[&str] = &["write"];
    let users =
        users_with(&[("Aladdin", rights), ("root", &["read", "write"]), ("writer", writer)]);
    let config = Config { users: Some(users), ..config() };
    let server = start_with(config, Database::open("+").unwrap());
    for key in ["docs/a", "docs/b/c", "docs.txt", "other/a"] {
        server.put(key.as_bytes(), b"v");
    }
    let user = |user: &str| format!("Authorization: Basic {user}\r\n");
    // base64 of NAME:secret
    let [aladdin, root, writer] =
        [user("QWxhZGRpbjpzZWNyZXQ="), user("cm9vdDpzZWNyZXQ="), user("d3JpdGVyOnNlY3JldA==")];
    let paths = ["/", "/docs", "/docs/", "/docs/a", "/docs/b/", "/docs.txt", "/other/", "/other/a"];
    for depth in ["0", "1", "infinity", ""] {
        let depth = if depth.is_empty() { String::new() } else { format!("Depth: {depth}\r\n") };
        for credentials in [&aladdin, &root, &writer] {
            for path in paths {
                let (head, _) = server.connect().request(&format!("GET {path}"), credentials, "");
                let is_forbidden = head.starts_with("HTTP/1.1 403 ");
                assert!(is_forbidden || credentials != &writer, "{head}");
                let headers = format!("{credentials}{depth}");
                let expected = if is_forbidden { 403 } else { 207 };
                server.connect().status(&format!("PROPFIND {path}"), &headers, "", expected);
            }
        }
    }
    let headers = format!("{aladdin}Depth: infinity\r\n");
    let found = find(&mut server.connect(), "/docs/", &headers, "");
    let expected = ["/docs/", "/docs/a", "/docs/b/", "/docs/b/c"];
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    server.connect().status("PROPFIND /", &headers, "", 403);
    server.connect().status("PROPFIND /", &format!("{root}Depth: infinity\r\n"), "", 207);
}

#[test]
fn values_are_given_as_they_were_set() {
    let server = memory();
    let mut client = server.connect();
    client.status("PUT /k", "", "v", 201);
    let value = "<x:v xmlns:y=\"urn:y\" a=\"&lt;'&quot;\" y:b=\"2\" xml:lang=\"de\"> a &lt;b&gt; \
        &amp;&#13;<D:c/><y:d>y:q</y:d><e xmlns=\"urn:e\"><f xmlns=\"\"/></e><![CDATA[<g>]]></x:v>";
    let other = "<x:other xmlns:x=\"a&amp;&quot;b\"/><D xmlns:D=\"urn:z\"><D:h/></D>";
    set(&mut client, "/k", &format!("{value}{other}"));
    for inner in ["<D:allprop/>", "<D:prop><x:v/><x:other xmlns:x=\"a&amp;&quot;b\"/><D/></D:prop>"]
    {
        let found = properties(&mut client, "/k", inner);
        let (status, v) = &found["{urn:x}v"];
        assert_eq!(*status, 200);
        assert!(v.children[0].as_text().unwrap().ends_with("<b> &\r"), "{v:?}");
        assert_eq!(v.children.last().unwrap().as_text(), Some("<g>"));
        let [c, d, e] = elements(v)[..] else { panic!("{v:?}") };
        assert_eq!(full_name(c), "{DAV:}c");
        assert_eq!((full_name(d), text(d)), ("{urn:y}d".into(), "y:q".into()));
        assert_eq!((full_name(e), full_name(elements(e)[0])), ("{urn:e}e".into(), "{}f".into()));
        assert_eq!(v.attributes["a"], "<'\"");
        assert!(found.contains_key("{a&\"b}other"));
        assert_eq!(full_name(elements(&found["{}D"].1)[0]), "{urn:z}h");
    }
    let (_, body) = client.request("PROPFIND /k", "Depth: 0\r\n", "");
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("xml:lang=\"de\"") && body.contains("y:b=\"2\""), "{body}");
    assert!(body.contains("xmlns:y=\"urn:y\""), "{body}");
}

#[test]
fn a_language_around_a_property_is_kept_with_it() {
    let server = memory();
    let mut client = server.connect();
    client.status("PUT /k", "", "v", 201);
    let inner = "<D:set xml:lang=\"en\"><D:prop xml:lang=\"fr\"><x:a>1</x:a></D:prop></D:set>";
    assert_eq!(patch(&mut client, "/k", inner)["{urn:x}a"], 200);
    let (_, body) = client.request("PROPFIND /k", "Depth: 0\r\n", "");
    assert!(String::from_utf8(body).unwrap().contains("xml:lang=\"fr\""));
}

#[test]
fn a_patch_makes_all_changes_in_their_order_or_none() {
    let server = memory();
    let mut client = server.connect();
    client.status("PUT /k", "", "v", 201);
    let statuses = patch(
        &mut client,
        "/k",
        "<D:set><D:prop><x:a>1</x:a><x:b>1</x:b></D:prop></D:set>\
         <D:remove><D:prop><x:a/><x:none/></D:prop></D:remove>\
         <D:set><D:prop><x:b>2</x:b><D:displayname>n</D:displayname></D:prop></D:set>",
    );
    assert_eq!(statuses.len(), 4);
    assert!(statuses.values().all(|status| *status == 200), "{statuses:?}");
    let named = "<D:prop><x:a/><x:b/><D:displayname/></D:prop>";
    let found = properties(&mut client, "/k", named);
    assert_eq!(names(&found, 200), ["{DAV:}displayname", "{urn:x}b"]);
    assert_eq!(text(&found["{urn:x}b"].1), "2");
    // The server computes the tag.
    let statuses = patch(
        &mut client,
        "/k",
        "<D:set><D:prop><x:b>3</x:b><D:getetag>t</D:getetag></D:prop></D:set>\
         <D:remove><D:prop><D:displayname/></D:prop></D:remove>",
    );
    let expected = [("{DAV:}displayname", 424), ("{DAV:}getetag", 403), ("{urn:x}b", 424)];
    assert!(statuses.iter().map(|(name, status)| (name.as_str(), *status)).eq(expected));
    assert_eq!(text(&properties(&mut client, "/k", named)["{urn:x}b"].1), "2");
    let remove = "<D:remove><D:prop><D:displayname/></D:prop></D:remove>";
    assert_eq!(patch(&mut client, "/k", remove)["{DAV:}displayname"], 200);
    let found = properties(&mut client, "/k", named);
    assert_eq!(names(&found, 404), ["{DAV:}displayname", "{urn:x}a"]);
    assert!(patch(&mut client, "/k", "").is_empty());
    server.connect().status("PROPPATCH /none", "", "<propertyupdate xmlns=\"DAV:\"/>", 404);
}

#[test]
fn a_patch_respects_locks_and_conditions() {
    let server = memory();
    let mut client = server.connect();
    client.status("PUT /k", "", "v", 201);
    let lock = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
        <D:locktype><D:write/></D:locktype><D:owner><x xmlns=\"urn:x\">me &amp; you</x></D:owner>\
        </D:lockinfo>";
    let (head, body) = client.request("LOCK /k", "Timeout: Second-100\r\n", lock);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let token = Client::header(&head, "lock-token").unwrap();
    let update = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x xmlns=\"urn:x\">1</x></D:prop>\
        </D:set></D:propertyupdate>";
    server.connect().status("PROPPATCH /k", "", update, 423);
    server.connect().status("PROPPATCH /k", "If-Match: \"other\"\r\n", update, 412);
    client.status("PROPPATCH /k", &format!("If: ({token})\r\n"), update, 207);
    // The lock is shown as LOCK has shown it.
    let shown = Element::parse(&body[..]).unwrap();
    let shown = child(child(&shown, "lockdiscovery"), "activelock");
    let found =
        properties(&mut client, "/k", "<D:prop><D:lockdiscovery/><D:supportedlock/></D:prop>");
    let discovered = child(&found["{DAV:}lockdiscovery"].1, "activelock");
    for name in ["lockscope", "locktype", "depth", "timeout", "locktoken", "lockroot", "owner"] {
        let (one, other) = (child(shown, name), child(discovered, name));
        assert_eq!(one.get_text(), other.get_text(), "{name}");
        let inner =
            |element| elements(element).first().map(|inner| (full_name(inner), text(inner)));
        assert_eq!(inner(one), inner(other), "{name}");
    }
    assert_eq!(elements(&found["{DAV:}supportedlock"].1).len(), 2);
    client.status("UNLOCK /k", &format!("Lock-Token: {token}\r\n"), "", 204);
    let found = properties(&mut client, "/k", "<D:prop><D:lockdiscovery/></D:prop>");
    assert!(found["{DAV:}lockdiscovery"].1.children.is_empty());
}

#[test]
fn documents_that_are_not_xml_or_too_long_are_refused() {
    let server = memory();
    server.put(b"k", b"v");
    let entities =
        "<!DOCTYPE p [<!ENTITY a \"b\">]><propfind xmlns=\"DAV:\"><prop>&a;</prop></propfind>";
    let bound = "<D:propfind xmlns:D=\"DAV:\"><D:prop><b:a xmlns:b=\"\"/></D:prop></D:propfind>";
    for body in [" ", "text", "<propfind", "<a/>", "<propfind/>", entities, bound] {
        for method in ["PROPFIND", "PROPPATCH"] {
            server.connect().status(&format!("{method} /k"), "Depth: 0\r\n", body, 400);
        }
    }
    for inner in ["", "<allprop/><propname/>", "<unknown/>"] {
        let body = format!("<propfind xmlns=\"DAV:\">{inner}</propfind>");
        server.connect().status("PROPFIND /k", "Depth: 0\r\n", &body, 400);
    }
    server.connect().status("PROPPATCH /k", "", "", 400);
    let comment = |bytes: usize| {
        let (begin, end) = ("<propfind xmlns=\"DAV:\"><propname/><!--", "--></propfind>");
        let filled = "x".repeat(bytes - begin.len() - end.len());
        format!("{begin}{filled}{end}")
    };
    server.connect().status("PROPFIND /k", "Depth: 0\r\n", &comment(64 << 10), 207);
    server.connect().status("PROPFIND /k", "Depth: 0\r\n", &comment((64 << 10) + 1), 413);
}

#[test]
fn many_names_in_a_long_namespace_have_a_short_response() {
    let server = memory();
    for number in 0..100 {
        server.put(format!("{number}").as_bytes(), b"");
    }
    let names: String = (0..1000).map(|number| format!("<x:a{number}/>")).collect();
    let body = format!(
        "<D:propfind xmlns:D=\"DAV:\" xmlns:x=\"{}\"><D:prop>{names}</D:prop></D:propfind>",
        "u".repeat(32 << 10)
    );
    let (head, body) = server.connect().request("PROPFIND /", "Depth: 1\r\n", &body);
    assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
    assert!(body.len() < 4 << 20, "{} bytes", body.len());
    let body = String::from_utf8(body).unwrap();
    for (part, times) in [("<D:response>", 101), (":a999/>", 101), ("uuu", 0)] {
        let found = body.matches(part).count();
        assert!(found == times || times == 0 && found < 32 << 10, "{part}: {found}");
    }
}
