//! `tyrant`: the server, and the tool to talk to it. By other names it is `ttserver`, `tcrmgr` or
//! `ttulmgr`.

fn main() -> std::process::ExitCode {
    programs::run()
}
