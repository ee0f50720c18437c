//! Readiness: the reasons for which clients should not be sent to a server.

use crate::admin::metrics::write_refusal;
use crate::shared::Shared;
use std::time::Duration;

/// Limits beyond which a server is not ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadinessLimits {
    /// Longest time since a replica had everything from its master.
    pub lag_max: Option<Duration>,
}

/// Returns why clients should not be sent to a server.
pub(super) fn reasons(shared: &Shared, limits: ReadinessLimits) -> Vec<String> {
    let mut reasons = Vec::new();
    if shared.served.is_stopping() {
        reasons.push("the server is stopping".to_owned());
    }
    if let Some(refusal) = write_refusal(shared) {
        reasons.push(format!("changes are refused: {refusal}"));
    }
    let store = shared.remote.as_ref().map(|remote| remote.store.status());
    reasons.extend(store.and_then(|status| status.unready));
    if let Some((master, follower)) = shared.replication.followed() {
        if follower.state() == "seeding" {
            reasons.push(format!("its copy of {master} is not complete"));
        }
        let has_received = follower.executed_us() > 0 || follower.state() == "following";
        let lag_max = limits.lag_max.map(|max| max.as_secs_f64());
        if !has_received && (lag_max.is_some() || shared.served.database.is_empty()) {
            reasons.push(format!("it has received nothing from its master {master}"));
        } else if let (Some(max), Some(lag_seconds)) = (lag_max, follower.lag_seconds())
            && lag_seconds > max
        {
            reasons.push(format!("it is {lag_seconds:.1} s behind its master {master}"));
        }
    }
    reasons
}
