//! `tyrant`: the server, and the tool to talk to it.

fn main() -> std::process::ExitCode {
    programs::commands::run()
}
