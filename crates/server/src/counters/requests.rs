//! Kinds of requests: protocol, command, and class, by which requests are counted and timed.

/// Declares the kinds. `None` is no request that is counted.
macro_rules! kinds {
    ($($kind:ident: $protocol:literal $command:literal $class:ident;)*) => {
        /// Kind of a request.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum RequestKind {
            #[default]
            None,
            $($kind,)*
        }

        impl RequestKind {
            /// All kinds.
            pub(crate) const ALL: &[Self] = &[Self::None, $(Self::$kind,)*];

            /// Returns the protocol, as labels and lines name it.
            pub(crate) const fn protocol(self) -> &'static str {
                match self { Self::None => "none", $(Self::$kind => $protocol,)* }
            }

            /// Returns the command, by the protocol's own name.
            pub(crate) const fn command(self) -> &'static str {
                match self { Self::None => "none", $(Self::$kind => $command,)* }
            }

            const fn class(self) -> Class {
                match self { Self::None => Class::Other, $(Self::$kind => Class::$class,)* }
            }
        }
    };
}

kinds! {
    TyrantPut: "tokyo_tyrant" "put" Write;
    TyrantPutKeep: "tokyo_tyrant" "putkeep" Write;
    TyrantPutCat: "tokyo_tyrant" "putcat" Write;
    TyrantPutShift: "tokyo_tyrant" "putshl" Write;
    TyrantPutNoReply: "tokyo_tyrant" "putnr" Write;
    TyrantOut: "tokyo_tyrant" "out" Write;
    TyrantGet: "tokyo_tyrant" "get" Read;
    TyrantGetMany: "tokyo_tyrant" "mget" List;
    TyrantValueSize: "tokyo_tyrant" "vsiz" Read;
    TyrantIterInit: "tokyo_tyrant" "iterinit" List;
    TyrantIterNext: "tokyo_tyrant" "iternext" List;
    TyrantKeysWithPrefix: "tokyo_tyrant" "fwmkeys" List;
    TyrantAddInt: "tokyo_tyrant" "addint" Write;
    TyrantAddDouble: "tokyo_tyrant" "adddouble" Write;
    TyrantExt: "tokyo_tyrant" "ext" Script;
    TyrantMisc: "tokyo_tyrant" "misc" Other;
    TyrantSync: "tokyo_tyrant" "sync" Other;
    TyrantOptimize: "tokyo_tyrant" "optimize" Other;
    TyrantVanish: "tokyo_tyrant" "vanish" Other;
    TyrantCopy: "tokyo_tyrant" "copy" Other;
    TyrantRestore: "tokyo_tyrant" "restore" Other;
    TyrantSetMaster: "tokyo_tyrant" "setmst" Other;
    TyrantCount: "tokyo_tyrant" "rnum" Other;
    TyrantSize: "tokyo_tyrant" "size" Other;
    TyrantStat: "tokyo_tyrant" "stat" Other;
    TyrantReplicate: "tokyo_tyrant" "repl" Other;
    TextSet: "memcached" "set" Write;
    TextAdd: "memcached" "add" Write;
    TextReplace: "memcached" "replace" Write;
    TextAppend: "memcached" "append" Write;
    TextPrepend: "memcached" "prepend" Write;
    TextCas: "memcached" "cas" Write;
    TextGet: "memcached" "get" Read;
    TextGetAndTouch: "memcached" "gat" Write;
    TextDelete: "memcached" "delete" Write;
    TextIncrement: "memcached" "incr" Write;
    TextDecrement: "memcached" "decr" Write;
    TextTouch: "memcached" "touch" Write;
    TextMetaGet: "memcached" "mg" Read;
    TextMetaSet: "memcached" "ms" Write;
    TextMetaDelete: "memcached" "md" Write;
    TextMetaArithmetic: "memcached" "ma" Write;
    TextMetaDebug: "memcached" "me" Other;
    TextMetaNoOp: "memcached" "mn" Other;
    TextFlushAll: "memcached" "flush_all" Other;
    TextVerbosity: "memcached" "verbosity" Other;
    TextStats: "memcached" "stats" Other;
    TextCacheMemoryLimit: "memcached" "cache_memlimit" Other;
    TextCrawler: "memcached" "lru_crawler" Other;
    TextShutdown: "memcached" "shutdown" Other;
    TextVersion: "memcached" "version" Other;
    TextQuit: "memcached" "quit" Other;
    BinaryGet: "memcached_binary" "get" Read;
    BinaryGetAndTouch: "memcached_binary" "gat" Write;
    BinaryTouch: "memcached_binary" "touch" Write;
    BinarySet: "memcached_binary" "set" Write;
    BinaryAdd: "memcached_binary" "add" Write;
    BinaryReplace: "memcached_binary" "replace" Write;
    BinaryAppend: "memcached_binary" "append" Write;
    BinaryPrepend: "memcached_binary" "prepend" Write;
    BinaryDelete: "memcached_binary" "delete" Write;
    BinaryIncrement: "memcached_binary" "incr" Write;
    BinaryDecrement: "memcached_binary" "decr" Write;
    BinaryFlush: "memcached_binary" "flush" Other;
    BinaryNoOp: "memcached_binary" "noop" Other;
    BinaryVersion: "memcached_binary" "version" Other;
    BinaryStat: "memcached_binary" "stat" Other;
    BinaryVerbosity: "memcached_binary" "verbosity" Other;
    BinaryQuit: "memcached_binary" "quit" Other;
    BinarySaslMechanisms: "memcached_binary" "sasl_list_mechs" Other;
    BinarySaslAuthenticate: "memcached_binary" "sasl_auth" Other;
    BinarySaslStep: "memcached_binary" "sasl_step" Other;
    HttpGet: "http" "get" Read;
    HttpHead: "http" "head" Read;
    HttpPut: "http" "put" Write;
    HttpPost: "http" "post" Other;
    HttpDelete: "http" "delete" Write;
    HttpOptions: "http" "options" Other;
    HttpOther: "http" "other" Other;
    WebDavGet: "webdav" "get" Read;
    WebDavHead: "webdav" "head" Read;
    WebDavPut: "webdav" "put" Write;
    WebDavDelete: "webdav" "delete" Write;
    WebDavMakeFolder: "webdav" "mkcol" Write;
    WebDavCopy: "webdav" "copy" Write;
    WebDavMove: "webdav" "move" Write;
    WebDavChangeProperties: "webdav" "proppatch" Write;
    WebDavFindProperties: "webdav" "propfind" List;
    WebDavLock: "webdav" "lock" Other;
    WebDavUnlock: "webdav" "unlock" Other;
    WebDavOptions: "webdav" "options" Other;
    WebDavOther: "webdav" "other" Other;
}

