//! Values of properties that clients have set: elements that stand alone, with all namespaces.

use crate::document::events;
use crate::names::escape;
use xml::attribute::OwnedAttribute;
use xml::escape::escape_str_attribute;
use xml::name::OwnedName;
use xml::namespace::{NS_NO_PREFIX, NS_XML_PREFIX, NS_XMLNS_PREFIX, Namespace};
use xml::reader::XmlEvent;

/// An element that is being copied from a document. Comments and instructions are left out.
///
/// The writer of the crate `xml` loses `xmlns=""`, so this is one of its own.
#[derive(Default)]
pub(crate) struct Fragment {
    text: String,
    /// Names of open elements, and the namespaces in them.
    open: Vec<(String, Namespace)>,
    /// The last tag has no end yet.
    is_in_tag: bool,
    has_children: bool,
}

impl Fragment {
    /// Copies an event. Returns `None` if there is no element for it, and otherwise whether the
    /// element is complete.
    pub(crate) fn copy(&mut self, event: &XmlEvent) -> Option<bool> {
        match event {
            XmlEvent::StartElement { name, attributes, namespace } => {
                self.start(name, attributes, namespace);
            }
            XmlEvent::EndElement { .. } => {
                let (name, _) = self.open.pop()?;
                if std::mem::take(&mut self.is_in_tag) {
                    self.text.push_str("/>");
                } else {
                    self.text.extend(["</", &name, ">"]);
                }
            }
            XmlEvent::Characters(text) | XmlEvent::CData(text) | XmlEvent::Whitespace(text) => {
                self.open.last()?;
                self.end_tag();
                self.text.push_str(&escape(text));
            }
            _ => {}
        }
        Some(self.open.is_empty())
    }

    fn start(&mut self, name: &OwnedName, attributes: &[OwnedAttribute], namespace: &Namespace) {
        self.end_tag();
        self.has_children |= !self.open.is_empty();
        let name = name.borrow().to_repr();
        self.text.extend(["<", &name]);
        let outer = self.open.last().map(|(_, namespace)| namespace);
        for (prefix, uri) in namespace {
            let known = outer.and_then(|outer| outer.get(prefix)).unwrap_or_default();
            match prefix {
                NS_XML_PREFIX | NS_XMLNS_PREFIX => {}
                _ if uri == known => {}
                NS_NO_PREFIX => write_attribute(&mut self.text, "xmlns", uri),
                _ => write_attribute(&mut self.text, &format!("xmlns:{prefix}"), uri),
            }
        }
        for OwnedAttribute { name, value } in attributes {
            write_attribute(&mut self.text, &name.borrow().to_repr(), value);
        }
        self.is_in_tag = true;
        self.open.push((name, namespace.clone()));
    }

    fn end_tag(&mut self) {
        if std::mem::take(&mut self.is_in_tag) {
            self.text.push('>');
        }
    }

    /// Returns whether there are elements within the element.
    pub(crate) fn has_children(&self) -> bool {
        self.has_children
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// Writes an attribute. A tab would be read as a space.
fn write_attribute(text: &mut String, name: &str, value: &str) {
    let value = escape_str_attribute(value).replace('\t', "&#x9;");
    text.extend([" ", name, "=\"", &value, "\""]);
}

/// Returns a stored element as it is in a multistatus, or `None` if it is damaged.
pub(crate) fn stored(text: &str) -> Option<String> {
    let mut fragment = Fragment::default();
    for event in events(text.as_bytes()) {
        match event.ok()? {
            XmlEvent::StartDocument { .. } | XmlEvent::EndDocument => {}
            XmlEvent::Doctype { .. } => return None,
            // White space around the element.
            XmlEvent::Whitespace(_) if fragment.open.is_empty() => {}
            event => {
                fragment.copy(&event)?;
            }
        }
    }
    Some(fragment.into_text()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_keeps_its_namespaces_attributes_and_text() {
        for text in [
            "<a/>",
            "<x:a xmlns:x=\"u\" x:b=\"1\" xml:lang=\"de\">t &lt;&amp;&#xD;\n <c/> </x:a>",
            "<a xmlns=\"u\"><b xmlns=\"\"/><b/></a>",
            "<D:a xmlns:D=\"other\"><D:b xmlns:D=\"DAV:\"/></D:a>",
        ] {
            let copied = stored(text).expect(text);
            assert_eq!(copied, text);
            let head = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{text}\n");
            assert_eq!(stored(&head), Some(copied));
        }
        for text in ["", "<a>", "text", "<a/><b/>", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"] {
            assert_eq!(stored(text), None, "{text}");
        }
    }
}
