"""The programs of the page."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs/python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAMS[number], f"{PAGE.name}, program {number + 1}", "exec"), {})


def test_the_page_has_programs():
    assert len(PROGRAMS) >= 6
