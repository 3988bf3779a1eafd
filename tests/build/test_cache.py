"""What the host's compiler made for every run is kept in the user's cache, and not for ever."""

import os
import time

import pytest

from tilewise.build import cpp


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of this test's own; returns its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cpp._cache.cache_clear()
    yield tmp_path / "cache/tilewise"
    cpp._cache.cache_clear()


def make(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "three.cpp").write_text(text)
    return cpp.compile_object(folder / "three.cpp"), cpp.precompiled("own.h", text, cpp.FLAGS)


def age(path, days):
    then = time.time() - days * 24 * 3600
    os.utime(path, (then, then))


def test_what_is_in_use_is_kept_and_what_is_not_goes(cache, tmp_path):
    made = make(tmp_path / "a", "int three();\n")
    for path in made:
        age(path, days=40)
    assert make(tmp_path / "a", "int three();\n") == made, "the same sources need no compiler"
    other = make(tmp_path / "a", "int four();\n")
    assert sorted(cache.iterdir()) == sorted([*made, *other]), "they were used a moment ago"
    for path in made:
        age(path, days=40)
    last = make(tmp_path / "a", "int five();\n")
    assert sorted(cache.iterdir()) == sorted([*other, *last])
