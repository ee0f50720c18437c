//! Commands on the whole database and on the server.

use super::Run;
use anyhow::Result;
use client::Client;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

#[derive(Debug, clap::Args)]
pub(super) struct Stat {}

impl Run for Stat {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        Ok(output.write_all(&client.stat()?)?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Count {}

impl Run for Count {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        Ok(writeln!(output, "{}", client.count()?)?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Size {}

impl Run for Size {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        Ok(writeln!(output, "{}", client.size()?)?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Vanish {}

impl Run for Vanish {
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        Ok(client.vanish()?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Sync {}

impl Run for Sync {
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        Ok(client.sync()?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Optimize {
    /// Change this tuning: key=value#key=value
    #[arg(value_name = "PARAMETERS", default_value = "")]
    parameters: String,
}

impl Run for Optimize {
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        Ok(client.optimize(self.parameters.as_bytes())?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Copy {
    /// Path of the copy; nothing may exist there
    #[arg(value_name = "PATH")]
    path: OsString,
}

impl Run for Copy {
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        Ok(client.copy(self.path.as_bytes())?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Misc {
    /// Name of the function
    #[arg(value_name = "NAME")]
    name: String,
    /// Arguments of the function
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Run for Misc {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        let arguments: Vec<_> = self.arguments.iter().map(|argument| argument.as_bytes()).collect();
        for element in client.misc(self.name.as_bytes(), 0, &arguments)? {
            output.write_all(&element)?;
            output.write_all(b"\n")?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Ext {
    /// Name of the function
    #[arg(value_name = "NAME")]
    name: String,
    /// Key passed to the function
    #[arg(value_name = "KEY", default_value = "")]
    key: OsString,
    /// Value passed to the function
    #[arg(value_name = "VALUE", default_value = "")]
    value: OsString,
}

impl Run for Ext {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        let (key, value) = (self.key.as_bytes(), self.value.as_bytes());
        output.write_all(&client.ext(self.name.as_bytes(), 0, key, value)?)?;
        output.write_all(b"\n")?;
        Ok(())
    }
}
