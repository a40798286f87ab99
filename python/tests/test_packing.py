"""What a package holds: patterns, links, limits, and that equal folders make equal packages."""

import io
import os
import zipfile

import pytest

import hoplo._packages as packages
from hoplo._ignore import Rules, is_left_out
from hoplo._packing import (
    PackingError,
    read_index,
    scan_archive,
    scan_file,
    scan_folder,
    write,
)

NODE = None


def scan(root, excludes=(), under="", bytes_max=10_000, files_max=1000):
    return scan_folder(str(root), under, excludes, f"working_dir {root}", bytes_max, files_max)


def content(found):
    out = io.BytesIO()
    write(found, out)
    return out.getvalue()


def names(found):
    return [entry.path for entry in found.entries]


def make(root, *paths):
    for path in paths:
        place = root / path
        if path.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(path)
    return root


# ------------------------------------------------------------------------------------ patterns


@pytest.mark.parametrize(
    ("pattern", "path", "is_folder", "left_out"),
    [
        ("*.bin", "a/b/x.bin", False, True),
        ("*.bin", "x.binary", False, False),
        ("/x", "x", False, True),
        ("/x", "a/x", False, False),
        ("a/x", "a/x", False, True),
        ("a/x", "b/a/x", False, False),
        ("data/", "a/data", True, True),
        ("data/", "a/data", False, False),
        ("a/**/z", "a/z", False, True),
        ("a/**/z", "a/b/c/z", False, True),
        ("**/z", "a/b/z", False, True),
        ("a/**", "a/b/c", False, True),
        ("a/**", "a", True, False),
        ("a/*", "a/b/c", False, False),
        ("?", "ab", False, False),
        ("[a-c]x", "bx", False, True),
        ("[!a-c]x", "bx", False, False),
        ("[!a-c]x", "dx", False, True),
        ("[]]x", "]x", False, True),
        ("[x", "[x", False, True),
        (r"\#x", "#x", False, True),
        (r"\!x", "!x", False, True),
        ("# x", "# x", False, False),
        ("x   ", "x", False, True),
        ("x.y", "xzy", False, False),
        ("a\udcff*", "a\udcffb", False, True),
        ("", "x", False, False),
        ("/", "x", True, False),
        ("anything", ".git", True, True),
        ("anything", "a/__pycache__", True, True),
        ("!__pycache__", "a/__pycache__", True, True),
    ],
)
def test_a_pattern(pattern, path, is_folder, left_out):
    assert is_left_out(path, is_folder, [("", Rules([pattern]))]) == left_out


def test_the_last_pattern_that_fits_decides_and_inner_files_go_over_outer_ones():
    outer = Rules(["*.txt", "!keep.txt"])
    assert is_left_out("a/x.txt", False, [("", outer)])
    assert not is_left_out("a/keep.txt", False, [("", outer)])
    inner = Rules(["keep.txt", "!/x.txt"])
    both = [("", outer), ("a/", inner)]
    assert is_left_out("a/keep.txt", False, both)
    assert not is_left_out("a/x.txt", False, both)
    assert is_left_out("x.txt", False, both)


# ------------------------------------------------------------------------------------ folders


def test_what_is_left_out(tmp_path):
    make(tmp_path, "a.py", "build/lib.py", "sub/secret.key", "sub/b.py", "big.bin", "c.pyc")
    make(tmp_path, ".git/HEAD", "sub/__pycache__/b.pyc", "empty/", "notes.txt")
    (tmp_path / ".gitignore").write_text("build/\n*.pyc\n")
    (tmp_path / "sub" / ".gitignore").write_text("*.key\n")
    (tmp_path / ".rayignore").write_text("notes.txt\n")
    own = [".gitignore", ".rayignore", "a.py", "empty", "sub", "sub/.gitignore", "sub/b.py"]
    assert names(scan(tmp_path, ["*.bin"])) == own
    assert "big.bin" in names(scan(tmp_path))
    taken_in = names(scan(tmp_path, ["!build/", "!*.key"]))
    assert {"build/lib.py", "sub/secret.key"} <= set(taken_in)
    assert names(scan(tmp_path, ["*"])) == []


