"""The page's own files, read once: those of the package, as browsers want them, and no others."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.server.viewer_http.readers import LARGE, gzip_if_large
from proctor.server.viewer_http.routes import INDEX, MEDIA, accepts_gzip, read_static_files


def test_the_package_has_its_page_and_all_that_the_page_names() -> None:
    statics = read_static_files()
    page = statics[INDEX].body.decode()
    named = [part.partition('"')[0] for part in page.split('"static/')[1:]]

    assert named
    assert set(named) <= statics.keys()
    assert all(statics[name].fixed for name in named)


def test_the_page_names_every_module_at_once() -> None:
    statics = read_static_files()
    page = statics[INDEX].body.decode()
    modules = [path for path, file in statics.items() if file.fixed and path.endswith(".js")]

    assert len(modules) > 30
    assert all(page.count(f'<link rel="modulepreload" href="static/{path}">') == 1 for path in modules)
    assert page.index("modulepreload") < page.index("</head>")


def test_an_address_stands_for_the_bytes_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<head><script src="static/a.js"></script></head>')
    (tmp_path / "a.js").write_text("x")
    first = read_static_files(tmp_path)
    (tmp_path / "b.js").write_text("y")
    second = read_static_files(tmp_path)

    (fixed,) = [path for path, file in first.items() if file.fixed]
    assert first[fixed].body == first["a.js"].body == b"x"
    assert fixed.endswith("/a.js")
    assert fixed not in second
    assert read_static_files(tmp_path).keys() == second.keys()


def test_only_files_of_known_kinds_are_read(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    for name in ("a.html", "js/b.js", "c.py", "d", ".e", "js/f.js.map"):
        (tmp_path / name).write_text("x")

    found = read_static_files(tmp_path)

    assert sorted(path for path, file in found.items() if not file.fixed) == ["a.html", "js/b.js"]
    assert sorted(path.partition("/")[2] for path, file in found.items() if file.fixed) == ["a.html", "js/b.js"]


def test_a_file_is_known_again_by_its_tag_and_another_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("x")
    (tmp_path / "b.js").write_text("x")
    (tmp_path / "c.js").write_text("y")
    found = read_static_files(tmp_path)

    assert found["a.js"].tag == found["b.js"].tag != found["c.js"].tag
    assert gzip.decompress(found["a.js"].packed) == b"x"
    assert found["a.js"].media == MEDIA[".js"]


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("xgzip", False),
    ],
)
def test_gzip_is_sent_to_who_takes_it(header: str, taken: bool) -> None:
    assert accepts_gzip(header) is taken


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=2000))
def test_what_was_packed_is_unpacked_as_it_was(body: bytes) -> None:
    assert gzip_if_large(body, packs=False) == (body, False)
    large, is_packed = gzip_if_large(body + bytes(LARGE + 1), packs=True)
    assert is_packed
    assert gzip.decompress(large) == body + bytes(LARGE + 1)
