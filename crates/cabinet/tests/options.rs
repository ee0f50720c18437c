//! Options that are set by methods.

use cabinet::limits::{
    CACHE_BYTES_MIN, CAPACITY_BYTES_MIN, FIXED_WIDTH_BYTES_MAX, INDEX_BYTES_MIN, INTERVAL_MS_MAX,
};
use cabinet::name::Specification;
use cabinet::table::Table;
use cabinet::{
    Clock, Compression, Database, Durability, Error, IndexKind, KeyOrder, Kind, Options,
};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn each_method_sets_what_its_key_in_a_name_sets() {
    let new = Options::new;
    let pairs = [
        ("a.tch#mode=w", new().create(false)),
        ("a.tch#mode=wc", new().create(true)),
        ("a.tch#mode=r", new().read_only(true)),
        ("a.tch#mode=wct", new().truncate(true)),
        ("a.tch#durability=always", new().durability(Durability::Always)),
        ("a.tch#durability=interval:7", new().durability(Durability::Interval(7))),
        ("a.tch#compression=lz4", new().compression(Compression::Lz4)),
        ("a.tch#compression=zstd", new().compression(Compression::Zstd)),
        ("a.tch#opts=t", new().compression(Compression::Lz4)),
        ("a.tch#dead=50", new().dead_percent_max(50)),
        ("a.tch#compaction=1m", new().compaction_bytes_per_second(1 << 20)),
        ("a.tcb#order=int32", new().order(KeyOrder::Int32)),
        ("a.tcb#cache=1m", new().cache_bytes(1 << 20)),
        ("a.tch#index=1m", new().index_bytes(1 << 20)),
        ("a.tct#query_memory=1m", new().query_memory_bytes(1 << 20)),
        ("a.tct#idx=age:dec", new().column_index("age", IndexKind::Decimal)),
        (
            "a.tct#idx=age:dec#idx=:lex",
            new().column_index("age", IndexKind::Decimal).column_index("", IndexKind::Lexical),
        ),
        ("*#capnum=7", new().capacity_records(7)),
        ("a.tch#capsiz=5m", new().capacity_bytes(5 << 20)),
        ("*#memory=1m", new().memory_bytes(1 << 20)),
        ("a.tcf#width=8", new().width(8)),
        ("a.tcf#limsiz=1m", new().limit_bytes(1 << 20)),
    ];
    for (name, options) in &pairs {
        assert_eq!(&Specification::parse(name).unwrap().options, options, "{name}");
        assert!(*options != new() || *name == "a.tch#mode=wc", "{name}");
    }
    // Every key of a name is above, but for those that are Tokyo Cabinet's alone.
    let error = Specification::parse("a.tch#no=1").unwrap_err().to_string();
    let known = error.split("known are ").nth(1).unwrap();
    let tested: BTreeSet<&str> = pairs
        .iter()
        .flat_map(|(name, _)| name.split('#').skip(1))
        .map(|pair| pair.split('=').next().unwrap())
        .collect();
    let idle = [
        "bnum", "apow", "fpow", "rcnum", "xmsiz", "dfunit", "lmemb", "nmemb", "lcnum", "ncnum",
        "lsmax", "dbgfd",
    ];
    let missing: Vec<&str> = known
        .split(',')
        .map(str::trim)
        .filter(|key| !idle.contains(key) && !tested.contains(key))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn methods_without_a_key_set_their_fields() {
    assert_eq!(Options::new(), Options::default());
    assert_eq!(Options::new().segment_bytes(1 << 20).segment_bytes, Some(1 << 20));
    assert_eq!(Options::new().leaf_bytes(512).leaf_bytes, Some(512));
    assert_eq!(Options::new().kind(Kind::Tree).kind, Some(Kind::Tree));
    let (clock, _) = Clock::manual(7);
    assert_eq!(Options::new().clock(clock.clone()).clock, clock);
}

#[test]
fn a_value_out_of_its_bounds_is_refused_by_name_and_makes_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let new = Options::new;
    let interval = |ms| new().durability(Durability::Interval(ms));
    for (kind, name, good, bad) in [
        (Kind::Hash, "interval", vec![1, INTERVAL_MS_MAX], vec![0, INTERVAL_MS_MAX + 1]),
        (Kind::Hash, "dead_percent_max", vec![10, 90], vec![9, 91]),
        (Kind::Hash, "compaction_bytes_per_second", vec![1], vec![0]),
        (
            Kind::Hash,
            "segment_bytes",
            vec![64 << 10, 64 << 20],
            vec![(64 << 10) - 1, (64 << 20) + 1],
        ),
        (Kind::Tree, "cache_bytes", vec![CACHE_BYTES_MIN], vec![0, CACHE_BYTES_MIN - 1]),
        (Kind::Hash, "index_bytes", vec![INDEX_BYTES_MIN], vec![0, INDEX_BYTES_MIN - 1]),
        (Kind::Tree, "leaf_bytes", vec![256, 64 << 10], vec![255, (64 << 10) + 1]),
        (
            Kind::Hash,
            "capacity_bytes",
            vec![0, CAPACITY_BYTES_MIN],
            vec![1, CAPACITY_BYTES_MIN - 1],
        ),
        (Kind::Fixed, "width", vec![1, FIXED_WIDTH_BYTES_MAX], vec![0, FIXED_WIDTH_BYTES_MAX + 1]),
    ] {
        let options = |value: u64| {
            let small = u32::try_from(value).unwrap_or(u32::MAX);
            match name {
                "interval" => interval(value),
                "dead_percent_max" => new().dead_percent_max(value as u8),
                "compaction_bytes_per_second" => new().compaction_bytes_per_second(value),
                "segment_bytes" => new().segment_bytes(small),
                "cache_bytes" => new().cache_bytes(value),
                "index_bytes" => new().index_bytes(value),
                "leaf_bytes" => new().leaf_bytes(small),
                "capacity_bytes" => new().capacity_bytes(value),
                _ => new().width(value),
            }
        };
        for value in good {
            let path = folder.path().join(format!("{name}-{value}"));
            options(value).kind(kind).open(&path).unwrap_or_else(|error| panic!("{error}"));
        }
        for value in bad {
            let path = folder.path().join(format!("{name}-{value}"));
            let error = options(value).kind(kind).open(&path).err().expect("a refusal");
            assert!(matches!(error, Error::InvalidArgument(_)), "{name} {value}: {error}");
            assert!(error.to_string().contains(name), "{name} {value}: {error}");
            assert!(!path.exists(), "{name} {value}");
        }
    }
}