def test_equal_folders_make_equal_packages(tmp_path):
    for name in ("one", "two"):
        make(tmp_path / name, "b/ü.py", "a.py", "c/")
        os.utime(tmp_path / name / "a.py", (len(name), 7 if name == "one" else 8))
    one, two = (content(scan(tmp_path / name)) for name in ("one", "two"))
    assert one == two
    os.chmod(tmp_path / "two" / "a.py", 0o755)
    assert content(scan(tmp_path / "two")) != one
    make(tmp_path / "one", "d")
    assert content(scan(tmp_path / "one")) != one


def test_a_fingerprint_changes_with_a_file_and_not_without(tmp_path):
    make(tmp_path, "a.py", "b.py")
    before = scan(tmp_path).fingerprint()
    assert scan(tmp_path).fingerprint() == before
    kept = os.stat(tmp_path / "a.py")
    (tmp_path / "a.py").write_text("b.py")
    os.utime(tmp_path / "a.py", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert scan(tmp_path).fingerprint() != before


def test_links_inside_stay_and_links_outside_are_refused(tmp_path):
    root = make(tmp_path / "root", "a/b.py", "c.py")
    make(tmp_path, "secret")
    os.symlink("../c.py", root / "a" / "up")
    os.symlink(root / "a" / "b.py", root / "absolute")
    os.symlink("nowhere", root / "dangling")
    os.symlink("a", root / "folder")
    links = {it.path: it.target for it in scan(root).entries if it.kind == "l"}
    assert links == {
        "a/up": "../c.py",
        "absolute": "a/b.py",
        "dangling": "nowhere",
        "folder": "a",
    }
    for target in ("../secret", str(tmp_path / "secret"), "/etc/passwd", "a/../../secret"):
        os.symlink(target, root / "out")
        with pytest.raises(PackingError, match=r"out is a link to .*excludes=\['out'\]"):
            scan(root)
        assert "out" not in names(scan(root, ["out"]))
        os.unlink(root / "out")


def test_pipes_and_sockets_are_left_out(tmp_path):
    make(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    assert names(scan(tmp_path)) == ["a"]


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    make(tmp_path, "a/secret", "b")
    found = scan(tmp_path)

    def refused(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("hoplo._packing._open", refused)
    with pytest.raises(PackingError, match=r"a/secret cannot be read \(Permission denied\).*excl"):
        content(found)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read(tmp_path):
    make(tmp_path, "a/b")
    os.chmod(tmp_path / "a", 0)
    try:
        with pytest.raises(PackingError, match=r"a cannot be read"):
            scan(tmp_path)
    finally:
        os.chmod(tmp_path / "a", 0o700)


def test_a_file_that_grew_is_packed_as_it_was_read(tmp_path):
    make(tmp_path, "log", "z")
    found = scan(tmp_path)
    (tmp_path / "log").write_text("much more than before")
    index = read_index(memoryview(content(found)))
    assert [(path, last) for path, _, _, last in index] == [("log", 21), ("z", 1)]


def test_a_folder_that_is_too_large_names_the_largest(tmp_path):
    make(tmp_path, "small.py")
    for path, size in (("data/raw/x.bin", 9000), ("data/y", 100), ("models/m", 3000)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x" * size)
    with pytest.raises(PackingError) as caught:
        scan(tmp_path, under="pkg/")
    assert "takes 12.1 KB, and may take 10.0 KB" in str(caught.value)
    assert "Most of it: data/raw/ (9.1 KB), models/ (3.0 KB), small.py (8 bytes)" in str(
        caught.value
    )
    assert "excludes': ['/data/raw/', ...]" in str(caught.value)
    assert "data/raw/x.bin" not in names(scan(tmp_path, ["/data/raw/"]))
    with pytest.raises(PackingError, match=r"more than 3 files.*data/"):
        scan(tmp_path, files_max=3, bytes_max=1 << 20)
    make(tmp_path / "empty", "a/", "b/", "c/")
    with pytest.raises(PackingError, match=r"more than 2 files.*a \(1 files\)"):
        scan(tmp_path / "empty", files_max=2)


# ------------------------------------------------------------------------------------ archives


def test_an_archive(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("top/a.py", "A = 1\n" * 100)
        file.writestr("top/b/c.py", "C = 1\n")
    whole = scan_archive(str(path), False, "it", 10_000, 10)
    assert names(whole) == ["top/a.py", "top/b/c.py"]
    stripped = scan_archive(str(path), True, "it", 10_000, 10)
    assert names(stripped) == ["a.py", "b/c.py"]
    assert content(stripped).startswith(b"A = 1\nA = 1\n")
    with pytest.raises(PackingError, match="takes 606 bytes, and may take 100"):
        scan_archive(str(path), False, "it", 100, 10)


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_an_archive_that_reaches_outside(tmp_path, name):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, "x")
    with pytest.raises(PackingError, match="no path inside it"):
        scan_archive(str(path), False, "it", 100, 10)


def test_an_archive_that_is_none(tmp_path):
    make(tmp_path, "a.zip")
    with pytest.raises(PackingError, match=r"a\.zip cannot be read as a zip file"):
        scan_archive(str(tmp_path / "a.zip"), False, "it", 100, 10)


# ------------------------------------------------------------------------------------ unpacking


def test_what_comes_out_is_what_went_in(tmp_path):
    root = make(tmp_path / "root", "b/ü.py", "run.sh", "empty/", "deep/er/x")
    os.mkdir(os.fsdecode(os.fsencode(root) + b"/odd-\xff"))
    os.chmod(root / "run.sh", 0o4755)
    os.chmod(root / "empty", 0o555)
    os.symlink("../run.sh", root / "b" / "link")
    out = tmp_path / "out"
    packages._unpack(memoryview(content(scan(root))), str(out), "it")
    found = scan(out)
    assert names(found) == names(scan(root))
    assert os.stat(out / "run.sh").st_mode & 0o7777 == 0o755
    assert os.stat(out / "empty").st_mode & 0o7777 == 0o755  # so that it can be removed
    assert os.readlink(out / "b" / "link") == "../run.sh"
    assert (out / "b" / "ü.py").read_text() == "b/ü.py"
    assert not os.path.exists(f"{out}.part")


def test_one_file_and_a_module_by_their_names(tmp_path):
    make(tmp_path, "mod.py", "pkg/__init__.py")
    assert names(scan_file(str(tmp_path / "mod.py"), "it", 100)) == ["mod.py"]
    assert names(scan(tmp_path / "pkg", under="pkg/")) == ["pkg", "pkg/__init__.py"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-9],
        lambda data: data[:1] + data[2:],
        lambda data: data.replace(b'"a/b"', b'"../"'),
        lambda data: data.replace(b'"a/b"', b'"/ab"'),
    ],
)
def test_a_damaged_package_leaves_nothing(tmp_path, damage):
    data = damage(content(scan(make(tmp_path / "root", "a/b"))))
    with pytest.raises(packages.Unusable, match="cannot be unpacked at"):
        packages._unpack(memoryview(data), str(tmp_path / "out"), "it cannot be unpacked")
    assert os.listdir(tmp_path) == ["root"]


def test_the_rest_of_a_worker_that_died_while_it_unpacked_is_in_nobodys_way(tmp_path):
    make(tmp_path, "out.part/half")
    data = content(scan(make(tmp_path / "root", "a")))
    packages._unpack(memoryview(data), str(tmp_path / "out"), "it")
    assert os.listdir(tmp_path / "out") == ["a"]


def test_packages_that_nobody_uses_make_room_the_one_used_last_at_the_end(tmp_path):
    import fcntl

    for at, key in enumerate(("old", "used", "new")):
        make(tmp_path, f"{key}/file")
        (tmp_path / f"{key}.lock").write_text("100")
        os.utime(tmp_path / f"{key}.lock", (at, at))
    packages.make_room(str(tmp_path), 300)
    assert {"old", "used", "new"} <= set(os.listdir(tmp_path))
    with open(tmp_path / "used.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        packages.make_room(str(tmp_path), 150)
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"used"}
    packages.make_room(str(tmp_path), 50)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (f"pkg:{'0f' * 16}:name", True),
        (f"pkg:{'0f' * 16}", True),
        (f"pkg:{'0f' * 15}:name", False),
        (f"pkg:{'0F' * 16}:name", False),
        (f"pkg:../{'0' * 29}:name", False),
        ("/pkg:", False),
        ("", False),
    ],
)
def test_what_is_a_package(text, known):
    assert (packages.Package.of(text) is not None) == known
