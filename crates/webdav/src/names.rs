//! Names of properties, and the markup of a multistatus around them.
//!
//! A document of 64 KiB may name thousands of properties in one long namespace. So each namespace
//! of a request is stored once, and declared once in the response.

use std::collections::BTreeMap;
use std::sync::Arc;
use xml::name::OwnedName;
use xml::namespace::{NS_XML_URI, NS_XMLNS_URI};

/// Namespace of WebDAV.
pub(crate) const DAV: &str = "DAV:";

/// Name of a property. The namespace may be empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) namespace: Arc<str>,
    pub(crate) local: Box<str>,
}

/// Namespaces of a request, which its response declares as `n0`, `n1` and so on.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(BTreeMap<Arc<str>, usize>);

impl Namespaces {
    /// Returns the name of a property. Returns `None` for a namespace that XML reserves.
    pub(crate) fn add(&mut self, name: &OwnedName) -> Option<Name> {
        let namespace = name.namespace.as_deref().unwrap_or_default();
        if matches!(namespace, NS_XML_URI | NS_XMLNS_URI) {
            return None;
        }
        let known = self.0.get_key_value(namespace).map(|(known, _)| Arc::clone(known));
        let namespace = known.unwrap_or_else(|| {
            let added: Arc<str> = namespace.into();
            self.0.insert(Arc::clone(&added), self.0.len());
            added
        });
        Some(Name { namespace, local: name.local_name.as_str().into() })
    }

    /// Writes the beginning of a multistatus.
    pub(crate) fn begin(&self, out: &mut String) {
        out.push_str("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\"");
        for (namespace, number) in &self.0 {
            if !matches!(&**namespace, "" | DAV) {
                declare(out, &format!("n{number}"), namespace);
            }
        }
        out.push('>');
    }

    /// Writes a property without its value.
    pub(crate) fn write(&self, out: &mut String, name: &Name) {
        match (&*name.namespace, self.0.get(&name.namespace)) {
            ("", _) => out.push_str(&format!("<{}", name.local)),
            (DAV, _) => out.push_str(&format!("<D:{}", name.local)),
            (_, Some(number)) => out.push_str(&format!("<n{number}:{}", name.local)),
            (namespace, None) => {
                out.push_str(&format!("<n:{}", name.local));
                declare(out, "n", namespace);
            }
        }
        out.push_str("/>");
    }
}

/// The end of a multistatus.
pub(crate) const END: &str = "</D:multistatus>\n";

fn declare(out: &mut String, prefix: &str, namespace: &str) {
    let namespace = xml::escape::escape_str_attribute(namespace);
    out.push_str(&format!(" xmlns:{prefix}=\"{namespace}\""));
}

/// Returns text as it is within an element. A carriage return would be read as a line feed.
pub(crate) fn escape(text: &str) -> String {
    xml::escape::escape_str_pcdata(text).replace('\r', "&#xD;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_declared_once_and_escaped() {
        let mut namespaces = Namespaces::default();
        let name = |namespace: Option<&str>| OwnedName {
            local_name: "x".into(),
            namespace: namespace.map(str::to_owned),
            prefix: None,
        };
        let names = [None, Some("DAV:"), Some("a&\"<"), Some("a&\"<")];
        let names = names.map(|namespace| namespaces.add(&name(namespace)).expect("a name"));
        assert!(namespaces.add(&name(Some(NS_XML_URI))).is_none());
        let mut out = String::new();
        namespaces.begin(&mut out);
        assert!(out.ends_with(" xmlns:n2=\"a&amp;&quot;&lt;\">"), "{out}");
        out.clear();
        names.iter().for_each(|name| namespaces.write(&mut out, name));
        namespaces.write(&mut out, &Name { namespace: "b".into(), local: "y".into() });
        assert_eq!(out, "<x/><D:x/><n2:x/><n2:x/><n:y xmlns:n=\"b\"/>");
        assert_eq!(escape("<a>&\r\n"), "&lt;a&gt;&amp;&#xD;\n");
    }
}
