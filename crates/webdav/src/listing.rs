//! PROPFIND: properties of a file, or of a folder and all in it (RFC 4918, section 9.1).
//!
//! The names of all files are in memory, within the limits of `folder.rs`. Their properties are
//! looked up while the response is sent, a page at a time.

use crate::body::Content;
use crate::failure::Failure;
use crate::find::{Find, Selection};
use crate::folder::{Member, Node, Tree};
use crate::fragment;
use crate::live::{LIVE, QUOTA_USED, Resource};
use crate::locks::Locks;
use crate::names::{DAV, END, Name};
use crate::path::{check_depth, file_key, folder_key};
use crate::properties::{self, Property};
use crate::request::Request;
use bytes::Bytes;
use dav_server::body::Body;
use dav_server::davpath::DavPath;
use dav_server::fs::FsError;
use futures_util::stream;
use hyper::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_TYPE, HeaderMap, HeaderValue, PRAGMA,
};
use hyper::{Response, StatusCode};
use server::Records;
use std::io;
use std::sync::Arc;
use wire::http::path::path_target;

/// Header with the depth.
const DEPTH: &str = "depth";

/// Length at which a page of a response is sent.
const PAGE_BYTES: usize = 64 << 10;

const XML: HeaderValue = HeaderValue::from_static("application/xml; charset=utf-8");

/// The precondition that a refused recursive PROPFIND has failed.
const FINITE_DEPTH: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";

/// Levels below a folder that are listed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Zero,
    One,
    Infinity,
}

impl Depth {
    /// Returns the depth that the headers of a PROPFIND name, if it is valid.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(DEPTH).iter().map(HeaderValue::as_bytes);
        match (lines.next(), lines.next()) {
            (None, _) => Some(Self::Infinity),
            (Some(b"0"), None) => Some(Self::Zero),
            (Some(b"1"), None) => Some(Self::One),
            (Some(depth), None) if depth.eq_ignore_ascii_case(b"infinity") => Some(Self::Infinity),
            _ => None,
        }
    }
}

/// Responds to a PROPFIND.
pub(crate) async fn answer(
    records: &Arc<Records>,
    locks: &Locks,
    request: &Request,
    path: &DavPath,
    depth: Depth,
    find: Find,
) -> Result<Response<Content>, StatusCode> {
    let (key, is_collection) = (file_key(path).to_vec(), path.is_collection());
    let listed = request.wait(records, move |records| list(records, key, is_collection, depth));
    let listed = listed.await.map_err(|error| request.status().unwrap_or(status_of(&error)))?;
    let Some(Listed { target, tree }) = listed else { return Ok(finite_depth()) };
    let location = target.is_folder.then(|| url(&target));
    let members = Box::new(std::iter::once(target).chain(tree.into_members()));
    let (locks, context) = (locks.clone(), request.clone());
    let pages = Pages { find, locks, request: context, members, has_begun: false };
    let mut response = Response::new(pages.into_content(Arc::clone(records)));
    *response.status_mut() = StatusCode::MULTI_STATUS;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, XML);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    let location = location.filter(|_| !is_collection);
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(&location).ok()) {
        headers.insert(CONTENT_LOCATION, location);
    }
    Ok(response)
}

/// A file or folder, and all that is listed with it.
struct Listed {
    target: Member,
    tree: Tree,
}

/// Returns `None` if there is more below than can be listed.
fn list(
    records: &Records,
    key: Vec<u8>,
    is_collection: bool,
    depth: Depth,
) -> Result<Option<Listed>, Failure> {
    check_depth(&key)?;
    let node = Node::at(records, &key, is_collection)?.ok_or(FsError::NotFound)?;
    let is_folder = matches!(node, Node::Folder);
    let mut tree = Tree::default();
    if is_folder {
        let folder = folder_key(&key);
        records.check_read(&folder)?;
        tree = match depth {
            Depth::Zero => tree,
            Depth::One => Tree::in_folder(records, &folder)?,
            Depth::Infinity => match Tree::of(records, &folder)? {
                Some(tree) => tree,
                None => return Ok(None),
            },
        };
    }
    Ok(Some(Listed { target: Member { key, is_folder }, tree }))
}

/// Refuses a recursive listing (RFC 4918, section 9.1).
fn finite_depth() -> Response<Content> {
    let mut response = Response::new(Body::from(FINITE_DEPTH).into());
    *response.status_mut() = StatusCode::FORBIDDEN;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, XML);
    headers.insert(CONTENT_LENGTH, FINITE_DEPTH.len().into());
    response
}

