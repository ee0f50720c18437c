//! Scripts: commands that execute what clients send in Lua.
//!
//! An execution is one transaction: it is repeated if another client changes a record meanwhile
//! that it has read. Its interpreter is an [`Evaluator`] of another crate, which has the scripts
//! that are known by their digests.

use super::transaction::{self, atomically};
use super::{Failed, NO_INTEGER, SYNTAX, integer, reply, run, text_of_part, unknown};
use crate::ops::command_mask;
use crate::ops::rights::{Need, Reach, Right};
use crate::protocol::{Context, Halt};
use crate::shared::evaluator::{
    Evaluator, ScriptEnds, ScriptHost, ScriptLogLevel, ScriptRun, SentScript,
};
use std::sync::{Arc, Weak};
use std::time::Instant;
use wire::redis::reply::Version;
use wire::redis::{
    Arguments, Command, Content, NoSubcommand, Request, parse, refusal, refusal_of_part,
};
use wire::{Effect, Parse, RequestKind};

/// Returns the interpreter of scripts.
fn evaluator(context: &Context<'_>) -> Result<Arc<dyn Evaluator>, Failed> {
    context.local("scripts")?;
    let evaluator = context.shared.evaluator.get().and_then(Weak::upgrade);
    evaluator.ok_or_else(|| "ERR this server has no interpreter of scripts".into())
}

/// Executes `EVAL`, `EVALSHA` and their variants that only read.
pub(super) fn evaluate(
    context: &mut Context<'_>,
    command: Command,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let evaluator = evaluator(context)?;
    let mut strings = arguments.iter();
    let (source, count) = strings.next().zip(strings.next()).ok_or(SYNTAX)?;
    let count = integer(count).ok_or(NO_INTEGER)?;
    let count = match usize::try_from(count) {
        Ok(count) if count <= strings.len() => count,
        Ok(_) => return Err("ERR Number of keys can't be greater than number of args".into()),
        Err(_) => return Err("ERR Number of keys can't be negative".into()),
    };
    let keys: Vec<&[u8]> = strings.by_ref().take(count).collect();
    let arguments: Vec<&[u8]> = strings.collect();
    permit(context, &keys)?;
    // Scripts run on threads that may wait.
    context.wait()?;
    let script = match command {
        Command::EvalSha | Command::EvalShaRo => {
            evaluator.find(source).ok_or("NOSCRIPT No matching script. Please use EVAL.")?
        }
        _ => evaluator.add(source).map_err(Failed::Text)?,
    };
    let is_of_reads = matches!(command, Command::EvalRo | Command::EvalShaRo);
    let only_reads = check_flags(context, &script, is_of_reads)?;
    let run = ScriptRun {
        script: &script,
        keys: &keys,
        arguments: &arguments,
        version: context.session.redis.version,
        began: Instant::now(),
    };
    let start = output.len();
    atomically(context, |context| {
        output.truncate(start);
        execute(context, &*evaluator, &run, only_reads, output)
    })?;
    Ok(context.check_length(output.len() - start)?)
}

/// Fails if the user may not call functions with these keys.
fn permit(context: &mut Context<'_>, keys: &[&[u8]]) -> Result<(), Halt> {
    let any = Need { right: Right::Scripts, reach: Reach::Any };
    context.require(command_mask::Command::Ext, any)?;
    keys.iter().try_for_each(|key| {
        context.require(command_mask::Command::Ext, Need::of_key(Right::Scripts, key))
    })
}

