"""Tables: rows, indices, queries."""

import datetime
import io

import pytest

import cabinet
from cabinet import KEY, column

PEOPLE = {
    "p1": {"name": "Ann", "age": "34", "tags": "red,blue", "city": "Bern"},
    "p2": {"name": "Bob", "age": "9", "tags": "red", "city": "Bonn"},
    "p3": {"name": "Cleo", "age": "71", "tags": "", "city": "Bern"},
    "p4": {"name": "Dan", "age": "18"},
}


@pytest.fixture
def people(opened):
    table = opened("people.tct")
    table.update(PEOPLE)
    return table


def keys(query):
    return sorted(query.keys())


def test_rows_are_dicts(people, opened):
    assert isinstance(people, cabinet.Table)
    assert dict(people) == PEOPLE and people["p1"] == PEOPLE["p1"]
    people["p5"] = {"name": b"Eve", "age": 5, "weight": 20.5, "none": None, "is": True}
    assert people["p5"] == {"name": "Eve", "age": "5", "weight": "20.5", "is": "1"}
    people["p6"] = {}
    assert people["p6"] == {} and len(people) == 6
    del people["p6"]
    assert people.pop("p5")["name"] == "Eve"
    assert people.get_many(["p1", "x"]) == [PEOPLE["p1"], None]
    assert list(people.iter_keys("p2", "p4")) == ["p2", "p3"]
    assert people.modify("p2", lambda row: {**row, "age": 10})["age"] == 10
    assert people["p2"]["age"] == "10"
    with people.transaction() as transaction:
        transaction["p7"] = {"name": "Gil"}
        assert transaction["p7"] == {"name": "Gil"}
    assert people["p7"] == {"name": "Gil"}
    for wrong, error in (
        ({"a": [1]}, TypeError),
        ({5: "a"}, None),
        ({"": "a"}, cabinet.BadColumnError),
        ({"a": "b\0c"}, ValueError),
        ("text", AttributeError),
    ):
        if error is None:
            people["p8"] = wrong
            assert people["p8"] == {"5": "a"}
        else:
            with pytest.raises(error):
                people["p8"] = wrong
    raw = opened("raw.tct", codec="raw", keys="bytes")
    raw["a"] = {"name": b"\xff"}
    assert dict(raw) == {b"a": {b"name": b"\xff"}}
    with pytest.raises(ValueError, match="codec"):
        cabinet.open("a.tct", codec="json")
    with pytest.raises(cabinet.UnsupportedError):
        reversed(people)


def test_keys_are_generated(people):
    key = people.insert({"name": "Fay"})
    other = people.insert({"name": "Gus"})
    assert people[key] == {"name": "Fay"} and key != other
    assert people.new_id() > int(other)


def test_conditions(people):
    for condition, expected in (
        (column("name") == "Ann", ["p1"]),
        (column("name") != "Ann", ["p2", "p3", "p4"]),
        (column("age") == 9, ["p2"]),
        (column("age") != 9, ["p1", "p3", "p4"]),
        (column("age") > 18, ["p1", "p3"]),
        (column("age") >= 18, ["p1", "p3", "p4"]),
        (column("age") < 18, ["p2"]),
        (column("age") <= 18.0, ["p2", "p4"]),
        (column("age").between(9, 34), ["p1", "p2", "p4"]),
        (column("age").is_in([9, 71]), ["p2", "p3"]),
        (column("name").is_in(["Bob", "Dan"]), ["p2", "p4"]),
        (column("name").contains("n"), ["p1", "p4"]),
        (column("name").startswith("C"), ["p3"]),
        (column("name").endswith("b"), ["p2"]),
        (column("name").matches("^.o"), ["p2"]),
        (column("name").matches("*^ANN$"), ["p1"]),
        (column("tags").has_all(["red", "blue"]), ["p1"]),
        (column("tags").has_any(["red", "green"]), ["p1", "p2"]),
        (column("city").text("bern || bonn"), ["p1", "p2", "p3"]),
        (column("city").text("BERN").without_index(), ["p1", "p3"]),
        (~(column("city") == "Bern"), ["p2", "p4"]),
        (~~(column("city") == "Bern"), ["p1", "p3"]),
        (KEY.startswith("p"), ["p1", "p2", "p3", "p4"]),
        ((column("city") == "Bern") & (column("age") < 70), ["p1"]),
    ):
        assert keys(people.query(condition)) == expected, condition
        assert people.query(condition).count() == len(expected)
    for name, kind in (("age", "dec"), ("name", "lex"), ("tags", "tok"), ("city", "qgr")):
        people.set_index(name, kind)
    assert people.indices == {"age": "decimal", "name": "lexical", "tags": "token", "city": "qgram"}
    assert keys(people.query(column("age") > 18)) == ["p1", "p3"]
    people.remove_index("age")
    assert "age" not in people.indices
    with pytest.raises(cabinet.NoIndexError):
        people.remove_index("age")
    with pytest.raises(ValueError, match="lex"):
        people.set_index("age", "btree")


