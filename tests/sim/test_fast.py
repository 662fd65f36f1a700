"""What can be said of `fast.py` without compiling for minutes; `--check` says the rest."""

import ast
from collections import defaultdict

from sim import fast


def test_what_is_changed_in_the_copy_is_where_it_was() -> None:
    files = dict(fast.sources())
    changed = {name for name, content in fast.patched(files).items() if content != files[name]}
    assert changed == {name for name, _, _ in fast.PATCHES}


def test_every_pattern_names_something_to_compile() -> None:
    names = [name for name, _ in fast.sources()]
    for pattern in fast.COMPILED:
        assert any(fast.fnmatch(name, pattern) for name in names), pattern


def test_a_name_is_for_one_kind_of_error_in_what_is_compiled() -> None:
    """In one function mypyc takes what is caught later under the same name for the first kind."""
    files, found = dict(fast.sources()), []
    for name in fast.compiled(files):
        for function in ast.walk(ast.parse(files[name])):
            if not isinstance(function, ast.FunctionDef):
                continue
            kinds = defaultdict(set)
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    kinds[node.name].add(ast.unparse(node.type))
            found += [f"{name}:{function.name}" for many in kinds.values() if len(many) > 1]
    assert found == []
