"""scripts/get-text without a network: readers on small files of each kind, the filter, and a package made here."""
import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import zlib

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "get-text"
PROSE = "It was the best of times, and it was the worst of times for all who lived in the city of {}."
GERMAN = "Es war die beste und die schlimmste Zeit für alle, die in der Stadt lebten und arbeiteten, sagte man."
CODE = "for (int i = 0; i < n; i++) { a[i] = b[i] * c[i] + d[i]; e[i] -= 1; } return f(&a, &b);"


@pytest.fixture(scope="module")
def script():
    loader = importlib.machinery.SourceFileLoader("get_text", str(SCRIPT))
    was, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("get_text", loader))
    loader.exec_module(module)
    sys.dont_write_bytecode = was
    return module


def test_only_new_english_prose_stays(script):
    paris, rome = PROSE.format("Paris"), PROSE.format("Rome")
    cleaner = script.Cleaner()
    text = "\n\n".join(["Chapter One", paris, "A lost heading", GERMAN, CODE, "a b c", rome.replace(" ", "\n")])
    assert cleaner.clean(text, 0.2) == ["Chapter One", paris, rome]
    assert cleaner.clean("Chapter Two\n\n" + paris.upper() + "\n\nChapter Three\n\n" + PROSE.format("Oslo"), 0.2) == \
        ["Chapter Three", PROSE.format("Oslo")]
    assert cleaner.n_duplicates == len(paris) and cleaner.n_dropped > len(GERMAN) + len(CODE)


def test_markup_becomes_paragraphs(script):
    page = f"<html><head><title>x</title></head><body><nav>Menu</nav><h1>Title &amp; <i>more</i></h1>" \
           f"<pre>{CODE}</pre><!-- no --><p>One <b>two</b>\nthree.<script>4</script></p><ul><li>Five<li>Six</ul>" \
           "</body></html>"
    assert [p.strip() for p in re.split(r"\n\n+", script.from_markup(page)) if p.strip()] == \
        ["Title & more", "One two three.", "Five", "Six"]


def test_manual_pages_become_paragraphs(script):
    page = '.TH X 1\n.SH NAME\nx \\- y\n.SH DESCRIPTION\nThe\n.BR open (2)\ncall is\n.B not\n\\fIfree\\fP.\n' \
           '.nf\ncode\n.fi\n.PP\nIt\\(aqs so.\n'
    assert [" ".join(p.split()) for p in re.split(r"\n\n+", script.from_man(page)) if p.strip()] == \
        ["Name", "Description", "The open(2) call is not free.", "It's so."]
    assert script.mdoc_words("Fl a Ar file .") == "-a file."


def test_dictionaries_lose_what_is_no_prose(script):
    entry = b'Lark \\Lark\\, v. i. [imp. & p. p. {Larked} (l[aum]rkt); p. pr. & vb. n. {Larking}.]\n' \
            b'   To sport; to frolic. [Colloq.]\n   [1913 Webster]\n'
    assert " ".join("".join(script.read_dictionary([("x", entry)])).split()) == "Lark : v. i. To sport; to frolic."
    senses = b"aid\n    n 1: the act of helping someone in need [syn: {aid}, {help}]\n" \
             b"help\n    n 1: the act of helping someone in need [syn: {aid}, {help}]\n"
    assert "".join(script.read_wordnet([("x", senses)])) == "aid: the act of helping someone in need"


def test_commentaries_and_novels_are_unpacked(script):
    verses = [b"<p>First.</p>", b"<p>Second, longer.</p>"]
    block = zlib.compress(b"".join(verses))
    for kind, size in (("<IIH", 10), ("<III", 12)):
        index = struct.pack(kind, 0, 0, len(verses[0])) + struct.pack(kind, 0, len(verses[0]), len(verses[1]))
        assert len(index) == 2 * size
        files = {"comments/ot.bzs": struct.pack("<3I", 0, len(block), 99), "comments/ot.bzz": block,
                 "comments/ot.bzv": index}
        assert "".join(script.read_sword(files.items())).split() == ["First.", "Second,", "longer."]
    lines = [b"EMMA", b"", b"by _Jane_ Austen"]
    strings = b"".join(struct.pack(">II", 0x40009, len(line)) + line for line in lines)
    blob = b"X\n" + struct.pack(">II", 16, len(lines)) + strings
    data = 2 * (struct.pack(">I", len(blob)) + zlib.compress(blob))
    assert list(script.read_novels([("x", data)])) == 2 * ["EMMA\n\nby Jane Austen"]


@pytest.fixture
def package(script, tmp_path, monkeypatch):
    """A package of two pages, and a script that finds it instead of asking apt."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not installed")
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "usr/share/doc/tale").mkdir(parents=True)
    (root / "DEBIAN/control").write_text("Package: tale\nVersion: 1:2-3\nArchitecture: all\nMaintainer: a <a@b>\n"
                                         "Description: tale\n")
    (root / "usr/share/doc/tale/copyright").write_text("Public domain.\n")
    for city in ("Paris", "Rome"):
        page = root / f"usr/share/doc/tale/{city}.html"
        page.write_text(f"<p>{PROSE.format(city)}</p><p>{PROSE.format('Oslo')}</p>")
    deb = tmp_path / "tale_1%3a2-3_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, deb], check=True, stdout=subprocess.DEVNULL)
    monkeypatch.setattr(script, "package_get", lambda names, cache: (names, str(deb)))
    tale = script.source("tale", script.HTML, script.read_markup, "public domain", "a tale")
    monkeypatch.setattr(script, "SOURCES", {"tale": tale})
    options = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["get-text", "tale", "all", *options])
    return tmp_path / "out"


def test_a_package_becomes_a_text_with_its_licence(script, package):
    script.main()
    cities = {PROSE.format(c) for c in ("Paris", "Rome", "Oslo")}
    for name in ("tale", "all"):
        paragraphs = (package / f"{name}.txt").read_text().strip().split("\n\n")
        assert len(paragraphs) == 3 and set(paragraphs) == cities
        notice = (package / f"{name}.LICENSE.txt").read_text()
        assert "Package tale, version 1:2-3, of Debian" in notice and "Public domain." in notice


def test_a_failure_leaves_no_file(script, package, monkeypatch):
    sys.argv.append("--compressed")
    monkeypatch.setattr(script, "compressor", lambda: (["false"], ".zst"))
    with pytest.raises(script.Failure, match="false failed with status 1"):
        script.main()
    assert [p.name for p in package.iterdir()] == ["tale.LICENSE.txt"]


def test_errors_say_what_to_do(tmp_path):
    unknown = subprocess.run([sys.executable, SCRIPT, "nosuch"], capture_output=True, text=True)
    assert unknown.returncode == 1 and 'no text "nosuch": `scripts/get-text --list`' in unknown.stderr
    foreign = subprocess.run([sys.executable, SCRIPT, "kjv", "--cache", tmp_path / "c"], capture_output=True, text=True,
                             env={"PATH": str(tmp_path)})
    assert foreign.returncode == 1 and "apt-cache was not found" in foreign.stderr and "debian:12" in foreign.stderr
