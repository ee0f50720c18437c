"""Iterations, ranges, prefixes, cursors, duplicates."""

import pytest

import cabinet


def fill(database, keys):
    for key in keys:
        database[key] = key.encode()


def test_ranges_forwards_and_backwards(ordered):
    keys = [b"%04d" % number for number in range(2000)]
    ordered.put_many((key, key) for key in keys)
    assert list(ordered) == keys
    assert list(reversed(ordered)) == keys[::-1]
    for start, stop in ((None, None), (5, None), (None, 1990), (3, 1997), (8, 8), (9, 3)):
        bounds = [None if bound is None else b"%04d" % bound for bound in (start, stop)]
        expected = keys[start:stop]
        assert list(ordered.iter_keys(*bounds)) == expected
        assert list(ordered.iter_values(*bounds)) == expected
        assert list(ordered.iter_items(*bounds)) == [(key, key) for key in expected]
        assert list(ordered.iter_keys(*bounds, reverse=True)) == expected[::-1]
        assert list(ordered.iter_items(*bounds, reverse=True)) == [
            (key, key) for key in expected[::-1]
        ]


def test_prefixes(keyed):
    fill(keyed, ["a", "ab", "abc", "b", "ba", "\U0010ffff", "a\U0010ffffx"])
    keyed[b"\xff\xff"] = b"last"
    for prefix in ("", "a", "ab", "b", "c", b"\xff", b"\xff\xff", b"\xff\xff\xff", "\U0010ffff"):
        data = prefix.encode() if isinstance(prefix, str) else prefix
        expected = sorted(key for key in keyed if key.startswith(data))
        assert sorted(keyed.iter_keys(prefix=prefix)) == expected
        if keyed.kind.endswith("tree"):
            assert list(keyed.iter_keys(prefix=prefix)) == expected
            assert list(keyed.iter_keys(prefix=prefix, reverse=True)) == expected[::-1]
    if keyed.kind.endswith("tree"):
        assert list(keyed.iter_keys("ab", "abd", prefix="a")) == [b"ab", b"abc"]
        assert list(keyed.iter_keys("ab", prefix="b", reverse=True)) == [b"ba", b"b"]


def test_patterns(keyed):
    fill(keyed, ["apple", "Banana", "cherry"])
    assert list(keyed.iter_keys(pattern="an.*a$")) == [b"Banana"]
    assert list(keyed.iter_values(pattern="*BANANA")) == [b"Banana"]
    with pytest.raises(cabinet.BadPatternError):
        keyed.iter_keys(pattern="(")


def test_an_unordered_database_has_no_ranges(opened):
    database = opened("a.tch")
    for call in (
        lambda: database.iter_keys("a"),
        lambda: database.iter_keys(stop="a"),
        lambda: database.iter_keys(reverse=True),
        lambda: reversed(database),
        lambda: database.cursor(),
        lambda: database.get_all("a"),
    ):
        with pytest.raises(cabinet.UnsupportedError):
            call()


def test_records_may_be_changed_during_an_iteration(keyed):
    keyed.put_many(("%d" % number, b"x") for number in range(1000))
    seen = set()
    for key in keyed:
        seen.add(key)
        del keyed[key]
    assert len(seen) == 1000 and len(keyed) == 0


def test_duplicates(opened):
    tree = opened("a.tcb")
    for number in range(5):
        tree.put_duplicate("b", b"%d" % number)
    tree.put_duplicate("b", b"first", before=True)
    fill(tree, ["a", "c"])
    values = [b"first", b"0", b"1", b"2", b"3", b"4"]
    assert tree.get_all("b") == values and tree.count("b") == 6
    assert tree["b"] == b"first"
    assert tree.get_all("x") == [] and tree.count("x") == 0
    assert list(tree.iter_values()) == [b"a", *values, b"c"]
    assert list(tree.iter_values(reverse=True)) == [b"c", *values[::-1], b"a"]
    assert len(tree) == 8
    assert tree.remove_all("b") == 6 and tree.remove_all("b") == 0


def test_more_duplicates_than_a_portion_are_read_backwards(opened):
    tree = opened("a.tcb")
    for key in ("a", "b", "c"):
        for number in range(700):
            tree.put_duplicate(key, b"%d" % number)
    items = list(tree.iter_items())
    assert len(items) == 2100
    assert list(tree.iter_items(reverse=True)) == items[::-1]
    assert list(tree.iter_items("b", "c", reverse=True)) == items[1399:699:-1]


def test_orders_of_numbers(opened):
    tree = opened("a.tcb", order="decimal", keys="str")
    fill(tree, ["10", "9", "-1", "100"])
    assert list(tree) == ["-1", "9", "10", "100"]
    assert list(tree.iter_keys("9", "100")) == ["9", "10"]
    assert list(tree.iter_keys("9", "100", reverse=True)) == ["10", "9"]
    assert list(tree.iter_keys(prefix="1")) == ["10", "100"]
    assert list(tree.iter_keys(prefix="1", reverse=True)) == ["100", "10"]
    assert list(tree.iter_keys("9", prefix="1", reverse=True)) == ["100", "10"]


def test_a_cursor_moves_and_changes(opened):
    tree = opened("a.tcb", keys="str")
    fill(tree, ["a", "b", "c"])
    cursor = tree.cursor()
    assert cursor.key is None and cursor.value is None
    assert cursor.first() and cursor.key == "a" and cursor.value == b"a"
    assert cursor.next() and cursor.key == "b"
    assert cursor.insert_after(b"b2") and cursor.value == b"b2"
    assert cursor.insert_before(b"b1") and cursor.value == b"b1"
    assert tree.get_all("b") == [b"b", b"b1", b"b2"]
    assert cursor.put(b"b0") and tree.get_all("b") == [b"b", b"b0", b"b2"]
    assert cursor.remove() and cursor.value == b"b2"
    assert cursor.jump("bb") and cursor.key == "c"
    assert cursor.jump_back("bb") and cursor.value == b"b2"
    assert cursor.prev() and cursor.prev() and cursor.key == "a" and not cursor.prev()
    assert cursor.last() and cursor.key == "c" and not cursor.next()
    tree.close()
    for call in (cursor.first, lambda: cursor.key, cursor.remove):
        with pytest.raises(cabinet.ClosedError):
            call()


def test_an_iterator_of_a_closed_database_fails(keyed):
    keyed.put_many(("%d" % number, b"x") for number in range(1000))
    iterator = iter(keyed.items())
    next(iterator)
    keyed.close()
    with pytest.raises(cabinet.ClosedError):
        next(iterator)
