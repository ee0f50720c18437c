//! The functions of `misc`, called through Tokyo Tyrant's binary protocol and through HTTP.

use crate::admin::server_stats::{metrics_text, slow_requests};
use crate::counters::Count;
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::conditional::{Action, Write, Written};
use crate::ops::decode::{NoOperation, Sender, decode_function};
use crate::ops::execute::{NoReply, Outcome, Reply};
use crate::ops::failure::Failure;
use crate::ops::number::leading_number;
use crate::ops::operation::Operation;
use crate::ops::scrub;
use crate::protocol::script_call::{Form, ScriptCall};
use crate::protocol::{Context, Halt};
use cabinet::RecordRef;
use wire::binary::{Function, Strings};

/// A call of a function.
pub(crate) struct Call<'a> {
    function: Function<'a>,
    arguments: Strings<'a>,
    operation: Result<Operation<'a>, NoOperation>,
}

impl<'a> Call<'a> {
    /// Returns the call of a function of this server.
    pub(crate) fn new(
        context: &Context<'_>,
        function: Function<'a>,
        arguments: Strings<'a>,
    ) -> Self {
        let operation =
            decode_function(function, arguments, context.shared.served.model, Sender::Client);
        Self { function, arguments, operation }
    }

    /// Returns whether a mask refuses the call, because it refuses the command that does the same.
    pub(crate) fn is_refused(&self, context: &Context<'_>, protocol: Protocol) -> bool {
        context.has_mask()
            && self.access().is_some_and(|command| context.refuses(command, protocol))
    }

    /// Returns the command that does the same. A function that no command stands for is a call of
    /// `misc` alone.
    pub(super) fn access(&self) -> Option<Command> {
        if let Ok(operation) = &self.operation {
            return operation.access();
        }
        Some(match self.function {
            Function::Put
            | Function::PutList
            | Function::PutDuplicate
            | Function::PutDuplicateBack
            | Function::PutExpiring
            | Function::Touch
            | Function::Increment
            | Function::GenerateUid => Command::Put,
            Function::PutKeep => Command::PutKeep,
            Function::PutCat => Command::PutCat,
            Function::Out | Function::OutList => Command::Out,
            Function::Get | Function::GetPart => Command::Get,
            Function::GetList
            | Function::Search
            | Function::MetaSearch
            | Function::Regex
            | Function::Range
            | Function::Expiry => Command::GetMany,
            Function::IterInit => Command::IterInit,
            Function::IterNext => Command::IterNext,
            Function::Sync => Command::Sync,
            Function::Optimize
            | Function::Defragment
            | Function::SetIndex
            | Function::Check
            | Function::Slow
            | Function::Reload => Command::Optimize,
            // The list of the databases is about the process, as a reload is.
            Function::Metrics if self.arguments.iter().next().is_some() => Command::Optimize,
            Function::Metrics => Command::Stat,
            Function::Vanish => Command::Vanish,
            Function::Promote => Command::SetMaster,
            Function::Error
            | Function::ClearCache
            | Function::Login
            | Function::Replication
            | Function::Unknown(_) => return None,
        })
    }

    /// Calls the function. Returns whether it succeeded. If it failed, the content of `reply` is
    /// invalid.
    pub(crate) fn run(
        &self,
        context: &mut Context<'_>,
        reply: &mut impl Reply,
    ) -> Result<bool, Halt> {
        let done = match &self.operation {
            Ok(_) if self.sets_expiry() && context.shared.config.ignores_expiry => {
                context.fail_because("misc", "this server ignores expiry (--expiry)");
                false
            }
            Ok(operation) if self.function == Function::Increment => {
                let mut written = Written::default();
                let outcome = context.execute(operation, &mut written)?;
                if matches!(outcome, Ok(Outcome::NotNumeric)) {
                    context.fail_because("misc", "the record is no number of 64 bits");
                }
                reply.element(written.number.to_string().as_bytes());
                matches!(outcome, Ok(Outcome::Done))
            }
            Ok(operation) if self.function == Function::Expiry => {
                matches!(context.execute(operation, &mut Expiries(reply))?, Ok(Outcome::Done))
            }
            Ok(operation) if self.function == Function::Touch => {
                matches!(context.execute(operation, &mut NoReply)?, Ok(Outcome::Done))
            }
            Ok(operation) => matches!(context.execute(operation, reply)?, Ok(Outcome::Done)),
            Err(NoOperation::OfServer) => self.run_of_server(context, reply)?,
            Err(NoOperation::RowOutsideTable) => {
                context.fail_because("misc", "a row with columns can be stored in a table only");
                false
            }
            Err(NoOperation::Invalid)
                if context.shared.remote.is_some()
                    && matches!(
                        self.function,
                        Function::PutDuplicate | Function::PutDuplicateBack
                    ) =>
            {
                context.fail_because("misc", "the store has one value under each key");
                false
            }
            Err(NoOperation::Invalid | NoOperation::InvalidRead) => {
                match self.function {
                    Function::Unknown(name) => {
                        let name = name.escape_ascii();
                        context
                            .fail_because("misc", format!("there is no function {name} of misc"));
                    }
                    _ => context.fail("misc", Failure::Invalid),
                }
                false
            }
        };
        context.counters.count(Count::Misc);
        Ok(done)
    }