def test_conditions_that_make_no_sense_are_errors(people):
    for wrong in (
        lambda: column("age") > "18",
        lambda: column("a").between("a", "b"),
        lambda: (column("a") == 1) | (column("b") == 2),
        lambda: (column("a") == 1) and (column("b") == 2),
        lambda: ~((column("a") == 1) & (column("b") == 2)),
        lambda: column("a") == [1],
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="pattern"):
        people.query(column("a").matches("(")).keys()


def test_order_limit_and_rows(people):
    adults = people.query(column("age") >= 18)
    by_age = adults.order_by("age", numeric=True, descending=True)
    assert by_age.keys() == ["p3", "p1", "p4"]
    assert by_age.limit(1, skip=1).keys() == ["p1"]
    assert adults.order_by(column("name")).keys() == ["p1", "p3", "p4"]
    assert list(by_age.limit(2)) == [("p3", PEOPLE["p3"]), ("p1", PEOPLE["p1"])]
    assert [row["name"] for row in by_age.rows()] == ["Cleo", "Ann", "Dan"]
    assert by_age.first() == ("p3", PEOPLE["p3"])
    assert people.query(column("age") > 100).first() is None
    assert adults.where(column("city") == "Bern").remove() == 2
    assert sorted(people) == ["p2", "p4"]


def test_a_query_shows_its_plan(people):
    query = people.query(column("age") == 9)
    plan = query.explain()
    assert plan.results == 1 and plan.rows_read == 4 and "rows" in str(plan)
    people.set_index("age", "dec")
    plan = query.explain()
    assert plan.results == 1 and plan.rows_read < 4 and plan.postings_read >= 1
    assert "index" in plan.steps and "age" in plan.steps


def test_results_of_queries_are_combined(people):
    bern = people.query(column("city") == "Bern")
    red = people.query(column("tags").has_any(["red"]))
    assert keys(bern | red) == ["p1", "p2", "p3"]
    assert keys(bern & red) == ["p1"]
    assert keys(bern - red) == ["p3"]
    assert (bern | red).count() == 3
    dan = people.query(column("name") == "Dan")
    assert keys(bern | red | dan) == ["p1", "p2", "p3", "p4"]
    for wrong in (lambda: (bern | red) & dan, lambda: bern - (red - dan), (bern | red).remove):
        with pytest.raises(TypeError):
            wrong()


def test_tables_alone_have_queries(opened):
    with pytest.raises(cabinet.UnsupportedError):
        opened("a.tch")._count([([], None, None, 0)], "union")
    with cabinet.open("*") as database:
        assert not hasattr(database, "query")


def test_rows_have_no_expiry_and_no_flags(people):
    for use in (
        lambda: people.put("p1", {"a": "1"}, ttl=60),
        lambda: people.put("p1", {"a": "1"}, expires_at=5),
        lambda: people.put("p1", {"a": "1"}, flags=1),
        lambda: people.put_many({"p1": {"a": "1"}}, ttl=60),
        lambda: people.add("p9", {"a": "1"}, ttl=60),
        lambda: people.replace("p1", {"a": "1"}, flags=1),
        lambda: people.compare_and_swap("p1", PEOPLE["p1"], {"a": "1"}, ttl=60),
        lambda: people.put_if_version("p9", 0, {"a": "1"}, ttl=60),
        lambda: people.modify("p1", lambda row: {"a": "1"}, ttl=60),
        lambda: people.touch("p1", 60),
        lambda: people.touch("p1"),
        lambda: people.batch().put("p1", {"a": "1"}, flags=1),
        lambda: people.transact(lambda transaction: transaction.put("p1", {"a": "1"}, ttl=60)),
    ):
        with pytest.raises(cabinet.UnsupportedError, match="no expiry and no flags"):
            use()
    assert dict(people) == PEOPLE


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_stored_number_comes_back_and_is_found(opened, is_indexed):
    numbers = [0, 1e20, -1e20, 1e-7, 2.5e-5, 123456789012345.6, 0.1, 1e16, 2**63, -0.0, 1e30]
    table = opened("a.tct", indices={"n": "dec"} if is_indexed else None)
    for key, number in enumerate(numbers):
        table[str(key)] = {"n": number}
        assert float(table[str(key)]["n"]) == number
    table["inf"] = {"n": float("inf")}
    for number in numbers:
        expected = [str(key) for key, other in enumerate(numbers) if other == number]
        assert keys(table.query(column("n") == number)) == expected, number
        assert keys(table.query(column("n").is_in([number]))) == expected
        assert keys(table.query(column("n").between(number, number))) == expected
        greater = [str(key) for key, other in enumerate(numbers) if other > number]
        assert keys(table.query(column("n") > number)) == sorted([*greater, "inf"])
    assert keys(table.query(column("n") == float("inf"))) == ["inf"]
    for wrong in (float("nan"), 1e39, -(10**38)):
        for condition in (
            lambda: column("n") == wrong,
            lambda: column("n") != wrong,
            lambda: column("n") > wrong,
            lambda: column("n").between(0, wrong),
            lambda: column("n").is_in([0, wrong]),
        ):
            with pytest.raises(ValueError, match="number"):
                condition()


