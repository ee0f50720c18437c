//! Documents of PROPPATCH and their responses (RFC 4918, section 9.2).
//!
//! All changes of a document are made, or none.

use crate::document::events;
use crate::find::dav;
use crate::fragment::Fragment;
use crate::names::{DAV, END, Name, Namespaces};
use hyper::StatusCode;
use std::collections::BTreeMap;
use xml::attribute::OwnedAttribute;
use xml::name::OwnedName;
use xml::namespace::{NS_XML_PREFIX, NS_XML_URI};
use xml::reader::XmlEvent;

/// Most bytes of the stored properties of one file.
pub const PROPERTIES_BYTES_MAX: usize = 256 << 10;

/// A change of a property.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) name: Name,
    /// The new value, `None` to remove the property.
    pub(crate) value: Option<String>,
    refusal: Option<StatusCode>,
}

/// A parsed document: changes in their order.
#[derive(Debug, Default)]
pub(crate) struct Update {
    pub(crate) changes: Vec<Change>,
    namespaces: Namespaces,
}

/// An open element.
#[derive(Clone, Copy)]
enum Part {
    Root,
    Set,
    Remove,
    /// `prop`, and whether its properties are set.
    Prop(bool),
    Other,
}

impl Update {
    /// Parses a document. Fails with the status of the refusal.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, StatusCode> {
        let mut parser = Parser::default();
        for event in events(document) {
            let event = event.map_err(|_| StatusCode::BAD_REQUEST)?;
            parser.take(event).ok_or(StatusCode::BAD_REQUEST)?;
            if parser.bytes > PROPERTIES_BYTES_MAX {
                return Err(StatusCode::INSUFFICIENT_STORAGE);
            }
        }
        Ok(parser.update)
    }

    /// Returns whether no change may be made, because one is refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.changes.iter().any(|change| change.refusal.is_some())
    }

    /// Returns the multistatus. `made` is the status of the changes that are not refused.
    pub(crate) fn multistatus(&self, href: &str, made: StatusCode) -> String {
        let mut statuses = BTreeMap::new();
        for change in &self.changes {
            let status = statuses.entry(&change.name).or_insert(made);
            *status = change.refusal.unwrap_or(*status);
        }
        let mut groups: BTreeMap<StatusCode, Vec<&Name>> = BTreeMap::new();
        if statuses.is_empty() {
            groups.insert(made, Vec::new());
        }
        for (name, status) in statuses {
            groups.entry(status).or_default().push(name);
        }
        let mut out = String::new();
        self.namespaces.begin(&mut out);
        out.push_str(&format!("<D:response><D:href>{href}</D:href>"));
        for (status, names) in groups {
            out.push_str("<D:propstat><D:prop>");
            names.iter().for_each(|name| self.namespaces.write(&mut out, name));
            out.push_str(&format!("</D:prop><D:status>HTTP/1.1 {status}</D:status>"));
            if status == StatusCode::FORBIDDEN {
                out.push_str("<D:error><D:cannot-modify-protected-property/></D:error>");
            }
            out.push_str("</D:propstat>");
        }
        out.push_str("</D:response>");
        out.push_str(END);
        out
    }
}

#[derive(Default)]
struct Parser {
    /// Open elements, with the language in each.
    open: Vec<(Part, Option<String>)>,
    /// The value that is being read.
    value: Option<(Name, Fragment)>,
    update: Update,
    /// Length of all values. An element has all namespaces around it, so these are longer than the
    /// document.
    bytes: usize,
}

impl Parser {
    fn take(&mut self, mut event: XmlEvent) -> Option<()> {
        if self.value.is_some() {
            return self.read(&event);
        }
        match &mut event {
            XmlEvent::StartElement { name, attributes, .. } => {
                let outer = self.open.last();
                let language = attributes.iter().find(|attribute| is_language(&attribute.name));
                let language = match language {
                    Some(attribute) => Some(attribute.value.clone()),
                    None => outer.and_then(|(_, language)| language.clone()),
                };
                let part = match (outer.map(|(part, _)| *part), dav(name)) {
                    (None, Some("propertyupdate")) => Part::Root,
                    (None, _) => return None,
                    (Some(Part::Root), Some("set")) => Part::Set,
                    (Some(Part::Root), Some("remove")) => Part::Remove,
                    (Some(Part::Set), Some("prop")) => Part::Prop(true),
                    (Some(Part::Remove), Some("prop")) => Part::Prop(false),
                    (Some(Part::Prop(true)), _) => {
                        let name = self.update.namespaces.add(name)?;
                        if !attributes.iter().any(|attribute| is_language(&attribute.name)) {
                            attributes.extend(language.map(with_language));
                        }
                        self.value = Some((name, Fragment::default()));
                        return self.read(&event);
                    }
                    (Some(Part::Prop(false)), _) => {
                        let name = self.update.namespaces.add(name)?;
                        let refusal = (!is_settable(&name)).then_some(StatusCode::FORBIDDEN);
                        self.update.changes.push(Change { name, value: None, refusal });
                        Part::Other
                    }
                    _ => Part::Other,
                };
                self.open.push((part, language));
            }
            XmlEvent::EndElement { .. } => drop(self.open.pop()),
            _ => {}
        }
        Some(())
    }

