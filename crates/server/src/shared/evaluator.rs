//! Evaluator: the interpreter of scripts that clients of Redis's protocol send.
//!
//! The interpreter is in a crate of its own. The server calls it on its worker pool, and a script
//! calls commands of the server through a [`ScriptHost`].

use std::sync::Arc;
use std::time::Instant;
use wire::redis::reply::Version;

/// A script that a client has sent.
#[derive(Debug)]
pub struct SentScript {
    /// SHA-1 of the source, in hexadecimal.
    pub digest: [u8; 40],
    /// Source, with its shebang.
    pub source: Box<[u8]>,
    /// Flags of the shebang.
    pub flags: ScriptFlags,
    /// Length of the shebang, after which the code begins.
    pub code_from: usize,
}

/// Flags of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags {
    /// Whether the script has a shebang, so that it declares its flags.
    pub are_declared: bool,
    /// Whether the script only reads.
    pub no_writes: bool,
}

/// An execution of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRun<'a> {
    /// The script.
    pub script: &'a SentScript,
    /// Keys that the client names.
    pub keys: &'a [&'a [u8]],
    /// The other arguments.
    pub arguments: &'a [&'a [u8]],
    /// Version of the protocol of the client, in which the reply is.
    pub version: Version,
    /// Time from which on the limit of time counts.
    pub began: Instant,
}

/// Level of a line that a script writes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptLogLevel {
    /// For the search for errors.
    Debug,
    /// Less important.
    Verbose,
    /// Usual.
    Notice,
    /// For an operator.
    Warning,
}

/// A script has to end: what ends it is known to the server.
#[derive(Clone, Copy, Debug)]
pub struct ScriptEnds;

/// The server as a script reaches it.
pub trait ScriptHost {
    /// Executes a command, which is a request as an array of strings. Appends its reply in this
    /// version of the protocol; an error is a reply as well.
    fn execute(
        &mut self,
        request: &[u8],
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), ScriptEnds>;

    /// Takes a line for the log, after the script has ended.
    fn log(&mut self, level: ScriptLogLevel, line: String);
}

/// Interpreter of scripts. An error is the text for the client, with its code.
pub trait Evaluator: Send + Sync {
    /// Compiles a script, unless it is known, and remembers it by its digest, within limits.
    fn add(&self, source: &[u8]) -> Result<Arc<SentScript>, String>;

    /// Returns the script of a digest, which counts as used.
    fn find(&self, digest: &[u8]) -> Option<Arc<SentScript>>;

    /// Returns whether the script of a digest is known.
    fn has(&self, digest: &[u8]) -> bool;

    /// Forgets all scripts.
    fn clear(&self);

    /// Ends the scripts that run. Returns whether there were any.
    fn kill(&self) -> bool;

    /// Executes a script. Appends its reply, which may be an error of the script: its changes count
    /// all the same. Fails if a limit ends the script: then its changes must not count.
    fn run(
        &self,
        run: &ScriptRun<'_>,
        host: &mut dyn ScriptHost,
        output: &mut Vec<u8>,
    ) -> Result<(), String>;
}