/// Returns the status that the library has for an error.
fn status_of(error: &FsError) -> StatusCode {
    match error {
        FsError::NotFound => StatusCode::NOT_FOUND,
        FsError::Forbidden => StatusCode::FORBIDDEN,
        FsError::PathTooLong => StatusCode::URI_TOO_LONG,
        FsError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        FsError::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the encoded path of a file or folder.
fn url(member: &Member) -> String {
    let mut target = path_target(&member.key);
    if member.is_folder && !target.ends_with('/') {
        target.push('/');
    }
    // The library encodes more characters.
    DavPath::new(&target).map_or(target, |path| path.as_url_string())
}

/// The rest of a response.
struct Pages {
    find: Find,
    locks: Locks,
    request: Request,
    members: Box<dyn Iterator<Item = Member> + Send>,
    has_begun: bool,
}

impl Pages {
    fn into_content(self, records: Arc<Records>) -> Content {
        Content::Listing(Box::pin(stream::unfold(Some((self, records)), |rest| async {
            let (pages, records) = rest?;
            let request = pages.request.clone();
            match request.wait(&records, move |records| Ok(pages.next(records))).await {
                Ok((page, rest)) => Some((Ok(page), rest.map(|pages| (pages, records)))),
                Err(error) => Some((Err(io::Error::other(error)), None)),
            }
        })))
    }

    /// Returns the next page, and the rest unless it was the last.
    fn next(mut self, records: &Records) -> (Bytes, Option<Self>) {
        let mut page = String::new();
        if !self.has_begun {
            self.has_begun = true;
            self.find.namespaces.begin(&mut page);
        }
        while page.len() < PAGE_BYTES {
            let Some(member) = self.members.next() else {
                page.push_str(END);
                return (page.into(), None);
            };
            self.write(records, &member, &mut page);
        }
        (page.into(), Some(self))
    }

    /// Writes the response of a file or folder. One that has been removed in the meantime has none.
    fn write(&self, records: &Records, member: &Member, page: &mut String) {
        let response = match self.properties(records, member) {
            Ok(Some(propstats)) => propstats,
            Ok(None) => return,
            Err(failure) => {
                let status = status_of(&self.request.error(failure));
                format!("<D:status>HTTP/1.1 {status}</D:status>")
            }
        };
        let href = url(member);
        page.push_str(&format!("<D:response><D:href>{href}</D:href>{response}</D:response>"));
    }

    /// Returns the properties of a file or folder as elements `propstat`.
    fn properties(&self, records: &Records, member: &Member) -> Result<Option<String>, Failure> {
        let Member { key, is_folder } = member;
        let facts = if *is_folder { None } else { records.facts(key)? };
        if facts.is_none() && !is_folder {
            return Ok(None);
        }
        let resource = Resource { key, facts };
        let mut dead = if self.needs_dead() {
            let folder = is_folder.then(|| folder_key(key));
            properties::all(records, folder.as_deref().unwrap_or(key))?
        } else {
            Vec::new()
        };
        // Those of a request are looked up in them.
        dead.sort_by(|one, other| one.name.cmp(&other.name));
        let size_bytes = if key.is_empty() { records.size_bytes() } else { 0 };
        let lookup = Lookup { pages: self, resource, size_bytes, dead };
        Ok(Some(lookup.propstats()))
    }

    /// Returns whether properties that clients have set may be wanted.
    fn needs_dead(&self) -> bool {
        let is_live = |name: &Name| &*name.namespace == DAV && LIVE.contains(&&*name.local);
        self.find.selection != Selection::Named || !self.find.names.iter().all(is_live)
    }
}

/// A file or folder, and what is found about it.
struct Lookup<'p> {
    pages: &'p Pages,
    resource: Resource<'p>,
    /// Size of the database, for its root.
    size_bytes: u64,
    /// In the order of their names.
    dead: Vec<Property>,
}

impl Lookup<'_> {
    /// Returns the elements `propstat`, at least one.
    fn propstats(&self) -> String {
        let Find { names, namespaces, .. } = &self.pages.find;
        let (mut found, mut missing) = (self.unnamed(), String::new());
        for name in names.iter().filter(|name| !self.is_of_all(name)) {
            match self.named(name) {
                Some(element) => found.push_str(&element),
                None => namespaces.write(&mut missing, name),
            }
        }
        let mut out = String::new();
        if !found.is_empty() || missing.is_empty() {
            propstat(&mut out, &found, StatusCode::OK);
        }
        if !missing.is_empty() {
            propstat(&mut out, &missing, StatusCode::NOT_FOUND);
        }
        out
    }

    /// Returns the elements of the properties that are given without their names.
    fn unnamed(&self) -> String {
        let mut found = String::new();
        let live = LIVE.iter().copied().filter(|name| self.resource.has(name));
        match self.pages.find.selection {
            Selection::Named => {}
            Selection::All => {
                live.filter(|name| *name != QUOTA_USED)
                    .for_each(|name| found.push_str(&self.live(name)));
                self.dead.iter().for_each(|property| found.push_str(&self.dead(property)));
            }
            Selection::Names => {
                let namespaces = &self.pages.find.namespaces;
                live.for_each(|name| found.push_str(&format!("<D:{name}/>")));
                self.dead.iter().for_each(|property| namespaces.write(&mut found, &property.name));
            }
        }
        found
    }

    /// Returns whether a name of `include` is one of `allprop`.
    fn is_of_all(&self, name: &Name) -> bool {
        self.pages.find.selection == Selection::All
            && (self.find_dead(name).is_some() || self.has_live(name) && &*name.local != QUOTA_USED)
    }

    fn has_live(&self, name: &Name) -> bool {
        &*name.namespace == DAV && self.resource.has(&name.local)
    }

    fn find_dead(&self, name: &Name) -> Option<&Property> {
        let found = self.dead.binary_search_by(|property| property.name.cmp(name));
        found.ok().map(|place| &self.dead[place])
    }

    /// Returns the element of a property, if there is one.
    fn named(&self, name: &Name) -> Option<String> {
        if self.has_live(name) {
            return Some(self.live(&name.local));
        }
        self.find_dead(name).map(|property| self.dead(property))
    }

    /// Returns the element of a property that the server computes.
    fn live(&self, name: &str) -> String {
        match self.resource.value(name, &self.pages.locks, self.size_bytes).as_str() {
            "" => format!("<D:{name}/>"),
            value => format!("<D:{name}>{value}</D:{name}>"),
        }
    }

    /// Returns the element of a property that a client has set.
    fn dead(&self, property: &Property) -> String {
        property.element.as_deref().and_then(fragment::stored).unwrap_or_else(|| {
            let mut empty = String::new();
            self.pages.find.namespaces.write(&mut empty, &property.name);
            empty
        })
    }
}

fn propstat(out: &mut String, properties: &str, status: StatusCode) {
    out.push_str(&format!(
        "<D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 {status}</D:status>\
         </D:propstat>"
    ));
}
