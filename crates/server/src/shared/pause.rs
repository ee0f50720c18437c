//! Pause: requests wait until it ends, all of them or those that change records.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wire::redis::Command;
use wire::{Class, Effect, RequestKind};

/// Commands that no pause holds: with them a client ends the pause, logs in or leaves.
const FREE: [Command; 5] =
    [Command::Client, Command::Auth, Command::Hello, Command::Reset, Command::Quit];

/// Commands that change no record, although others of their class do.
const READS: [Command; 3] = [Command::EvalRo, Command::EvalShaRo, Command::Script];

fn is_among(commands: &[Command], kind: RequestKind) -> bool {
    commands.iter().any(|command| kind == RequestKind::from(*command))
}

/// A pause of the requests of clients, in milliseconds since the server started.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Time at which it ends, 0 if there is none. Mostly there is none, and a cache line that is
    /// only read is shared at no cost.
    until_ms: AtomicU64,
    /// Whether it holds requests that change nothing, too.
    is_of_all: AtomicBool,
}

impl Pause {
    /// Begins a pause, or extends the present one.
    pub(crate) fn begin(&self, now_ms: u64, wait_ms: u64, is_of_all: bool) {
        let was_of_all = self.is_on(now_ms) && self.is_of_all.load(Ordering::Relaxed);
        self.is_of_all.store(is_of_all || was_of_all, Ordering::Relaxed);
        self.until_ms.fetch_max(now_ms.saturating_add(wait_ms), Ordering::Relaxed);
    }

    /// Ends the pause.
    pub(crate) fn end(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
    }

    /// Returns whether there may be a pause, which takes no look at the clock.
    #[inline]
    pub(crate) fn may_be_on(&self) -> bool {
        self.until_ms.load(Ordering::Relaxed) != 0
    }

    fn is_on(&self, now_ms: u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        if until_ms > now_ms {
            return true;
        }
        // Another pause may have begun meanwhile.
        let (present, end) = (until_ms, 0);
        let order = Ordering::Relaxed;
        let _ = self.until_ms.compare_exchange(present, end, order, order);
        false
    }

    /// Returns whether a request has to wait.
    #[cold]
    pub(crate) fn holds(&self, now_ms: u64, kind: RequestKind) -> bool {
        !is_among(&FREE, kind)
            && self.is_on(now_ms)
            && (kind.effect() == Effect::Change && !is_among(&READS, kind)
                || self.is_of_all.load(Ordering::Relaxed))
    }

    /// Returns whether a request has to wait that takes a thread that may wait. It may change
    /// records unless it is known to read them.
    #[cold]
    pub(crate) fn holds_pooled(&self, now_ms: u64, kind: RequestKind) -> bool {
        let may_change =
            kind.class() == Class::Other && !is_among(&FREE, kind) && !is_among(&READS, kind);
        self.holds(now_ms, kind) || may_change && self.is_on(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{binary, http, memcached, memcached_binary};

    #[test]
    fn a_pause_holds_changes_or_all_requests_until_its_end() {
        let (get, set) = (Command::Get.into(), Command::Set.into());
        let (exec, info) = (Command::Exec.into(), Command::Info.into());
        let (client, auth) = (Command::Client.into(), Command::Auth.into());
        let misc = binary::Kind::Misc.into();
        let pause = Pause::default();
        assert!(!pause.may_be_on() && !pause.holds(0, set));
        pause.begin(100, 50, false);
        assert!(pause.holds(149, set) && !pause.holds(149, get) && pause.holds(149, exec));
        assert!(pause.holds(149, misc));
        assert!(pause.holds_pooled(149, info) && !pause.holds_pooled(149, get));
        assert!(!pause.holds_pooled(149, client));
        let changes =
            |kind: &RequestKind| kind.effect() == Effect::Change && !is_among(&READS, *kind);
        for kind in RequestKind::all().filter(changes) {
            assert!(pause.holds(149, kind), "{} {}", kind.protocol(), kind.command());
        }
        for command in [Command::EvalRo, Command::EvalShaRo, Command::Script] {
            assert!(!pause.holds(149, command.into()) && !pause.holds_pooled(149, command.into()));
        }
        for kind in RequestKind::all().filter(|kind| kind.class() == Class::Write) {
            assert!(pause.holds(149, kind), "{} {}", kind.protocol(), kind.command());
        }
        let others = [
            Command::Eval.into(),
            Command::FlushAll.into(),
            Command::SPublish.into(),
            binary::Kind::Vanish.into(),
            binary::Kind::Restore.into(),
            memcached::Kind::FlushAll.into(),
            memcached_binary::Kind::Flush.into(),
            http::Kind::Post.into(),
            // It may store an empty record.
            http::WebDavKind::Lock.into(),
        ];
        assert!(others.iter().all(|kind| pause.holds(149, *kind)));
        // A shorter one changes nothing but what it holds.
        pause.begin(110, 5, true);
        assert!(pause.holds(149, get) && !pause.holds(149, client) && !pause.holds(149, auth));
        assert!(pause.holds(149, Command::EvalRo.into()));
        pause.begin(120, 40, false);
        assert!(pause.holds(159, get) && !pause.holds(160, get) && !pause.may_be_on());
        pause.begin(200, u64::MAX, true);
        assert!(pause.holds(u64::MAX - 1, get));
        pause.end();
        assert!(!pause.may_be_on());
    }
}
