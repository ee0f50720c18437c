//! Names of databases, and opening by name.

use cabinet::limits::{CACHE_BYTES_MIN, INDEX_BYTES_MIN};
use cabinet::name::{INTERVAL_MS_MAX, Kind, NameError, Specification};
use cabinet::{Compression, Database, Durability, Error, KeyOrder, Options};
use std::path::Path;

fn parse(name: &str) -> Specification {
    Specification::parse(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn options(set: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    set(&mut options);
    options
}

#[test]
fn a_name_says_the_kind() {
    for (name, kind) in [
        ("*", Kind::MemoryHash),
        ("+", Kind::MemoryTree),
        ("casket.tch", Kind::Hash),
        ("/a/b.c/Casket.HDB", Kind::Hash),
        ("casket.tcb", Kind::Tree),
        ("casket.bdb", Kind::Tree),
        ("casket.tcf", Kind::Fixed),
        ("casket.FDB", Kind::Fixed),
        ("casket.Tct", Kind::Table),
        ("a=b.tdb", Kind::Table),
    ] {
        let specification = parse(name);
        assert_eq!(specification.kind, kind, "{name}");
        assert_eq!(specification.path, Path::new(name));
        assert_eq!(specification.options, Options::default());
        assert_eq!(specification.notices, Vec::<String>::new());
    }
    for name in ["", "#mode=r", "casket", "casket.", ".tch", "casket.txt", "**", "a/*", "tch"] {
        let error = Specification::parse(name).unwrap_err();
        assert!(matches!(error, NameError::UnknownKind(_)), "{name}: {error}");
    }
}

#[test]
fn tuning_sets_options() {
    let table = [
        ("casket.tch#", options(|_| {})),
        ("casket.tch#mode=wc", options(|_| {})),
        ("casket.tch#MODE=W", options(|o| o.create = false)),
        ("casket.tch#mode=wct", options(|o| o.truncate = true)),
        ("casket.tch#mode=rwcf", options(|_| {})),
        (
            "casket.tch#mode=r",
            options(|o| {
                o.read_only = true;
                o.create = false;
            }),
        ),
        (
            "casket.tch#mode=rct",
            options(|o| {
                o.read_only = true;
                o.create = false;
            }),
        ),
        ("casket.tch#opts=d", options(|o| o.compression = Compression::Zstd)),
        ("casket.tch#opts=B", options(|o| o.compression = Compression::Zstd)),
        ("casket.tch#opts=t", options(|o| o.compression = Compression::Lz4)),
        ("casket.tch#opts=dt", options(|o| o.compression = Compression::Zstd)),
        ("casket.tch#compression=LZ4#opts=d", options(|o| o.compression = Compression::Lz4)),
        ("casket.tch#opts=d#compression=none", options(|_| {})),
        ("*#compression=zstd", options(|o| o.compression = Compression::Zstd)),
        ("casket.tch#durability=none", options(|_| {})),
        ("casket.tch#durability=always", options(|o| o.durability = Durability::Always)),
        ("casket.tch#durability=interval:1", options(|o| o.durability = Durability::Interval(1))),
        (
            "casket.tch#durability=interval:3600000",
            options(|o| o.durability = Durability::Interval(INTERVAL_MS_MAX)),
        ),
        ("casket.tch#dead=10", options(|o| o.dead_percent_max = 10)),
        ("casket.tch#dead=90", options(|o| o.dead_percent_max = 90)),
        ("casket.tch#compaction=1", options(|o| o.compaction_bytes_per_second = 1)),
        ("casket.tch#compaction=2M", options(|o| o.compaction_bytes_per_second = 2 << 20)),
        ("casket.tcb#order=Decimal", options(|o| o.order = Some(KeyOrder::Decimal))),
        ("casket.tcb#order=int64", options(|o| o.order = Some(KeyOrder::Int64))),
        ("casket.tcb#cache=64k", options(|o| o.cache_bytes = Some(CACHE_BYTES_MIN))),
        ("casket.tcb#cache=65537", options(|o| o.cache_bytes = Some(CACHE_BYTES_MIN + 1))),
        ("casket.tch#index=64k", options(|o| o.index_bytes = Some(INDEX_BYTES_MIN))),
        ("casket.tch#index=16g", options(|o| o.index_bytes = Some(16 << 30))),
        ("*#capnum=1k", options(|o| o.capacity_records = 1024)),
        ("casket.tcb#capnum=7", options(|o| o.capacity_records = 7)),
        ("+#capsiz=1g#capnum=0", options(|o| o.capacity_bytes = 1 << 30)),
    ];
    for (name, expected) in table {
        let specification = parse(name);
        assert_eq!(specification.options, expected, "{name}");
        assert_eq!(specification.notices, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn tuning_without_effect_is_accepted_and_listed_in_one_line() {
    for (name, listed) in [
        ("casket.tch#bnum=1000000#apow=4#fpow=10", "bnum, apow, fpow"),
        ("casket.tch#rcnum=1m#xmsiz=512m#dfunit=8#dbgfd=1", "rcnum, xmsiz, dfunit, dbgfd"),
        ("casket.tch#opts=ld", "opts=l"),
        ("casket.tch#mode=we", "mode=e"),
        ("casket.tch#apow=-1", "apow"),
        ("casket.tch#capnum=5#idx=name:lex", "capnum, idx"),
        ("casket.tcb#lmemb=128#nmemb=256#lcnum=1024#ncnum=512", "lmemb, nmemb, lcnum, ncnum"),
        ("casket.tch#order=lexical#cache=1m", "order, cache"),
        ("casket.tcf#index=1m", "index"),
        ("*#bnum=5#mode=r#opts=l", "bnum, mode, opts"),
        ("+#durability=always#dead=50#compaction=1m", "durability, dead, compaction"),
    ] {
        let notices = parse(name).notices;
        assert_eq!(notices.len(), 1, "{name}");
        assert!(notices[0].ends_with(&format!(": {listed}")), "{name}: {notices:?}");
    }
}

#[test]
fn wrong_tuning_is_an_error_that_names_it_and_what_would_be_allowed() {
    for (name, parts) in [
        ("casket.tch#bnun=5", &["bnun", "bnum"][..]),
        ("casket.tch#=5", &["\"\"", "bnum"]),
        ("casket.tch#fast", &["fast", "key=value"]),
        ("casket.tch#bnum=many", &["bnum=many", "whole number"]),
        ("casket.tch#bnum=", &["bnum=", "whole number"]),
        ("casket.tch#mode=wx", &["mode=wx", "wrctef"]),
        ("casket.tch#mode=", &["mode=", "wrctef"]),
        ("casket.tch#opts=x", &["opts=x", "ldbt"]),
        ("casket.tch#compression=gzip", &["compression=gzip", "none, lz4 or zstd"]),
        ("casket.tch#durability=sometimes", &["durability=sometimes", "always"]),
        ("casket.tch#durability=interval:0", &["durability=interval:0", "1 to 3600000"]),
        ("casket.tch#durability=interval:3600001", &["interval:3600001", "1 to 3600000"]),
        ("casket.tch#dead=9", &["dead=9", "10 to 90"]),
        ("casket.tch#dead=91", &["dead=91", "10 to 90"]),
        ("casket.tcb#order=random", &["order=random", "lexical, decimal, int32 or int64"]),
        ("casket.tcb#cache=65535", &["cache=65535", "at least 65536"]),
        ("casket.tch#compaction=0", &["compaction=0", "more than 0"]),
        ("casket.tct#idx=name:bogus", &["idx=name:bogus", "lex, dec, tok or qgr"]),
        ("casket.tct#idx=name:void", &["idx=name:void", "lex, dec, tok or qgr"]),
        ("*#capnum=-1", &["capnum=-1", "whole number"]),
        ("*#capsiz=16e", &["capsiz=16e", "whole number"]),
    ] {
        let error = Specification::parse(name).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{name}: {error} should name {part}");
        }
        assert!(matches!(Database::open(name), Err(Error::Name(_))), "{name}");
    }
}

#[test]
fn a_table_gets_the_indices_that_its_name_asks_for_and_keeps_those_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tct").display().to_string();
    let indices = |tuning: &str| {
        let database = Database::open(&format!("{path}{tuning}")).unwrap();
        let indices = database.table().unwrap().indices();
        let show = |index: cabinet::table::IndexDescription| {
            format!("{}:{}", String::from_utf8(index.column).unwrap(), index.kind.name())
        };
        indices.into_iter().map(show).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(indices("#idx=name:lex#idx=age:dec#query_memory=1m"), "age:decimal name:lexical");
    let more = "#idx=age:tok#idx=text:FTS#idx=plain";
    let all = "age:decimal name:lexical plain:lexical text:qgram";
    assert_eq!(indices(more), all);
}

#[test]
fn the_mode_says_whether_a_database_is_created_emptied_or_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("casket.tch").display().to_string();
    let open = |mode: &str| Database::open(&format!("{path}#mode={mode}"));
    for mode in ["r", "w", "rc"] {
        assert!(matches!(open(mode), Err(Error::Io { .. })), "{mode}: there is none");
    }
    open("wc").unwrap().put(b"key", b"value").unwrap();
    let reader = open("r").unwrap();
    assert_eq!(reader.get(b"key").unwrap().unwrap(), b"value");
    assert!(reader.put(b"key", b"other").is_err());
    assert!(matches!(open("w"), Err(Error::InUse { .. })));
    drop(reader);
    assert_eq!(open("w").unwrap().get(b"key").unwrap().unwrap(), b"value");
    assert!(open("wt").unwrap().is_empty());
}

#[test]
fn on_memory_kinds_open_by_name_with_their_caps() {
    for name in ["*#capnum=10", "+#capnum=10"] {
        let database = Database::open(name).unwrap();
        assert_eq!(database.path(), Path::new(&name[..1]));
        for number in 0..100u32 {
            database.put(&number.to_be_bytes(), b"").unwrap();
        }
        assert_eq!(database.len(), 10, "{name}");
    }
}

#[test]
fn a_handle_for_reading_refuses_every_write() {
    let mut options = Options::default();
    options.read_only = true;
    let database = options.open("*").unwrap();
    assert_eq!(database.get(b"key").unwrap(), None);
    assert!(database.put(b"key", b"value").is_err());
    assert!(database.remove(b"key").is_err());
    assert!(database.add_int(b"key", 1).is_err());
    assert!(database.clear().is_err());
    assert!(database.optimize().is_err());
    assert!(database.write(&cabinet::Batch::new()).is_err());
    assert!(database.is_empty());
}
