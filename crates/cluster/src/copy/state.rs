//! State of a copy into a database, recorded in the keyspace: the only row of table `migration`.

use super::repeat;
use crate::error::{Error, Result};
use crate::records::Scanned;
use crate::schema::{self, Stage};
use crate::store::ClusterStore;
use std::ops::ControlFlow;
use std::time::Duration;

/// Columns of the row.
type Columns = (String, String, Vec<u8>, i64, i64);

/// A copy into a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// How far it has come.
    pub stage: Stage,
    /// The source, as the copier names it.
    pub source: String,
    /// Place in the source before which all records are copied, as the copier encodes it.
    pub place: Vec<u8>,
    /// Number of the records before that place.
    pub copied: u64,
    /// Number of those that expire.
    pub expiring: u64,
}

impl ClusterStore {
    /// Returns the last copy into this database, if there was one.
    pub fn copy_state(&self, patience: Duration) -> Result<Option<CopyState>> {
        let shared = self.shared();
        let table = format!("{}.migration", schema::quoted(&shared.name));
        let select =
            format!("SELECT stage, source, place, copied, expiring FROM {table} WHERE id = 0");
        self.runtime()?.block_on(async {
            let statement = shared.cluster.prepare(&select).await?;
            let result = repeat!(patience, shared.cluster.execute(&statement, ()))?;
            let unreadable =
                |reason: String| Error::Statement { statement: select.clone(), reason };
            let rows = result.into_rows_result().map_err(|error| unreadable(error.to_string()))?;
            let row = rows.maybe_first_row::<Columns>();
            let row = row.map_err(|error| unreadable(error.to_string()))?;
            let Some((stage, source, place, copied, expiring)) = row else { return Ok(None) };
            let Some(stage) = Stage::of(&stage) else { return Err(Error::UnknownStage { stage }) };
            let (copied, expiring) = (copied.cast_unsigned(), expiring.cast_unsigned());
            Ok(Some(CopyState { stage, source, place, copied, expiring }))
        })
    }

    /// Records the state of a copy into this database.
    pub fn set_copy_state(&self, state: &CopyState, patience: Duration) -> Result<()> {
        let shared = self.shared();
        let table = format!("{}.migration", schema::quoted(&shared.name));
        let insert = format!(
            "INSERT INTO {table} (id, stage, source, place, copied, expiring) \
             VALUES (0, ?, ?, ?, ?, ?)"
        );
        self.runtime()?.block_on(async {
            // The cluster may be away here, too. The table is there: the copy has read it.
            let statement = repeat!(patience, shared.cluster.prepare(&insert))?;
            let CopyState { stage, source, place, copied, expiring } = state;
            let numbers = (copied.cast_signed(), expiring.cast_signed());
            let values = (stage.name(), source, place, numbers.0, numbers.1);
            repeat!(patience, shared.cluster.execute(&statement, values)).map(drop)
        })
    }

    /// Counts the records.
    pub fn count(&self, patience: Duration) -> Result<u64> {
        self.count_up_to(u64::MAX, patience)
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self, patience: Duration) -> Result<bool> {
        Ok(self.count_up_to(1, patience)? == 0)
    }

    /// Returns a name of the database that has no addresses.
    pub fn source_name(&self) -> Result<String> {
        let shared = self.shared();
        let find = shared.cluster.find::<(String,)>("SELECT cluster_name FROM system.local");
        let (cluster,) = self.runtime()?.block_on(find)?.unwrap_or_default();
        Ok(format!("keyspace {} of cluster {cluster}", shared.name.keyspace))
    }

    fn count_up_to(&self, max: u64, patience: Duration) -> Result<u64> {
        let shared = self.shared();
        self.runtime()?.block_on(async {
            let attempt = async || {
                let mut count = 0;
                let visit = |scanned: Scanned<'_>| {
                    count += u64::from(matches!(scanned, Scanned::Key(_)));
                    if count < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                shared.records.scan(&shared.cluster, None, None, visit).await.map(|()| count)
            };
            repeat!(patience, attempt())
        })
    }
}