    /// Reads a part of a value.
    fn read(&mut self, event: &XmlEvent) -> Option<()> {
        let (name, mut value) = self.value.take()?;
        if !value.copy(event)? {
            self.value = Some((name, value));
            return Some(());
        }
        let refusal = if !is_settable(&name) {
            Some(StatusCode::FORBIDDEN)
        } else if &*name.namespace == DAV && value.has_children() {
            // `displayname` and `getcontentlanguage` are text.
            Some(StatusCode::CONFLICT)
        } else {
            None
        };
        let value = value.into_text();
        self.bytes += value.len();
        self.update.changes.push(Change { name, value: Some(value), refusal });
        Some(())
    }
}

/// Returns whether clients may change a property. The server computes the others of WebDAV.
fn is_settable(name: &Name) -> bool {
    &*name.namespace != DAV || matches!(&*name.local, "displayname" | "getcontentlanguage")
}

fn is_language(name: &OwnedName) -> bool {
    name.local_name == "lang" && name.namespace.as_deref() == Some(NS_XML_URI)
}

/// Returns the attribute for a language that elements around a property have.
fn with_language(language: String) -> OwnedAttribute {
    let name = OwnedName::qualified("lang", NS_XML_URI, Some(NS_XML_PREFIX));
    OwnedAttribute { name, value: language }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(inner: &str) -> Result<Update, StatusCode> {
        let root = "<d:propertyupdate xmlns:d='DAV:' xmlns:x='u'>";
        Update::parse(format!("{root}{inner}</d:propertyupdate>").as_bytes())
    }

    #[test]
    fn changes_are_in_their_order_and_stand_alone() {
        let update = update(
            "<d:set xml:lang='de'><d:prop><x:a>1</x:a><x:b xml:lang='fr'/></d:prop></d:set>\
             <d:remove><d:prop><x:a>ignored</x:a></d:prop></d:remove><x:set><d:prop><e/></d:prop>\
             </x:set>",
        );
        let update = update.expect("an update");
        let changes: Vec<_> = update.changes.iter().map(|change| change.value.as_deref()).collect();
        let spaces = "xmlns:d=\"DAV:\" xmlns:x=\"u\"";
        let one = format!("<x:a {spaces} xml:lang=\"de\">1</x:a>");
        let two = format!("<x:b {spaces} xml:lang=\"fr\"/>");
        assert_eq!(changes, [Some(&one[..]), Some(&two[..]), None]);
        assert!(!update.is_refused());
    }

    #[test]
    fn a_refused_change_fails_the_others() {
        let set = "<d:set><d:prop><x:a/><d:getetag/><d:displayname><x:a/></d:displayname></d:prop>\
                   </d:set>";
        let update = update(set).expect("an update");
        assert!(update.is_refused());
        let text = update.multistatus("/a", StatusCode::FAILED_DEPENDENCY);
        for (name, status) in
            [("D:getetag", "403 Forbidden"), ("D:displayname", "409 Conflict"), ("n0:a", "424 ")]
        {
            let text = text.split(&format!("<{name}/></D:prop><D:status>HTTP/1.1 ")).nth(1);
            assert!(text.is_some_and(|text| text.starts_with(status)), "{name}");
        }
    }

    #[test]
    fn values_that_namespaces_make_long_are_refused() {
        let long = "u".repeat(32 << 10);
        let set = format!("<d:set xmlns:y='{long}'><d:prop>{}</d:prop></d:set>", "<a/>".repeat(10));
        assert_eq!(update(&set).map(drop), Err(StatusCode::INSUFFICIENT_STORAGE));
        for refused in ["<", "<d:set>", "</d:propertyupdate><a/>"] {
            assert_eq!(update(refused).map(drop), Err(StatusCode::BAD_REQUEST), "{refused}");
        }
        assert_eq!(Update::parse(b"").map(drop), Err(StatusCode::BAD_REQUEST));
    }
}
