//! Scripting: the script whose functions clients call, and its settings.

use anyhow::{Result, anyhow};
use scripts::{Allowed, Failure, Limits, RedisScripts, Scripts, Source};
use server::{ExtensionSettings, Periodic, Server};
use std::sync::Arc;
use std::time::Duration;

/// A script to serve.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) source: Source,
    pub(crate) limits: Limits,
    /// Parts of Lua that the script may use.
    pub(crate) allowed: Allowed,
    /// Settings of the threads that call its functions.
    pub(crate) settings: ExtensionSettings,
}

impl Script {
    /// Fails if the script cannot be read, or has a syntax error.
    pub(crate) fn check(&self) -> Result<()> {
        self.source.check().map_err(with_advice)
    }

    /// Lets the clients of a server call the functions of the script. Fails if it cannot be read,
    /// or has a syntax error.
    pub(crate) fn install(&self, server: &Server) -> Result<()> {
        let scripts = Scripts::open(self.source.clone(), self.limits.clone(), self.allowed);
        let scripts = scripts.map_err(with_advice)?;
        server.set_evaluator(Arc::new(RedisScripts::beside(&scripts, server.script_records(0, 0))));
        server.set_extension(Arc::new(scripts), self.settings.clone());
        Ok(())
    }
}

/// Lets clients of Redis's protocol send scripts to a server without a script of its own.
pub(crate) fn accept_scripts(server: &Server, limits: Limits) {
    server.set_evaluator(Arc::new(RedisScripts::new(limits, server.script_records(0, 0))));
}

/// Adds to the error of a script what to do.
fn with_advice(failure: Failure) -> anyhow::Error {
    let text = format!("cannot load the script: {failure}");
    let advice = match text.contains("cannot read the script") {
        true => "check the path, and that this user may read it",
        false => "correct it; \"tyrant ext --check FILE\" checks it without a server",
    };
    anyhow!("{text}; {advice}")
}

/// Parses a function that is called periodically: its name, and an interval in seconds.
pub(crate) fn periodic(function: &str, seconds: &str) -> Result<Periodic, String> {
    let seconds = seconds.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(every) if every < Periodic::EVERY_MIN => {
            Err(format!("the interval must be at least {:?}", Periodic::EVERY_MIN))
        }
        Ok(every) => Ok(Periodic { function: function.to_owned(), every }),
        Err(error) => Err(error.to_string()),
    }
}
