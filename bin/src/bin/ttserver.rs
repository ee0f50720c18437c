//! The server under the original's command line.

fn main() -> std::process::ExitCode {
    programs::ttserver::run()
}
