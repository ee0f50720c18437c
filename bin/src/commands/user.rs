//! `tyrant user`: manages the file of users.
//!
//! Passwords come from the terminal or the standard input. The file is replaced as a whole, and a
//! running server reads it with `tyrant reload`.

use crate::errors::wrong_command_line;
use crate::output::{AsJson, object, write_json};
use crate::password;
use crate::transfer::whole_file::Output;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use server::{
    PasswordCost, USERS_MAX, UserEntry, UserFile, UserFileLock, UsersError, hash_password,
    hash_token, new_token,
};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// Manage the file of users.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Add a user who may read and write
  tyrant user add ann --users /var/lib/tyrant/users
  # Make the server read the file again
  tyrant reload")]
pub(super) struct User {
    /// Use this file, as the setting users of the server
    #[arg(long, global = true, value_name = "FILE", env = "TYRANT_USERS", default_value = "users")]
    users: PathBuf,
    /// Do not print that a running server needs a reload
    #[arg(long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a user, whose password is typed or read from the standard input
    Add(Add),
    /// Remove users
    #[command(visible_aliases = ["del", "delete", "rm"], after_help = "\
Examples:
  # Remove two users
  tyrant user remove ann bob")]
    Remove {
        /// Names
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Print the users
    #[command(after_help = "\
Examples:
  # Print the users of a file
  tyrant user list --users /var/lib/tyrant/users")]
    List {
        #[command(flatten)]
        form: AsJson,
    },
    /// Change the password of a user, which is typed or read from the standard input
    #[command(after_help = "\
Examples:
  # Change a password; the new one is typed
  tyrant user passwd ann")]
    Passwd {
        /// Name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print a new token of a user, for HTTP; an earlier one is invalid then
    #[command(after_help = "\
Examples:
  # Print a token for HTTP
  tyrant user token ann")]
    Token {
        /// Name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Replace the rights of a user
    #[command(after_help = "\
Examples:
  # Let a user read everything, and write keys that begin with log:
  tyrant user rights ann --rights read,write:log:")]
    Rights {
        /// Name
        #[arg(value_name = "NAME")]
        name: String,
        /// Give these rights: read, write, admin and scripts, or read:PREFIX for keys with a prefix
        #[arg(long, value_name = "RIGHTS", value_delimiter = ',', required = true)]
        rights: Vec<String>,
    },
    /// Convert a file of lines name:password, the form of earlier versions
    #[command(after_help = "\
Examples:
  # Convert a file of an earlier version
  tyrant user convert --users /var/lib/tyrant/users")]
    Convert,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Add a user who may read and write; the password is typed
  tyrant user add ann
  # Add a user who may only read, and logs in with a certificate
  tyrant user add monitor --no-password --rights read")]
struct Add {
    /// Name
    #[arg(value_name = "NAME")]
    name: String,
    /// Set no password: the user logs in with a token or a client certificate
    #[arg(long)]
    no_password: bool,
    /// Give these rights: read, write, admin and scripts, or read:PREFIX for keys with a prefix
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', default_value = "read,write")]
    rights: Vec<String>,
}

impl User {
    pub(super) fn run(self) -> Result<()> {
        match &self.action {
            Action::Add(add) => self.add(add),
            Action::Remove { names } => self.remove(names),
            Action::List { form } => self.list(*form),
            Action::Passwd { name } => {
                self.read()?.find(name).ok_or_else(|| self.unknown(name))?;
                let password = Some(self.new_password(name)?);
                self.change(name, |user| {
                    user.password = password;
                    Ok(())
                })
            }
            Action::Rights { name, rights } => self.change(name, |user| {
                user.rights.clone_from(rights);
                check_flaw(user)
            }),
            Action::Token { name } => {
                let token = new_token()?;
                self.change(name, |user| {
                    user.token = Some(hash_token(token.as_bytes()));
                    Ok(())
                })?;
                Ok(writeln!(Output::standard(), "{token}")?)
            }
            Action::Convert => self.convert(),
        }
    }

    fn read(&self) -> Result<UserFile> {
        match UserFile::read(&self.users) {
            Err(UsersError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => bail!(
                "there is no file of users {:?}: \"tyrant user add NAME\" makes it; --users FILE or \
                 TYRANT_USERS names another one",
                self.users
            ),
            read => Ok(read?),
        }
    }

    /// Returns the users; none if there is no file.
    fn read_if_present(&self) -> Result<UserFile> {
        match UserFile::read(&self.users) {
            Err(UsersError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(UserFile::default())
            }
            read => Ok(read?),
        }
    }

    /// Reads the file, changes it and writes it. Other commands that change it wait meanwhile, so
    /// `change` must not wait for anything.
    fn replace(
        &self,
        read: impl FnOnce(&Self) -> Result<UserFile>,
        change: impl FnOnce(&mut UserFile) -> Result<()>,
    ) -> Result<()> {
        let lock = UserFileLock::take(&self.users)?;
        let mut file = read(self)?;
        change(&mut file)?;
        lock.replace(&file)?;
        self.print_reload();
        Ok(())
    }

    /// Prints how a running server learns of a change.
    fn print_reload(&self) {
        if !self.quiet {
            eprintln!(
                "a running server with the users in {} takes the change at `tyrant reload`, or SIGHUP",
                self.users.display()
            );
        }
    }

    /// Reads a new password of a user. Returns its hash. Fails before that if the file cannot be
    /// written.
    fn new_password(&self, name: &str) -> Result<String> {
        drop(UserFileLock::take(&self.users)?);
        let password = password::read_new(name)?;
        Ok(hash_password(password.as_bytes(), PasswordCost::DEFAULT)?)
    }

    fn add(&self, add: &Add) -> Result<()> {
        self.check_room(&mut self.read_if_present()?, &add.name)?;
        let mut user = UserEntry { name: add.name.clone(), ..UserEntry::default() };
        user.rights.clone_from(&add.rights);
        check_flaw(&user)?;
        if !add.no_password {
            user.password = Some(self.new_password(&add.name)?);
        }
        self.replace(Self::read_if_present, |file| {
            self.check_room(file, &add.name)?;
            file.users.push(user);
            Ok(())
        })
    }

    /// Fails if the file has a user of this name, or the most users that it may have.
    fn check_room(&self, file: &mut UserFile, name: &str) -> Result<()> {
        if file.find(name).is_some() {
            bail!(
                "{}: there is a user {name} already; tyrant user passwd, token and rights change it",
                self.users.display()
            );
        }
        if file.users.len() >= USERS_MAX {
            bail!("{}: the file has {USERS_MAX} users, which is the most", self.users.display());
        }
        Ok(())
    }

    fn remove(&self, names: &[String]) -> Result<()> {
        self.replace(Self::read, |file| {
            if let Some(unknown) = names.iter().find(|name| file.find(name).is_none()) {
                return Err(self.unknown(unknown));
            }
            file.users.retain(|user| !names.contains(&user.name));
            if file.users.is_empty() {
                bail!(
                    "{}: the last user stays, as a server needs one; to serve every client, start \
                     the server without users",
                    self.users.display()
                );
            }
            Ok(())
        })
    }

    fn list(&self, form: AsJson) -> Result<()> {
        let mut output = Output::standard();
        for user in self.read()?.users {
            let (password, token) = (user.password.is_some(), user.token.is_some());
            if form.json {
                let members = [
                    ("name", user.name.into()),
                    ("password", password.into()),
                    ("token", token.into()),
                    ("rights", user.rights.into()),
                ];
                write_json(&object(members), &mut output)?;
                continue;
            }
            let login = match (password, token) {
                (true, true) => "password, token",
                (true, false) => "password",
                (false, true) => "token",
                (false, false) => "certificate",
            };
            writeln!(output, "{}\t{login}\t{}", user.name, user.rights.join(","))?;
        }
        Ok(())
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut UserEntry) -> Result<()>) -> Result<()> {
        self.replace(Self::read, |file| change(file.find(name).ok_or_else(|| self.unknown(name))?))
    }

    fn unknown(&self, name: &str) -> anyhow::Error {
        anyhow::anyhow!("{}: there is no user {name}", self.users.display())
    }

    fn convert(&self) -> Result<()> {
        if UserFile::read(&self.users).is_ok() {
            bail!("{}: it has the present form already", self.users.display());
        }
        let lines = UserFile::read_clear_text(&self.users)?;
        // Hashes take long, so everything else is checked first.
        let unhashed =
            |(name, _): &(String, String)| UserEntry { name: name.clone(), ..UserEntry::default() };
        UserFile { users: lines.iter().map(unhashed).collect() }.check(&self.users)?;
        for (name, password) in &lines {
            if let Some(flaw) = password::flaw(password) {
                bail!("{}: the password of {name} {flaw}; change the line", self.users.display());
            }
        }
        let entry = |(name, password): &(String, String)| {
            let entry = UserEntry::with_password(name, password.as_bytes(), PasswordCost::DEFAULT);
            entry.with_context(|| format!("user {name}"))
        };
        let users = lines.iter().map(entry).collect::<Result<_>>()?;
        let lock = UserFileLock::take(&self.users)?;
        if UserFile::read_clear_text(&self.users)? != lines {
            bail!("{}: it has changed meanwhile; convert it again", self.users.display());
        }
        lock.replace(&UserFile { users })?;
        self.print_reload();
        Ok(())
    }
}

/// Fails if the command line gives a user a name or rights that none may have. A blank around a
/// right or before its prefix is one of a list with blanks, and a star at the end of a prefix is
/// meant as a pattern.
fn check_flaw(user: &UserEntry) -> Result<()> {
    let is_spaced = |right: &&String| {
        let parts = right.split_once(':').unwrap_or((right, ""));
        right.trim() != *right || parts.0.trim() != parts.0 || parts.1.trim() != parts.1
    };
    if let Some(right) = user.rights.iter().find(is_spaced) {
        return Err(wrong_command_line(format_args!(
            "the right {right:?} has a blank at an end: rights are separated by commas alone, as in \
             read,write:log: and a blank of a prefix is written \\x20"
        )));
    }
    if let Some(right) = user.rights.iter().find(|right| right.ends_with('*')) {
        let prefix = right.trim_end_matches('*');
        let all = prefix.strip_suffix(':').filter(|right| !right.contains(':'));
        let meant = all.unwrap_or(prefix);
        return Err(wrong_command_line(format_args!(
            "the right {right:?} ends with a star, which stands for itself in a prefix: leave it \
             out, as in {meant}, or write it as \\x2a"
        )));
    }
    user.flaw().map_or(Ok(()), |flaw| Err(wrong_command_line(format_args!("the user {flaw}"))))
}
