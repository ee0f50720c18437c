//! Documents of PROPFIND: the properties that a client wants (RFC 4918, section 14.20).

use crate::document::events;
use crate::names::{DAV, Name, Namespaces};
use std::collections::BTreeSet;
use xml::name::OwnedName;
use xml::reader::XmlEvent;

/// Properties that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// `allprop`: those of the RFC and those that clients have set, with the names of `include`.
    All,
    /// `propname`: the names of all.
    Names,
    /// `prop`: those with the names.
    Named,
}

/// A parsed document.
#[derive(Debug)]
pub(crate) struct Find {
    pub(crate) selection: Selection,
    /// Each name once.
    pub(crate) names: Vec<Name>,
    pub(crate) namespaces: Namespaces,
}

/// An open element.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Root,
    Prop,
    Include,
    Other,
}

impl Find {
    /// Parses a document. Without one, all properties are wanted.
    pub(crate) fn parse(document: &[u8]) -> Option<Self> {
        if document.is_empty() {
            let namespaces = Namespaces::default();
            return Some(Self { selection: Selection::All, names: Vec::new(), namespaces });
        }
        let mut parser = Parser::default();
        for event in events(document) {
            match event.ok()? {
                XmlEvent::StartElement { name, .. } => parser.start(&name)?,
                XmlEvent::EndElement { .. } => drop(parser.open.pop()),
                _ => {}
            }
        }
        let Parser { selection, mut names, included, namespaces, .. } = parser;
        let selection = selection?;
        if selection == Selection::All {
            names = included;
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Some(Self { selection, names, namespaces })
    }
}

#[derive(Default)]
struct Parser {
    open: Vec<Part>,
    selection: Option<Selection>,
    names: Vec<Name>,
    included: Vec<Name>,
    namespaces: Namespaces,
}

impl Parser {
    fn start(&mut self, name: &OwnedName) -> Option<()> {
        let local = dav(name);
        let part = match (self.open.last(), local) {
            (None, Some("propfind")) => Part::Root,
            (None, _) => return None,
            (Some(Part::Root), Some("prop")) => self.select(Selection::Named, Part::Prop)?,
            (Some(Part::Root), Some("allprop")) => self.select(Selection::All, Part::Other)?,
            (Some(Part::Root), Some("propname")) => self.select(Selection::Names, Part::Other)?,
            (Some(Part::Root), Some("include")) => Part::Include,
            (Some(Part::Prop), _) => {
                self.names.push(self.namespaces.add(name)?);
                Part::Other
            }
            (Some(Part::Include), _) => {
                self.included.push(self.namespaces.add(name)?);
                Part::Other
            }
            _ => Part::Other,
        };
        self.open.push(part);
        Some(())
    }

    /// Notes what is wanted, which may be said once.
    fn select(&mut self, selection: Selection, part: Part) -> Option<Part> {
        self.selection.replace(selection).is_none().then_some(part)
    }
}

/// Returns the local name of an element of WebDAV.
pub(crate) fn dav(name: &OwnedName) -> Option<&str> {
    (name.namespace.as_deref() == Some(DAV)).then_some(name.local_name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_wanted_once_in_the_order_of_the_request() {
        let prop = "<p:prop><p:b/><x xmlns='u'/><p:a><p:c/></p:a><p:b/></p:prop>";
        let find = |inner: &str| {
            Find::parse(format!("<p:propfind xmlns:p='DAV:'>{inner}</p:propfind>").as_bytes())
        };
        let found = find(prop).expect("a document");
        let names: Vec<&str> = found.names.iter().map(|name| &*name.local).collect();
        assert_eq!((found.selection, &names[..]), (Selection::Named, &["b", "x", "a"][..]));
        let found = find("<p:include><p:b/></p:include><p:allprop/>").expect("a document");
        assert_eq!((found.selection, found.names.len()), (Selection::All, 1));
        let found = find("<p:propname/><p:include><p:b/></p:include>").expect("a document");
        assert_eq!((found.selection, found.names.len()), (Selection::Names, 0));
        for refused in ["", "text", "<p:allprop/><p:propname/>", "<prop/>", "<p:allprop>"] {
            assert!(find(refused).is_none(), "{refused}");
        }
        let two = "<a:propfind xmlns:a='DAV:'><a:prop/></a:propfind>".repeat(2);
        for refused in [" ", "no XML", "<propfind><prop/></propfind>", &two] {
            assert!(Find::parse(refused.as_bytes()).is_none(), "{refused}");
        }
        assert_eq!(Find::parse(b"").expect("no document").selection, Selection::All);
    }
}
