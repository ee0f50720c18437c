//! `tcrmgr`: Tokyo Tyrant's tool to talk to a running server.

fn main() -> std::process::ExitCode {
    programs::tcrmgr::run()
}