/// Returns whether a script only reads. Fails if it declares that it writes where it must not.
fn check_flags(
    context: &Context<'_>,
    script: &SentScript,
    is_of_reads: bool,
) -> Result<bool, Failed> {
    if script.flags.are_declared && !script.flags.no_writes {
        if context.shared.served.gate.reason().is_some() {
            return Err("READONLY Can not run script with write flag on readonly replica".into());
        }
        if is_of_reads {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
    }
    Ok(is_of_reads || script.flags.no_writes)
}

/// Executes a script within the transaction of this context.
fn execute(
    context: &mut Context<'_>,
    evaluator: &dyn Evaluator,
    run: &ScriptRun<'_>,
    only_reads: bool,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut host = Host { context, only_reads, ended: None };
    let result = evaluator.run(run, &mut host, output);
    let ended = host.ended.take();
    context.session.redis.version = run.version;
    match ended {
        Some(failed) => Err(failed),
        None => result.map_err(Failed::Whole),
    }
}

/// The server as a script reaches it.
struct Host<'h, 'c> {
    context: &'h mut Context<'c>,
    /// Whether commands that write are refused.
    only_reads: bool,
    /// Reason why the script has to end.
    ended: Option<Failed>,
}

impl ScriptHost for Host<'_, '_> {
    fn execute(
        &mut self,
        request: &[u8],
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), ScriptEnds> {
        if self.context.shared.served.is_stopping() {
            let text = "ERR the server is stopping: nothing was changed";
            self.ended = Some(Failed::Whole(text.into()));
            return Err(ScriptEnds);
        }
        self.context.session.redis.version = version;
        let Err(failed) = self.command(request, reply) else { return Ok(()) };
        if let Failed::Whole(_) = failed {
            // The script cannot go on over half of a change.
            self.ended = Some(failed);
            return Err(ScriptEnds);
        }
        match failed.reply_from(0, reply) {
            Ok(()) => Ok(()),
            Err(Halt::TooLong) => {
                reply.clear();
                reply::error(reply, "ERR reply over the limit of this server");
                Ok(())
            }
            Err(halt) => {
                self.ended = Some(Failed::Halt(halt));
                Err(ScriptEnds)
            }
        }
    }

    fn log(&mut self, level: ScriptLogLevel, line: String) {
        self.context.session.redis.transaction.log(level, line);
    }
}

impl Host<'_, '_> {
    /// Executes a command of a script.
    fn command(&mut self, request: &[u8], output: &mut Vec<u8>) -> Result<(), Failed> {
        let Parse::Complete(request, _) = parse(request) else { return Err(UNKNOWN.into()) };
        let arguments = request.arguments;
        let (command, part) = command_of(&request)?;
        if !is_for_scripts(command) {
            return Err("ERR This Redis command is not allowed from script".into());
        }
        if self.only_reads && RequestKind::from(command).effect() == Effect::Change {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        transaction::check(self.context, command, arguments)?;
        transaction::check_keys(self.context, command.shape().keys(arguments))?;
        run(self.context, command, part, arguments, output).map_err(Failed::of_transaction)?;
        transaction::charge(self.context, 0)
    }
}

const UNKNOWN: &str = "ERR Unknown Redis command called from script";
const WRONG_NUMBER: &str = "ERR Wrong number of args calling Redis command from script";

/// Returns the command of a request, and its subcommand.
fn command_of(request: &Request<'_>) -> Result<(Command, &'static str), Failed> {
    let Content::Command(command) = request.content else {
        return Err(match refusal(request.name) {
            Some(_) => Failed::Text(unknown(request)),
            None => UNKNOWN.into(),
        });
    };
    let arguments = request.arguments;
    if !command.shape().takes(arguments.len() + 1) {
        return Err(WRONG_NUMBER.into());
    }
    let given = arguments.iter().next().unwrap_or_default();
    match command.subcommand(arguments) {
        Ok(part) => Ok((command, part)),
        Err(NoSubcommand::Arity(_)) => Err(WRONG_NUMBER.into()),
        Err(reason) => Err(match refusal_of_part(command, given) {
            Some(_) => Failed::Text(text_of_part(command, arguments, reason)),
            None => UNKNOWN.into(),
        }),
    }
}

/// Returns whether scripts may execute a command.
fn is_for_scripts(command: Command) -> bool {
    !matches!(
        command,
        Command::Multi
            | Command::Exec
            | Command::Discard
            | Command::Watch
            | Command::Unwatch
            | Command::Subscribe
            | Command::PSubscribe
            | Command::SSubscribe
            | Command::Unsubscribe
            | Command::PUnsubscribe
            | Command::SUnsubscribe
            | Command::Auth
            | Command::Hello
            | Command::Reset
            | Command::Quit
            | Command::Client
            | Command::Config
            | Command::Eval
            | Command::EvalRo
            | Command::EvalSha
            | Command::EvalShaRo
            | Command::Script
            | Command::Function
            | Command::Role
            | Command::Wait
            | Command::Latency
    )
}

/// Executes `SCRIPT`.
pub(super) fn manage(
    context: &mut Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let evaluator = evaluator(context)?;
    let mut strings = arguments.iter();
    strings.next();
    match part {
        "load" => {
            permit(context, &[])?;
            context.wait()?;
            let source = strings.next().unwrap_or_default();
            let script = evaluator.add(source).map_err(Failed::Text)?;
            reply::string(output, &script.digest);
        }
        "exists" => {
            context.check_length(b":0\r\n".len() * strings.len())?;
            reply::array(output, strings.len());
            strings.for_each(|digest| reply::integer(output, evaluator.has(digest).into()));
        }
        "kill" => {
            context.permit_command(command_mask::Command::Optimize)?;
            if !evaluator.kill() {
                return Err("NOTBUSY No scripts in execution right now.".into());
            }
            reply::simple(output, "OK");
        }
        _ => {
            let is_option = is_flush_option(strings.rest());
            if !is_option {
                return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
            }
            context.permit_command(command_mask::Command::Optimize)?;
            evaluator.clear();
            reply::simple(output, "OK");
        }
    }
    Ok(())
}

/// Returns whether these are the options of a command that forgets scripts.
fn is_flush_option(options: Arguments<'_>) -> bool {
    let is_known = |option: &[u8]| {
        option.eq_ignore_ascii_case(b"SYNC") || option.eq_ignore_ascii_case(b"ASYNC")
    };
    options.len() <= 1 && options.iter().all(is_known)
}

/// Executes `FUNCTION`, as without any function.
pub(super) fn functions(
    context: &Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    strings.next();
    let version = context.session.redis.version;
    match part {
        "list" => {
            while let Some(option) = strings.next() {
                let is_pattern = option.eq_ignore_ascii_case(b"LIBRARYNAME");
                if is_pattern && strings.next().is_none() {
                    return Err("ERR library name argument was not given".into());
                }
                if !is_pattern && !option.eq_ignore_ascii_case(b"WITHCODE") {
                    let option = String::from_utf8_lossy(option);
                    return Err(Failed::Text(format!("ERR Unknown argument {option}")));
                }
            }
            reply::array(output, 0);
        }
        "stats" => {
            reply::map(output, version, 2);
            reply::string(output, b"running_script");
            reply::null(output, version);
            reply::string(output, b"engines");
            reply::map(output, version, 1);
            reply::string(output, b"LUA");
            reply::map(output, version, 2);
            for name in ["libraries_count", "functions_count"] {
                reply::string(output, name.as_bytes());
                reply::integer(output, 0);
            }
        }
        _ => {
            if !is_flush_option(strings.rest()) {
                return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into());
            }
            reply::simple(output, "OK");
        }
    }
    Ok(())
}