/// Class of commands that have one histogram for each protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Class {
    /// Reads records by their keys.
    Read,
    /// Changes a record.
    Write,
    /// Reads several records or keys.
    List,
    /// Calls a function.
    Script,
    Other,
}

const CLASSES: [(Class, &str); 5] = [
    (Class::Read, "read"),
    (Class::Write, "write"),
    (Class::List, "list"),
    (Class::Script, "script"),
    (Class::Other, "other"),
];

const PROTOCOLS: [&str; 5] = ["tokyo_tyrant", "memcached", "memcached_binary", "http", "webdav"];

/// Number of kinds.
pub(super) const KINDS: usize = RequestKind::ALL.len();

/// Number of histograms: one for each protocol and class.
pub(crate) const SLOTS: usize = PROTOCOLS.len() * CLASSES.len();

/// Histogram of each kind.
const SLOT_OF: [u8; KINDS] = {
    let mut slots = [0; KINDS];
    let mut kind = 1;
    while kind < KINDS {
        let protocol = RequestKind::ALL[kind].protocol().as_bytes();
        let mut index = 0;
        // The names differ in their lengths.
        while PROTOCOLS[index].len() != protocol.len() {
            index += 1;
        }
        slots[kind] = (index * CLASSES.len()) as u8 + RequestKind::ALL[kind].class() as u8;
        kind += 1;
    }
    slots
};

impl RequestKind {
    /// Returns the kind of a request of WebDAV.
    pub(crate) fn of_webdav(method: &str) -> Self {
        match method {
            "GET" => Self::WebDavGet,
            "HEAD" => Self::WebDavHead,
            "PUT" | "PATCH" => Self::WebDavPut,
            "DELETE" => Self::WebDavDelete,
            "MKCOL" => Self::WebDavMakeFolder,
            "COPY" => Self::WebDavCopy,
            "MOVE" => Self::WebDavMove,
            "PROPPATCH" => Self::WebDavChangeProperties,
            "PROPFIND" => Self::WebDavFindProperties,
            "LOCK" => Self::WebDavLock,
            "UNLOCK" => Self::WebDavUnlock,
            "OPTIONS" => Self::WebDavOptions,
            _ => Self::WebDavOther,
        }
    }

    /// Returns the number of the histogram.
    #[inline]
    pub(crate) fn slot(self) -> usize {
        SLOT_OF[self as usize] as usize
    }
}

/// Returns the protocol and the class of a histogram.
pub(crate) fn labels_of(slot: usize) -> (&'static str, &'static str) {
    (PROTOCOLS[slot / CLASSES.len()], CLASSES[slot % CLASSES.len()].1)
}

/// Requests of one round that are answered together.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    counts: [u32; SLOTS],
    /// A bit for each count that is not 0.
    used: u32,
}

impl RequestBatch {
    /// Adds a request.
    #[inline]
    pub(crate) fn add(&mut self, kind: RequestKind) {
        let slot = kind.slot();
        self.counts[slot] += 1;
        self.used |= 1 << slot;
    }

    /// Returns the number of requests.
    pub(crate) fn requests(&self) -> u32 {
        self.counts.iter().sum()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Calls `visit` with the number of each histogram, and how many requests it has to count.
    #[inline]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize, u32)) {
        let mut used = self.used;
        while used != 0 {
            let slot = used.trailing_zeros() as usize;
            visit(slot, self.counts[slot]);
            used &= used - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_histogram_of_its_protocol_and_class() {
        for kind in &RequestKind::ALL[1..] {
            let (protocol, class) = labels_of(kind.slot());
            assert_eq!(protocol, kind.protocol(), "{kind:?}");
            let expected = CLASSES.iter().find(|(class, _)| *class == kind.class());
            assert_eq!(expected.map(|(_, name)| *name), Some(class), "{kind:?}");
        }
        let order = CLASSES.iter().enumerate();
        assert!(order.clone().all(|(index, (class, _))| *class as usize == index));
    }

    #[test]
    fn a_batch_counts_the_requests_of_each_histogram() {
        let mut batch = RequestBatch::default();
        assert!(batch.is_empty());
        for kind in [RequestKind::TextGet, RequestKind::HttpOther, RequestKind::TextMetaGet] {
            batch.add(kind);
        }
        let mut seen = Vec::new();
        batch.for_each(|slot, count| seen.push((labels_of(slot), count)));
        assert_eq!(seen, [(("memcached", "read"), 2), (("http", "other"), 1)]);
        assert_eq!(batch.requests(), 3);
    }
}
