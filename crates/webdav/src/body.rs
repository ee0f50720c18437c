//! Response bodies: records when a body has been sent.

use crate::work::{Counted, Responding};
use bytes::Bytes;
use dav_server::body::Body;
use hyper::body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body, and the guards dropped with it.
pub(crate) struct TrackedBody {
    body: Pin<Box<Body>>,
    _responding: Responding,
    _counted: Option<Counted>,
}

impl TrackedBody {
    pub(crate) fn new(body: Body, responding: Responding, counted: Option<Counted>) -> Self {
        Self { body: Box::pin(body), _responding: responding, _counted: counted }
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.body.as_mut().poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
