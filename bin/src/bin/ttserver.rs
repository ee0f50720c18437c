//! `ttserver`: the server with Tokyo Tyrant's command line.

fn main() -> std::process::ExitCode {
    programs::ttserver::run()
}