    /// Returns whether the call gives a record an expiry.
    fn sets_expiry(&self) -> bool {
        match &self.operation {
            Ok(Operation::Write(Write { action: Action::Count(counting), .. })) => {
                counting.create.is_some_and(|(_, expires_at_ms)| expires_at_ms != 0)
            }
            _ => matches!(self.function, Function::PutExpiring | Function::Touch),
        }
    }

    /// Calls a function that is about the server.
    fn run_of_server(
        &self,
        context: &mut Context<'_>,
        reply: &mut impl Reply,
    ) -> Result<bool, Halt> {
        if let Some(command) = self.access() {
            context.permit_command(command)?;
        }
        let arguments: Vec<&[u8]> = self.arguments.iter().collect();
        match (self.function, &arguments[..]) {
            (Function::Error, _) => reply.element(last_failure(context).as_bytes()),
            (Function::Promote, _) => {
                context.wait()?;
                let promoted = match context.shared.replication.promote() {
                    Ok(promoted) => promoted,
                    Err(reason) => {
                        context.fail_because("promote", reason);
                        return Ok(false);
                    }
                };
                reply.element(promoted.master.to_string().as_bytes());
                reply.element(promoted.position_us.to_string().as_bytes());
            }
            (Function::Reload, _) => return reload(context, reply),
            (Function::Slow, _) => {
                let requests = slow_requests(context.shared);
                // A log that a reload has switched off keeps its requests.
                if requests.is_empty() && !context.shared.slow_log.is_on() {
                    let reason =
                        "the slow log is off: set slow-log-threshold to a number of seconds";
                    context.fail_because("slow", reason);
                    return Ok(false);
                }
                requests.iter().for_each(|request| reply.element(request.as_bytes()));
            }
            (Function::Metrics, []) => {
                // It adds up the counters of all threads, and looks at the files of the process.
                context.wait()?;
                reply.element(metrics_text(context.shared).as_bytes());
            }
            (Function::Metrics, [b"databases"]) => {
                let process = context.shared.reload.get();
                let process = process.and_then(|(process, _)| process.upgrade());
                let databases = process.map_or(Vec::new(), |process| process.databases());
                databases.iter().for_each(|line| reply.element(line.as_bytes()));
            }
            (Function::Metrics, _) => {
                context.fail_because("metrics", "metrics takes no argument, or databases");
                return Ok(false);
            }
            (Function::Login, _) => {
                context
                    .fail_because("login", "only a connection of Tokyo Tyrant's protocol logs in");
                return Ok(false);
            }
            (Function::Replication, [wire::replication::IDENTITY]) => {
                let log = context.shared.served.update_log.as_ref();
                let Some(identity) = log.and_then(|log| log.identity()) else { return Ok(false) };
                reply.element(identity.as_bytes());
            }
            (Function::Replication, [wire::replication::ROOTS]) => {
                reply.element(context.database.partitioning().name().as_bytes());
            }
            (Function::Replication, [wire::replication::ADMISSION]) => {
                return permit_replica(context);
            }
            (Function::Replication, [wire::replication::ADMISSION, from]) => {
                return admit_replica(context, leading_number(from));
            }
            (Function::Replication, [wire::replication::FORGET, id]) => {
                return forget_replica(context, id, reply);
            }
            (Function::Replication, _) => reply.element(wire::replication::VERSION),
            _ => return Ok(check(context, &arguments, reply)),
        }
        Ok(true)
    }
}

