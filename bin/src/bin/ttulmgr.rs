//! `ttulmgr`: Tokyo Tyrant's tool for update logs.

fn main() -> std::process::ExitCode {
    programs::ttulmgr::run()
}
