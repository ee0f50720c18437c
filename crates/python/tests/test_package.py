"""The package as a whole: names, types, errors."""

import ast
import inspect
import pathlib

import cabinet
from cabinet import _cabinet, _errors


def test_all_names_are_there():
    assert sorted(set(cabinet.__all__)) == sorted(cabinet.__all__)
    for name in cabinet.__all__:
        assert getattr(cabinet, name) is not None


def test_the_stubs_have_what_the_extension_has():
    folder = pathlib.Path(cabinet.__file__).parent
    assert (folder / "py.typed").exists()
    stubs = ast.parse((folder / "_cabinet.pyi").read_text())
    stated = {}
    for node in stubs.body:
        if isinstance(node, ast.ClassDef):
            names = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            stated[node.name] = names
        elif isinstance(node, ast.FunctionDef):
            stated[node.name] = None
    found = {name for name in vars(_cabinet) if not name.startswith("__")}
    assert found == set(stated)
    for name, members in stated.items():
        if members is not None:
            here = {member for member in vars(getattr(_cabinet, name)) if member[:2] != "__"}
            assert here == {member for member in members if member[:2] != "__"}, name


def test_each_error_is_exported_and_below_the_base():
    classes = {
        name: value
        for name, value in vars(_errors).items()
        if inspect.isclass(value) and not name.startswith("_")
    }
    assert len(classes) > 30
    for name, value in classes.items():
        assert issubclass(value, cabinet.Error)
        assert getattr(cabinet, name) is value and value.__doc__


def test_each_error_of_the_extension_has_a_class():
    source = pathlib.Path(__file__).parents[1] / "src"
    for file in source.glob("*.rs"):
        for word in file.read_text().split('"'):
            if word.endswith("Error") and word.isalpha() and word != "Error":
                assert hasattr(_errors, word), f"{file.name} raises {word}"


def test_methods_are_documented():
    for owner in (cabinet.Database, cabinet.Transaction, cabinet.Batch, cabinet.Cursor):
        for name in dir(owner):
            if not name.startswith("_"):
                assert inspect.getdoc(getattr(owner, name)), f"{owner.__name__}.{name}"
