//! The original's tool for update logs.

fn main() -> std::process::ExitCode {
    programs::ttulmgr::run()
}
