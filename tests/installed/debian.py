"""debian/ is in step with `make install`: python3 tests/installed/debian.py PREFIX, after an installation there. Its
version is the header's, every installed file is in exactly one package, and every line of debian/*.install finds a
file. tests/installed/run calls it; scripts/build-deb builds the packages."""
import fnmatch
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the packages leave out, and where debian/rules installs something else than `make install` does by default.
LEFT_OUT = {"share/doc/tally/LICENSE", "share/doc/tally/planner.html", "lib/libtally_cuda.so", "lib/libtally_mpich.so"}
MOVED = {"lib/libtally_openmpi.so": "lib/tally/libtally_openmpi.so"}
PYTHON = "lib/python3/dist-packages"  # by tools/python_wheel.py --install


def wanted():
    """(package, pattern below /usr) of each line of debian/*.install"""
    for path in sorted((ROOT / "debian").glob("*.install")):
        for line in path.read_text().splitlines():
            yield path.stem, line.split()[0].removeprefix("usr/").replace("lib/*/", "lib/")


def problems(files):
    version = re.search(r'^#define TL_VERSION "(.*)"', (ROOT / "include/tally.h").read_text(), re.M)[1]
    packaged = re.match(r"tally \((.*?)\)", (ROOT / "debian/changelog").read_text())[1]
    if packaged != version:
        yield f"debian/changelog has version {packaged}, include/tally.h {version}"
    packages = set(re.findall(r"^Package: (.*)", (ROOT / "debian/control").read_text(), re.M))
    lines = list(wanted())
    if packages != {package for package, _ in lines}:
        yield f"debian/control has {sorted(packages)}, debian/*.install other packages"
    used = {("python3-tally", PYTHON), ("libtally0", MOVED["lib/libtally_openmpi.so"])}
    for file in sorted(files - LEFT_OUT):
        file = MOVED.get(file, file)
        found = [(package, pattern) for package, pattern in lines
                 if fnmatch.fnmatchcase(file, pattern) or file.startswith(pattern + "/")]
        used.update(found)
        if len(found) != 1:
            yield f"{file}: installed, and in {len(found)} lines of debian/*.install"
    for package, pattern in lines:
        if (package, pattern) not in used:
            yield f"debian/{package}.install: {pattern} finds nothing"


prefix = Path(sys.argv[1])
found = list(problems({str(p.relative_to(prefix)) for p in prefix.rglob("*") if not p.is_dir()}))
print("\n".join(found) or "debian/ has every installed file")
sys.exit(bool(found))
