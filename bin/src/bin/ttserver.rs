//! The server under Tokyo Tyrant's command line.

fn main() -> std::process::ExitCode {
    programs::ttserver::run()
}
