//! Kind of a request, for counts, and its keys, for lookups ahead and the slow log.

use super::{Content, Request};
use crate::kind::{Described, RequestKind};

impl<'i> Described<'i> for Request<'i> {
    fn kind(&self) -> RequestKind {
        match self.content {
            Content::Command(command) => command.into(),
            Content::Unknown | Content::Quoted | Content::Nothing | Content::Malformed(_) => {
                RequestKind::NONE
            }
        }
    }

    #[inline]
    fn only_key(&self) -> Option<&'i [u8]> {
        match self.content {
            Content::Command(command) => {
                let shape = command.shape();
                let is_one = shape.first_key == 1
                    && shape.takes(self.arguments.len() + 1)
                    && (shape.last_key == 1 || self.arguments.len() == 1);
                if is_one { self.arguments.iter().next() } else { None }
            }
            Content::Unknown | Content::Quoted | Content::Nothing | Content::Malformed(_) => None,
        }
    }

    fn name(&self) -> Option<&'i [u8]> {
        match self.content {
            Content::Command(command) if command.shape().first_key == 1 => {
                self.arguments.iter().next()
            }
            Content::Command(_)
            | Content::Unknown
            | Content::Quoted
            | Content::Nothing
            | Content::Malformed(_) => None,
        }
    }
}