def test_lists_of_tokens_are_what_they_say(people):
    people["p5"] = {"name": "Eve Ann", "tags": "light red"}
    name, tags = column("name"), column("tags")
    for wrong in (
        lambda: name.is_in(["Eve Ann"]),
        lambda: name.is_in(["Bob", "Dan,Ann"]),
        lambda: name.is_in([""]),
        lambda: tags.has_any(["light red"]),
        lambda: tags.has_all(["red", "blue\t"]),
    ):
        with pytest.raises(ValueError, match="join queries by |"):
            wrong()
    for wrong in (
        lambda: name.is_in("Bob"),
        lambda: tags.has_any("red"),
        lambda: name.is_in(["1", 2]),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert keys(people.query(name == "Eve Ann") | people.query(name == "Bob")) == ["p2", "p5"]
    assert keys(people.query(name.is_in([]))) == keys(people.query(tags.has_any([]))) == []


def test_a_combination_is_ordered_and_limited_as_a_whole(people):
    bern = people.query(column("city") == "Bern")
    bonn = people.query(column("city") == "Bonn")
    aged = people.query(column("age") > 0)
    by_age = aged.order_by("age", numeric=True)
    down = aged.order_by("age", numeric=True, descending=True)
    assert (by_age | bern).keys() == ["p2", "p4", "p1", "p3"]
    assert (down | bern).limit(2).keys() == ["p3", "p1"]
    assert (down | bern).limit(2, skip=1).keys() == ["p1", "p4"]
    assert (by_age & bern).keys() == ["p1", "p3"]
    assert (down & bern).keys() == ["p3", "p1"]
    assert (down & bern & aged).keys() == ["p3", "p1"]
    assert (down & bern).limit(1).keys() == ["p3"]
    assert (down & bern).limit(1, skip=1).keys() == ["p1"]
    assert (down - bonn).limit(2, skip=1).keys() == ["p1", "p4"]
    assert (down - bonn - bern).keys() == ["p4"]
    combined = bern | bonn
    assert combined.limit(1).count() == 1 and combined.count() == 3
    assert combined.limit(2).first() is not None
    for wrong in (
        lambda: bern.limit(1) | bonn,
        lambda: bern | bonn.limit(1),
        lambda: bern & bonn.limit(None, skip=1),
        lambda: bern - bonn.limit(1),
        lambda: (bern | bonn).limit(1) | aged,
        lambda: bern | by_age,
    ):
        with pytest.raises(TypeError, match="limit the combination|order that alone"):
            wrong()


@pytest.mark.alone
def test_a_table_may_be_opened_for_reading_only(people, opened):
    people.set_index("age", "dec")
    people.close()
    table = opened("people.tct", read_only=True)
    assert dict(table) == PEOPLE and table.read_only
    assert keys(table.query(column("age") > 18)) == ["p1", "p3"]
    assert table.query(column("age") > 18).explain().postings_read > 0
    with cabinet.open(table.path, read_only=True) as other:
        assert len(other) == 4
    for use in (
        lambda: table.insert({"a": "1"}),
        lambda: table.put("p1", {"a": "1"}),
        lambda: table.set_index("name", "lex"),
        lambda: table.remove_index("age"),
        lambda: table.query().remove(),
        table.new_id,
        table.clear,
    ):
        with pytest.raises(cabinet.ReadOnlyError):
            use()
    assert dict(table) == PEOPLE


def test_what_a_row_is_not_is_refused(people):
    for use in (lambda: people.add_int("p1"), lambda: people.add_float("p9")):
        with pytest.raises(cabinet.UnsupportedError, match="modify"):
            use()
    for use in (
        lambda: people.put("", {"a": "1"}),
        lambda: people.put_many({"": {"a": "1"}}),
        lambda: people.setdefault("", {"a": "1"}),
        lambda: people.batch().put("", {"a": "1"}),
    ):
        with pytest.raises(cabinet.InvalidArgumentError, match="insert"):
            use()
    assert dict(people) == PEOPLE and people.get("") is None and "" not in people
    for wrong, error in ((-1, ValueError), (True, TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="limit"):
            people.query().limit(wrong)
        with pytest.raises(error, match="skip"):
            (people.query() | people.query()).limit(5, skip=wrong)


def test_indices_are_a_dict(tmp_path):
    with pytest.raises(TypeError, match="indices=.*dict"):
        cabinet.open(tmp_path / "a.tct", indices=["a"])


def test_rows_come_from_csv_and_leave_as_frames(people, tmp_path):
    file = tmp_path / "more.csv"
    file.write_text('\ufeffkey,name,age\r\np5,"Eve, the ""fifth""",5\r\n\r\np6,Fay,\r\n', "utf-8")
    assert people.put_csv(file) == 2
    assert people["p5"] == {"name": 'Eve, the "fifth"', "age": "5"} and people["p6"] == {"name": "Fay"}
    assert people.put_csv(io.StringIO("name;id\nGus;7\n"), key="id", delimiter=";") == 1
    assert people["7"] == {"name": "Gus"}
    assert people.put_csv(io.StringIO("name\nHal\n"), new_keys=True) == 1
    assert people.query(column("name") == "Hal").count() == 1
    for text, message, stored in (
        ("key,name\nq1,a\nq2,b,c\nq3,d\n", "line 3 has 3 fields", ["q1"]),
        ('key,name\nq1,a\nq2,"b\n', "line 3: ", ["q1"]),
        ("key,name\nq1,a\nq2,b\0\nq3,c\n", "line 3: ", ["q1"]),
        ("key,name\nq1,a\n,b\n", "line 3 has no value in the column 'key'", ["q1"]),
        ("key,name,name\nq1,a,b\n", "a name twice", []),
        ("key,\nq1,a\n", "an empty one", []),
    ):
        with pytest.raises(ValueError, match=message):
            people.put_csv(io.StringIO(text))
        assert list(people.iter_keys(prefix="q")) == stored
        people.query(KEY.startswith("q")).remove()
    with pytest.raises(TypeError, match="put_csv"):
        people.put_rows("more.csv")


def test_many_rows_are_stored_in_portions(opened):
    table = opened("a.tct")
    rows = ({"key": number, "n": number, "on": datetime.date(2026, 1, 2)} for number in range(1234))
    assert table.put_rows(rows) == 1234 and len(table) == 1234
    assert table["1233"] == {"n": "1233", "on": "2026-01-02"}
    rows = [{"key": "k%d" % number, "n": [1] if number == 700 else 1} for number in range(900)]
    with pytest.raises(ValueError, match="row 700: .* not list"):
        table.put_rows(rows)
    assert sum(1 for _ in table.iter_keys(prefix="k")) == 700


def test_frames_of_pandas(people):
    import pandas

    frame = people.query().to_pandas().sort_index()
    assert list(frame.index) == ["p1", "p2", "p3", "p4"] and frame.index.name == "key"
    assert frame.loc["p2", "name"] == "Bob" and pandas.isna(frame.loc["p4", "city"])
    assert pandas.to_numeric(frame["age"]).sum() == 132
    people.clear()
    assert people.put_rows(frame) == 4
    assert dict(people) == {
        key: {name: value for name, value in row.items()} for key, row in PEOPLE.items()
    }
    frame = pandas.DataFrame(
        {"id": [1, 2], "n": [1.5, None], "on": pandas.to_datetime(["2026-01-02", None])}
    )
    assert people.put_rows(frame, key="id") == 2
    assert people["1"] == {"n": "1.5", "on": "2026-01-02T00:00:00"} and people["2"] == {}
    empty = people.query(column("name") == "nobody").to_pandas()
    assert empty.empty and empty.index.name == "key"
    people["p9"] = {"key": "x"}
    with pytest.raises(ValueError, match="key="):
        people.query().to_pandas()
    assert "p9" in people.query().to_pandas(key="primary").index


def test_tables_of_arrow(people):
    import pyarrow

    table = people.query(column("age") > 10).order_by("name").to_arrow()
    assert table.column("key").to_pylist() == ["p1", "p3", "p4"]
    assert table.column("city").to_pylist() == ["Bern", "Bern", None]
    people.clear()
    assert people.put_rows(table) == 3 and people["p4"] == PEOPLE["p4"]
    batch = pyarrow.record_batch({"key": ["a"], "n": [2**60]})
    assert people.put_rows(batch) == 1 and people["a"] == {"n": str(2**60)}


def test_names_of_columns_in_arrow_are_texts(opened):
    raw = opened("a.tct", codec="raw", keys="bytes")
    raw["a"] = {"n": b"\xff"}
    assert raw.query().to_arrow().to_pydict() == {"key": [b"a"], "n": [b"\xff"]}
    raw["b"] = {b"\xff": b"1"}
    with pytest.raises(UnicodeDecodeError):
        raw.query().to_arrow()
