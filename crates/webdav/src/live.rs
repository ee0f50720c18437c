//! Properties that the server computes (RFC 4918, section 15).

use crate::locks::Locks;
use crate::names::escape;
use dav_server::ls::DavLock;
use hyper::header::HeaderValue;
use server::Facts;
use xml::writer::EmitterConfig;

/// Their names. Times are not kept, so there is neither `creationdate` nor `getlastmodified`.
pub(crate) const LIVE: &[&str] = &[
    "resourcetype",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "lockdiscovery",
    "supportedlock",
    QUOTA_USED,
];

/// Storage in use (RFC 4331), which is given only if it is asked for.
pub(crate) const QUOTA_USED: &str = "quota-used-bytes";

/// Media type of the page that shows a folder.
const PAGE_TYPE: &str = "text/html; charset=utf-8";

const SUPPORTED_LOCKS: &str = "<D:lockentry><D:lockscope><D:exclusive/></D:lockscope>\
    <D:locktype><D:write/></D:locktype></D:lockentry><D:lockentry><D:lockscope><D:shared/>\
    </D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// A file, or a folder (without facts).
pub(crate) struct Resource<'r> {
    /// The key, of a folder without its slash.
    pub(crate) key: &'r [u8],
    pub(crate) facts: Option<Facts>,
}

impl Resource<'_> {
    /// Returns whether the resource has a property that is computed.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_of_files = matches!(name, "getcontentlength" | "getetag");
        LIVE.contains(&name) && (self.facts.is_some() || !is_of_files)
    }

    /// Returns the value of a property that it has, as XML. The database has `size_bytes`.
    pub(crate) fn value(&self, name: &str, locks: &Locks, size_bytes: u64) -> String {
        let facts = self.facts.as_ref();
        match name {
            "resourcetype" if facts.is_none() => "<D:collection/>".to_owned(),
            "getcontentlength" => self.bytes().to_string(),
            "getcontenttype" => escape(self.media_type()),
            "getetag" => facts.map(|facts| escape(&facts.tag)).unwrap_or_default(),
            "lockdiscovery" => locks.at(self.key).iter().map(active_lock).collect(),
            "supportedlock" => SUPPORTED_LOCKS.to_owned(),
            QUOTA_USED if self.key.is_empty() => size_bytes.to_string(),
            QUOTA_USED => self.bytes().to_string(),
            _ => String::new(),
        }
    }

    fn bytes(&self) -> u64 {
        self.facts.as_ref().map_or(0, |facts| facts.bytes)
    }

    /// Returns the header `Content-Type` of a GET.
    fn media_type(&self) -> &str {
        let Some(facts) = &self.facts else { return PAGE_TYPE };
        let stored = facts.media_type.as_deref();
        let stored = stored.filter(|stored| HeaderValue::from_str(stored).is_ok());
        stored.or_else(|| media_type_by_name(self.key)).unwrap_or("application/octet-stream")
    }
}

/// Returns the media type of a file by the ending of its name.
pub(crate) fn media_type_by_name(key: &[u8]) -> Option<&'static str> {
    let name = key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    mime_guess::from_ext(std::str::from_utf8(&name[dot + 1..]).ok()?).first_raw()
}

/// Returns a lock as the protocol library shows it in the response to LOCK.
fn active_lock(lock: &DavLock) -> String {
    let scope = if lock.shared { "shared" } else { "exclusive" };
    let depth = if lock.deep { "Infinity" } else { "0" };
    let timeout = match lock.timeout {
        Some(timeout) => format!("Second-{}", timeout.as_secs()),
        None => "Infinite".to_owned(),
    };
    let config = EmitterConfig::new().write_document_declaration(false);
    let mut owner = Vec::new();
    if lock.owner.as_ref().is_some_and(|lock| lock.write_with_config(&mut owner, config).is_err()) {
        owner.clear();
    }
    format!(
        "<D:activelock><D:lockscope><D:{scope}/></D:lockscope><D:locktype><D:write/></D:locktype>\
         <D:depth>{depth}</D:depth><D:timeout>{timeout}</D:timeout><D:locktoken><D:href>{}</D:href>\
         </D:locktoken><D:lockroot><D:href>{}</D:href></D:lockroot>{}</D:activelock>",
        escape(&lock.token),
        lock.path.as_url_string(),
        String::from_utf8_lossy(&owner),
    )
}
