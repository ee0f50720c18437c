//! A monitor of a server, and a client that reads its metrics.

use super::{Client, Running, wait_until};
use server::{Endpoint, Handle, HostNames, Monitor, ReadinessLimits};
use std::net::TcpStream;

/// Name of the database in the labels.
pub(crate) const NAME: &str = "test";

/// A monitor of one server.
pub(crate) struct Monitored {
    pub(crate) monitor: Monitor,
}

impl Monitored {
    /// Starts a monitor of a server.
    pub(crate) fn new(server: &Running) -> Self {
        let monitored = Self::starting();
        monitored.monitor.add(NAME, Handle::clone(&server.handle));
        monitored.monitor.set_started();
        monitored
    }

    /// Starts a monitor without a server.
    pub(crate) fn starting() -> Self {
        let endpoint = Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 };
        Self {
            monitor: Monitor::start(&endpoint, ReadinessLimits::default(), HostNames::default())
                .unwrap(),
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.monitor.local_addresses()[0]).unwrap())
    }

    /// Returns the head and the body of the response to a GET, with further headers.
    pub(crate) fn get(&self, path: &str, headers: &str) -> (String, String) {
        let mut client = self.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
        let response = String::from_utf8(client.read_to_end()).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Sends a request. Returns the head and the body of the response.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> (String, Vec<u8>) {
        let mut client = self.connect();
        client.send(request.as_ref());
        let response = client.read_to_end();
        let end = response.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {}", response.escape_ascii()));
        let (head, body) = response.split_at(end + 4);
        (String::from_utf8(head.to_vec()).unwrap(), body.to_vec())
    }

    /// Asserts the status of a response. Returns its body.
    pub(crate) fn expect(&self, path: &str, status: &str) -> String {
        let (head, body) = self.get(path, "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head} {body}");
        body
    }

    /// Returns the metrics.
    pub(crate) fn scrape(&self) -> String {
        self.expect("/metrics", "200 OK")
    }

    /// Returns the sum of the samples whose labels include these, if there are any.
    pub(crate) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let text = self.scrape();
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let samples = text.lines().filter_map(|line| {
            let (sample, value) = line.rsplit_once(' ')?;
            let (of, with) = sample.split_once('{').unwrap_or((sample, ""));
            let is_it = of == name && labels.iter().all(|label| with.contains(label));
            is_it.then(|| value.parse::<f64>().unwrap())
        });
        samples.reduce(|sum, value| sum + value)
    }

    /// Returns the same, and fails without a sample.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found = self.find(name, labels);
        found.unwrap_or_else(|| panic!("no sample {name} {labels:?} in {}", self.scrape()))
    }

    /// Blocks until such a sum satisfies a condition.
    pub(crate) fn await_value(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        is_good: impl Fn(f64) -> bool,
    ) {
        wait_until(|| self.find(name, labels).is_some_and(&is_good));
    }
}
