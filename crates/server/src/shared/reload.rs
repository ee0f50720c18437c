//! Reload: reads files and settings of the process again while its servers run.

/// Parts of a process that are read again.
pub trait Reload: Send + Sync {
    /// Reads everything again. Server `number` was asked for it, and loads the functions of its
    /// extension itself unless this fails. Returns what was read, or why a part of it was not.
    fn reload(&self, number: usize) -> Result<String, String>;

    /// Returns the databases of the process, each as a line: its name, then after TABs the
    /// addresses and Unix sockets of its server. One that requires TLS ends with `+tls`.
    fn databases(&self) -> Vec<String>;
}
