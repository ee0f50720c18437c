//! Functions of `misc`, by their names.

/// Declares [`Function`] with the name of each on the wire.
macro_rules! functions {
    ($($(#[$documentation:meta])* $function:ident = $name:expr,)*) => {
        /// Function that a `misc` request calls. The kind of the database determines which
        /// functions a server has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Function<'a> {
            $($(#[$documentation])* $function,)*
            /// A function with another name.
            Unknown(&'a [u8]),
        }

        impl<'a> Function<'a> {
            /// Every function with a name of its own.
            pub const ALL: &'static [Function<'static>] = &[$(Function::$function,)*];

            /// Returns the function with this name.
            pub fn from_name(name: &'a [u8]) -> Self {
                $(
                    if name == $name {
                        return Self::$function;
                    }
                )*
                Self::Unknown(name)
            }

            /// Returns its name on the wire.
            pub fn name(self) -> &'a [u8] {
                match self {
                    $(Self::$function => $name,)*
                    Self::Unknown(name) => name,
                }
            }
        }
    };
}

functions! {
    /// Store a record: key, value; in a table key, then names and values of columns.
    Put = b"put",
    /// Store a record if there is none.
    PutKeep = b"putkeep",
    /// Append to a record; in a table add columns to a row.
    PutCat = b"putcat",
    /// Store a value after those that the key has.
    PutDuplicate = b"putdup",
    /// Store a value before those that the key has.
    PutDuplicateBack = b"putdupback",
    /// Store records: keys and values in turn.
    PutList = b"putlist",
    /// Remove a record.
    Out = b"out",
    /// Remove records: keys.
    OutList = b"outlist",
    /// Get a record.
    Get = b"get",
    /// Get records: keys.
    GetList = b"getlist",
    /// Get a part of a value: key, first byte, length.
    GetPart = b"getpart",
    /// Start the iterator, at a key if there is one.
    IterInit = b"iterinit",
    /// Next record of the iterator.
    IterNext = b"iternext",
    /// Records whose keys match a regular expression: expression, most.
    Regex = b"regex",
    /// Records in the order of their keys: first key, most, key to end before.
    Range = b"range",
    /// Make everything durable.
    Sync = b"sync",
    /// Optimize with tuning.
    Optimize = b"optimize",
    /// Remove all records.
    Vanish = b"vanish",
    /// Text of the last error.
    Error = b"error",
    /// Reclaim dead space.
    Defragment = b"defrag",
    /// Empty the caches.
    ClearCache = b"cacheclear",
    /// Make or remove indices of columns: names and kinds in turn.
    SetIndex = b"setindex",
    /// Answer a query of a table.
    Search = b"search",
    /// Answer several queries of a table together.
    MetaSearch = b"metasearch",
    /// Generate a unique number for a table.
    GenerateUid = b"genuid",
    /// Make a replica a master. Tokyo Tyrant does not know this function and the following ones.
    Promote = b"promote",
    /// Store a record that expires: key, value, seconds.
    PutExpiring = b"putexp",
    /// Set the expiry of a record: key, seconds.
    Touch = b"touch",
    /// Tell when records expire: keys.
    Expiry = b"expiry",
    /// Add to a decimal number: key, addend, number of a new record, its seconds.
    Increment = b"incr",
    /// Verify all checksums: `start`, `state` or `stop`.
    Check = b"check",
    /// Load the functions of the extension again.
    Reload = b"reload",
    /// The last slow requests, as objects of JSON.
    Slow = b"slow",
    /// The metrics of the server and the database as text of Prometheus; or the `databases` of the
    /// process.
    Metrics = b"metrics",
    /// Asks for the state of replication, see [`crate::replication`].
    Replication = b"replication",
    /// Log in: name and password.
    Login = b"login",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_a_name_of_its_own() {
        for function in Function::ALL {
            assert_eq!(Function::from_name(function.name()), *function);
        }
        for name in [&b""[..], b"PUT", b"put ", b"putlis"] {
            assert_eq!(Function::from_name(name), Function::Unknown(name));
            assert_eq!(Function::Unknown(name).name(), name);
        }
    }
}
