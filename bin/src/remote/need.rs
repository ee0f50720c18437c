//! Needs of a command: the property that the server's database must have.

use super::Server;
use anyhow::{Result, bail};
use cabinet::name::Kind;

/// Property of a database that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Any kind of database.
    Nothing,
    /// Keys that are in an order.
    Order,
    /// Keys with several values.
    Duplicates,
    /// Rows of columns.
    Rows,
    /// Values that are no rows.
    Values,
}

impl Need {
    fn is_met_by(self, kind: Kind) -> bool {
        match self {
            Self::Nothing => true,
            Self::Order => matches!(kind, Kind::Tree | Kind::MemoryTree | Kind::Fixed),
            Self::Duplicates => kind == Kind::Tree,
            Self::Rows => kind == Kind::Table,
            Self::Values => kind != Kind::Table,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Nothing => "a database",
            Self::Order => "a tree (.tcb, or + in memory) or a fixed-length database (.tcf)",
            Self::Duplicates => "a tree (.tcb)",
            Self::Rows => "a table (.tct)",
            Self::Values => "a database that is no table",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Rows => ": use get, put, list",
            Self::Nothing | Self::Order | Self::Duplicates | Self::Values => "",
        }
    }
}

impl Server {
    /// Fails if the database does not have what `command` needs. If the server does not reveal its
    /// kind, the server decides.
    pub(crate) fn expect(&self, command: &str, need: Need) -> Result<()> {
        if let Some(kind) = self.kind()
            && !need.is_met_by(kind)
        {
            bail!(
                "{command} needs {}; the server at {} has {} {} database{}",
                need.text(),
                self.address(),
                if kind.is_on_memory() { "an" } else { "a" },
                kind.title(),
                need.advice()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_need_is_met_by_the_kinds_that_the_server_accepts() {
        let met = |need: Need| Kind::ALL.into_iter().filter(move |k| need.is_met_by(*k));
        assert_eq!(met(Need::Nothing).count(), 6);
        let ordered = [Kind::MemoryTree, Kind::Tree, Kind::Fixed];
        assert!(met(Need::Order).eq(ordered));
        assert!(met(Need::Duplicates).eq([Kind::Tree]));
        assert!(met(Need::Rows).eq([Kind::Table]));
    }
}