/// A reply of keys and when their records expire.
struct Expiries<'r, R>(&'r mut R);

impl<R: Reply> Reply for Expiries<'_, R> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn record(&mut self, key: &[u8], record: &RecordRef<'_>) {
        self.0.element(key);
        self.0.element(record.meta.expires_at_ms.to_string().as_bytes());
    }

    fn shows_values(&self) -> bool {
        false
    }
}

/// Reads again what the process has read at its start, then the functions of the extension. The
/// reply is what was read. Returns whether there was anything to read, and it was valid.
fn reload(context: &mut Context<'_>, reply: &mut impl Reply) -> Result<bool, Halt> {
    context.wait()?;
    let process = context.shared.reload.get();
    let process = process.and_then(|(reload, number)| Some((reload.upgrade()?, *number)));
    let has_extension = context.shared.has_extension();
    let read = match process.map(|(reload, number)| reload.reload(number)) {
        Some(Ok(read)) if has_extension => Ok(format!("{read}; script loaded")),
        Some(read) => read,
        None if has_extension => Ok(String::new()),
        None => Err("the server has no functions to load".to_owned()),
    };
    match read {
        Err(reason) => context.fail_because("reload", reason),
        Ok(read) if has_extension => {
            return context.call(ScriptCall::reload(read.as_bytes(), Form::BinaryMisc));
        }
        Ok(read) => {
            reply.element(read.as_bytes());
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether the client would get the update log from a time stamp on, in microseconds since
/// 1970. Replication itself has no reply for the reason.
fn admit_replica(context: &mut Context<'_>, from_us: i64) -> Result<bool, Halt> {
    context.wait()?;
    if !permit_replica(context)? {
        return Ok(false);
    }
    let from_us = u64::try_from(from_us).unwrap_or(0);
    let refusal = context.shared.replication.refusal(from_us);
    let is_admitted = refusal.is_none();
    if let Some(reason) = refusal {
        context.fail_because(Command::Replicate.name(), reason);
    }
    Ok(is_admitted)
}

/// Forgets a replica that is not connected. The reply is its address. Returns whether there is one
/// with this id, and the client may do that.
fn forget_replica(
    context: &mut Context<'_>,
    id: &[u8],
    reply: &mut impl Reply,
) -> Result<bool, Halt> {
    if !permit_replica(context)? {
        return Ok(false);
    }
    let known = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
    let forgotten = known.and_then(|id| context.shared.replication.forget(id));
    let id = String::from_utf8_lossy(id);
    let Some(address) = forgotten else {
        let reason = format!("no replica that is not connected has the server id {id}");
        context.fail_because(Command::Replicate.name(), reason);
        return Ok(false);
    };
    tracing::info!("replica {id}: forgotten, as a client requests");
    reply.element(address.as_bytes());
    Ok(true)
}

/// Returns whether the client may have an update log, and there is one. Neither depends on the
/// time, on other clients or on files.
fn permit_replica(context: &mut Context<'_>) -> Result<bool, Halt> {
    let command = Command::Replicate;
    if context.masks(command, Protocol::Binary) {
        context.refuse_masked(command);
        return Ok(false);
    }
    context.permit_command(command)?;
    let has_log = context.shared.served.update_log.is_some();
    if !has_log {
        context.fail_because(command.name(), crate::replication::NO_LOG);
    }
    Ok(has_log)
}

/// Returns why the last operation failed.
pub(crate) fn last_failure(context: &Context<'_>) -> String {
    let failure = context.session.last_failure.or_else(|| context.shared.last_failure.get());
    let mut text = Failure::text(failure);
    let reason = match (&context.session.last_reason, failure) {
        (Some(reason), _) => Some(reason.to_string()),
        // A refusal without a reason of its own is that of a replica.
        (None, Some(Failure::NoPermission)) => context.shared.served.gate.refusal(),
        (None, _) => None,
    };
    if let Some(reason) = reason {
        text.push_str(": ");
        text.push_str(&reason);
    }
    text
}

/// Begins, describes or stops a verification of all checksums. Returns whether the arguments are
/// those of `check`.
fn check(context: &mut Context<'_>, arguments: &[&[u8]], reply: &mut impl Reply) -> bool {
    let scrub = &context.shared.scrub;
    let number = |text: &[u8]| u64::try_from(leading_number(text)).ok().filter(|rate| *rate > 0);
    match arguments {
        [b"start", rest @ ..]
            if rest.len() <= 1 && rest.iter().all(|rate| number(rate).is_some()) =>
        {
            let rate = rest.first().and_then(|rate| number(rate));
            let number = scrub.begin(rate.unwrap_or(scrub::CHECK_BYTES_PER_SECOND));
            reply.element(number.to_string().as_bytes());
            true
        }
        [b"state", from @ ..] => {
            let from = from.first().map_or(0, |text| leading_number(text));
            scrub.report(usize::try_from(from).unwrap_or(0), |element| {
                reply.element(element.as_bytes());
            });
            true
        }
        [b"stop"] => {
            let is_stopped = scrub.stop();
            if !is_stopped {
                context.fail_because("check", "no check is running; \"check start\" begins one");
            }
            is_stopped
        }
        _ => {
            let forms = "check takes start, start BYTES_PER_SECOND, state, or stop";
            context.fail_because("check", forms);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::ops::command_mask::CommandMask;
    use crate::ops::execute::NoReply;
    use crate::protocol::session::Session;
    use crate::shared::Shared;
    use crate::store::strings;
    use cabinet::Database;
    use std::sync::Arc;

    /// Returns a server's state over a database in a folder.
    fn shared(folder: &std::path::Path, name: &str) -> Arc<Shared> {
        let name = folder.join(name).display().to_string();
        let database = Database::open(&name).expect("a database");
        Shared::for_test(Config::default(), database)
    }

    /// Calls `run` with the context of an event loop, or of a thread that may wait.
    fn with_context<T>(
        shared: &Shared,
        may_block: bool,
        run: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        run(&mut Context::new(
            shared,
            may_block,
            &shared.counters.add_thread(),
            &mut Session::default(),
            0,
        ))
    }

    /// Calls a function on an event loop, or on a thread that may wait.
    fn run(
        shared: &Shared,
        may_block: bool,
        name: &[u8],
        arguments: &[&[u8]],
    ) -> Result<bool, Halt> {
        let arguments = strings(arguments).expect("short arguments");
        with_context(shared, may_block, |context| {
            let function = Function::from_name(name);
            Call::new(context, function, arguments.strings()).run(context, &mut NoReply)
        })
    }

    #[test]
    fn a_list_of_duplicates_is_added_once_where_the_loop_must_not_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = shared(folder.path(), "casket.tcb");
        let pairs: [&[u8]; 4] = [b"a", b"1", b"a", b"2"];
        assert_eq!(run(&shared, false, b"putlist", &pairs), Err(Halt::Blocked));
        assert_eq!(shared.served.database.len(), 0);
        assert_eq!(run(&shared, true, b"putlist", &pairs), Ok(true));
        assert_eq!(shared.served.database.get_all(b"a").expect("values"), [b"1", b"2"]);
    }

    #[test]
    fn a_list_is_begun_only_where_it_can_be_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = shared(folder.path(), "casket.tcf");
        // Each call makes a new record.
        let pairs: [&[u8]; 4] = [b"next", b"1", b"next", b"2"];
        assert_eq!(run(&shared, false, b"putlist", &pairs[..2]), Ok(true));
        assert_eq!(run(&shared, false, b"putlist", &pairs), Err(Halt::Blocked));
        assert_eq!(shared.served.database.len(), 1);
        assert_eq!(run(&shared, true, b"putlist", &pairs), Ok(true));
        assert_eq!(shared.served.database.len(), 3);
        assert_eq!(run(&shared, false, b"outlist", &[b"1", b"2"]), Err(Halt::Blocked));
        assert_eq!(shared.served.database.len(), 3);
        assert_eq!(run(&shared, false, b"outlist", &[b"1"]), Ok(true));
        assert_eq!(shared.served.database.len(), 2);
    }

    #[test]
    fn a_row_that_has_to_wait_takes_one_identifier() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = shared(folder.path(), "casket.tct");
        for name in [&b"put"[..], b"putkeep", b"putcat"] {
            assert_eq!(run(&shared, false, name, &[b"", b"a", b"1"]), Err(Halt::Blocked));
            assert_eq!(run(&shared, true, name, &[b"", b"a", b"1"]), Ok(true));
        }
        assert_eq!(shared.served.database.last_uid(), 3);
    }

    /// Returns the functions that a mask refuses on some kind of database.
    fn refused(expression: &str, arguments: &[&[u8]]) -> Vec<Function<'static>> {
        let mut mask: CommandMask = expression.parse().expect("known names");
        // The mask of `misc` as a write is not checked here.
        mask.unmask("misc".parse().expect("a known name"));
        let folder = tempfile::tempdir().expect("a folder");
        let arguments = strings(arguments).expect("short arguments");
        let servers = ["casket.tch", "casket.tcb", "casket.tcf", "casket.tct"].map(|name| {
            let database = Database::open(&folder.path().join(name).display().to_string());
            Shared::for_test(Config { mask, ..Config::default() }, database.expect("a database"))
        });
        let refuses = |function: &Function<'static>| {
            servers.iter().any(|shared| {
                with_context(shared, true, |context| {
                    let call = Call::new(context, *function, arguments.strings());
                    call.is_refused(context, Protocol::Binary)
                })
            })
        };
        Function::ALL.iter().copied().filter(refuses).collect()
    }

    #[test]
    fn a_mask_of_a_command_refuses_the_functions_that_do_the_same() {
        let refused = |expression| refused(expression, &[b"a", b"b"]);
        assert_eq!(refused("vanish"), [Function::Vanish]);
        assert_eq!(refused("out"), [Function::Out, Function::OutList]);
        assert_eq!(refused("setmst"), [Function::Promote]);
        assert_eq!(
            refused("optimize"),
            [
                Function::Optimize,
                Function::Defragment,
                Function::SetIndex,
                Function::Check,
                Function::Reload,
                Function::Slow,
                Function::Metrics
            ]
        );
    }

    #[test]
    fn a_search_that_removes_is_refused_with_out_and_one_that_reads_with_mget() {
        let condition: &[u8] = b"addcond\0a\0STREQ\0b";
        let searches = |mask, arguments: &[&[u8]]| {
            let found = refused(mask, arguments);
            found.into_iter().filter(|found| *found == Function::Search).count()
        };
        assert_eq!(searches("out", &[condition, b"out"]), 1);
        assert_eq!(searches("out", &[condition]), 0);
        assert_eq!(searches("mget", &[condition]), 1);
    }

    #[test]
    fn a_function_without_its_arguments_is_refused_like_its_command() {
        assert!(refused("put", &[]).contains(&Function::Put));
        assert!(refused("put", &[b"a", b"b", b"c"]).contains(&Function::Put));
    }

    #[test]
    fn a_call_that_is_left_to_the_pool_counts_as_no_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = shared(folder.path(), "casket.tct");
        let calls: [(Function<'_>, &[&[u8]]); 5] = [
            (Function::Search, &[b"out"]),
            (Function::PutList, &[b"a", b"b\0c", b"d", b"e\0f"]),
            (Function::OutList, &[b"a", b"b"]),
            (Function::SetIndex, &[b"a", b"lexical"]),
            (Function::Vanish, &[]),
        ];
        for (function, arguments) in calls {
            let arguments = strings(arguments).expect("short arguments");
            let mutated = with_context(&shared, false, |context| {
                let call = Call::new(context, function, arguments.strings());
                assert_eq!(call.run(context, &mut NoReply), Err(Halt::Blocked), "{function:?}");
                context.mutated
            });
            assert!(!mutated, "{function:?}");
            let mutated = with_context(&shared, true, |context| {
                let call = Call::new(context, function, arguments.strings());
                assert_eq!(call.run(context, &mut NoReply), Ok(true), "{function:?}");
                context.mutated
            });
            assert!(mutated, "{function:?}");
        }
    }

    #[test]
    fn every_function_but_four_is_of_a_class_of_commands() {
        let known = refused("allread,allwrite,allmanage", &[b"a", b"b"]);
        let others = Function::ALL.iter().filter(|function| !known.contains(function));
        let others: Vec<_> = others.copied().collect();
        assert_eq!(
            others,
            [Function::Error, Function::ClearCache, Function::Replication, Function::Login]
        );
    }
}