#[test]
fn every_way_to_open_refuses_an_option_out_of_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tct");
    let options = Options::new().dead_percent_max(9);
    let name = path.display().to_string();
    let mut specification = Specification::parse(&name).unwrap();
    specification.options = options.clone();
    for (way, opened) in [
        ("a name", Database::open(&format!("{name}#dead=9")).map(drop)),
        ("options", options.open(&path).map(drop)),
        ("a table", Table::open(&path, &options).map(drop)),
        ("a parsed name", Database::open_specification(&specification).map(drop)),
    ] {
        let error = opened.expect_err(way);
        assert!(matches!(error, Error::InvalidArgument(_) | Error::Name(_)), "{way}: {error}");
        assert!(!path.exists(), "{way}");
    }
}

#[test]
fn a_table_is_opened_as_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path, options: &Options| {
        let error = Table::open(path, options).err().expect("a refusal");
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(!path.exists());
    };
    refused(&folder.path().join("a.tch"), &Options::new());
    refused(&folder.path().join("a"), &Options::new().kind(Kind::Hash));
    Table::open(&folder.path().join("a"), &Options::new()).unwrap();
}

#[test]
fn a_kind_that_is_given_needs_no_suffix() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, suffix) in
        [(Kind::Hash, "tch"), (Kind::Tree, "tcb"), (Kind::Fixed, "tcf"), (Kind::Table, "tct")]
    {
        let path = folder.path().join(kind.title().replace(' ', "-"));
        let open = || Options::new().kind(kind).open(&path);
        let database = open().unwrap();
        database.put(b"1", b"column\0value").unwrap();
        assert_eq!(database.kind(), Some(kind));
        drop(database);
        assert!(open().unwrap().get(b"1").unwrap().is_some());
        let with_suffix = folder.path().join(format!("a.{suffix}"));
        Options::new().kind(kind).open(&with_suffix).unwrap();
        assert_eq!(Options::new().open(&with_suffix).unwrap().kind(), Some(kind));
    }
    // The files know their kind.
    let error = Options::new().kind(Kind::Tree).open(folder.path().join("hash")).err().unwrap();
    assert!(matches!(error, Error::WrongKind { .. }), "{error}");
    let error = Options::new().open(folder.path().join("hash")).err().unwrap();
    assert!(matches!(error, Error::Name(_)), "{error}");
}

#[test]
fn a_kind_that_contradicts_the_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tch");
    let error = Options::new().kind(Kind::Tree).open(&path).err().unwrap();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    assert!(!path.exists());
    let path = folder.path().join("a");
    let error = Options::new().kind(Kind::MemoryHash).open(&path).err().unwrap();
    assert!(error.to_string().contains("name it *"), "{error}");
    Options::new().kind(Kind::MemoryHash).open("*").unwrap();
    Options::new().open("+").unwrap();
}

#[test]
fn tuning_of_an_open_database_knows_the_kind_without_a_suffix() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Options::new().kind(Kind::Fixed).width(8).open(folder.path().join("numbers"));
    let database: Database = open().unwrap();
    database.retune("width=16").unwrap();
    assert_eq!(database.as_numbered().unwrap().width(), 16);
}

#[test]
fn a_path_with_settings_behind_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.tcb#durability=always", "b#nonsense=1"] {
        let path = folder.path().join(name);
        let opened = Options::new().kind(Kind::Tree).open(&path);
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("settings behind # have no effect here"), "{error}");
        assert!(!path.exists());
    }
    // Folders above may be called anything.
    let above = folder.path().join("c#");
    std::fs::create_dir(&above).unwrap();
    Options::new().open(above.join("b.tcb")).unwrap();
}
