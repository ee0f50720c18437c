//! Scans: promises about scans of many records.

use crate::for_each_engine;
use crate::subject::Subject;
use cabinet::Clock;

for_each_engine!(a_scan_from_a_key_visits_it_first_and_agrees_with_the_scan_of_all);

fn a_scan_from_a_key_visits_it_first_and_agrees_with_the_scan_of_all<S: Subject>() {
    let subject = S::new(Clock::real());
    let database = subject.database();
    for number in 0..4000u32 {
        database.put(&number.to_be_bytes(), b"").unwrap();
    }
    let mut all = Vec::new();
    let mut position = Some(cabinet::ScanCursor::Start);
    while let Some(from) = position {
        position = database.scan_keys(&from, |key| all.push(key.to_vec())).unwrap();
    }
    assert_eq!(all.len(), 4000);
    for (index, key) in all.iter().enumerate().step_by(7) {
        let mut rest = Vec::new();
        database.scan_keys(&database.scan_cursor_of(key), |key| rest.push(key.to_vec())).unwrap();
        assert!(all[index..].starts_with(&rest));
    }
}
