//! Response bodies: those of the library and listings. Records when a body has been sent.

use crate::work::{Counted, Responding};
use bytes::Bytes;
use dav_server::body::{Body, BodyType};
use futures_util::Stream;
use hyper::body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body.
pub(crate) enum Content {
    Library(Pin<Box<Body>>),
    Listing(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>),
}

impl From<Body> for Content {
    fn from(body: Body) -> Self {
        Self::Library(Box::pin(body))
    }
}

impl Content {
    /// Returns whether it is known that there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        let Self::Library(body) = self else { return false };
        match &body.inner {
            BodyType::Empty => true,
            BodyType::Bytes(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            BodyType::AsyncStream(_) => false,
        }
    }
}

/// A body, and the guards dropped with it.
pub(crate) struct TrackedBody {
    body: Content,
    _responding: Responding,
    _counted: Option<Counted>,
}

impl TrackedBody {
    pub(crate) fn new(body: Content, responding: Responding, counted: Option<Counted>) -> Self {
        Self { body, _responding: responding, _counted: counted }
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.body {
            Content::Library(body) => body.as_mut().poll_frame(context),
            Content::Listing(pages) => {
                pages.as_mut().poll_next(context).map(|page| page.map(|page| page.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Content::Library(body) => hyper::body::Body::is_end_stream(&**body),
            Content::Listing(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Content::Library(body) => hyper::body::Body::size_hint(&**body),
            Content::Listing(_) => SizeHint::default(),
        }
    }
}
