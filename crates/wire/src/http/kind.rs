//! Kind of a request, for counts.

use super::Method;
use crate::kind::{RequestKind, kinds};

kinds! {
    /// Kinds of requests of HTTP.
    Kind 4 "http" {
        Get "get" Read;
        Head "head" Read;
        Put "put" Write;
        Post "post" Other Change;
        Delete "delete" Write;
        Options "options" Other None;
        Other "other" Other None;
    }
}

kinds! {
    /// Kinds of requests of WebDAV.
    WebDavKind 5 "webdav" {
        Get "get" Read;
        Head "head" Read;
        Put "put" Write;
        Delete "delete" Write;
        MakeFolder "mkcol" Write;
        Copy "copy" Write;
        Move "move" Write;
        ChangeProperties "proppatch" Write;
        FindProperties "propfind" List;
        Lock "lock" Other Change;
        Unlock "unlock" Other Server;
        Options "options" Other None;
        Other "other" Other None;
    }
}

impl Method {
    /// Returns the kind of a request of HTTP with this method.
    pub fn kind(self) -> RequestKind {
        let kind = match self {
            Self::Get => Kind::Get,
            Self::Head => Kind::Head,
            Self::Put => Kind::Put,
            Self::Post => Kind::Post,
            Self::Delete => Kind::Delete,
            Self::Options => Kind::Options,
            // Clients choose these names.
            Self::Dav | Self::Other => Kind::Other,
        };
        kind.into()
    }
}

impl WebDavKind {
    /// Returns the kind of a request with the method of this name.
    pub fn of(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" | "PATCH" => Self::Put,
            "DELETE" => Self::Delete,
            "MKCOL" => Self::MakeFolder,
            "COPY" => Self::Copy,
            "MOVE" => Self::Move,
            "PROPPATCH" => Self::ChangeProperties,
            "PROPFIND" => Self::FindProperties,
            "LOCK" => Self::Lock,
            "UNLOCK" => Self::Unlock,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }
}
