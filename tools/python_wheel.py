#!/usr/bin/env python3
"""Packs the Python package: what `pip install .` and `make wheel` call (PEP 517; PEP 660 for `pip install -e .`).

    python3 tools/python_wheel.py FOLDER                 a wheel in FOLDER
    python3 tools/python_wheel.py --bare FOLDER          the wheel without other libraries, for auditwheel to put in
    python3 tools/python_wheel.py --bare FOLDER LIBRARY  the same for another architecture (scripts/build-wheel --arch);
                                                         LIBRARY is a libtally.so that runs here and writes the stubs
    python3 tools/python_wheel.py --cuda FOLDER          the wheel tally-cuda, the plugin alone, in FOLDER
    python3 tools/python_wheel.py --install FOLDER BUILD the package alone, for a system whose library is installed,
                                                         into FOLDER, with the binding that `make python` built in BUILD

make builds the library, the program and the compiled binding in their own folder, build/wheel. The wheel holds the
package, tally.h, the library, the program and every shared library that they need except those of the C library, so
that it runs without a compiler and -dev packages. Without Python.h the binding is left out; the package then uses
ctypes.

Settings, given to pip as -C name=value: cuda=1 (the plugin too; it needs CUDA's own libraries where it runs),
blas=openblas|blis, jobs=4. CC, CFLAGS and LDFLAGS are taken from the environment. The wheel is reproducible: the same
sources give the same bytes (SOURCE_DATE_EPOCH is respected).
"""
import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME, SUMMARY = "tally", "Language-model training whose price and receipt tally, shaped like PyTorch"
BUILD = "build/wheel"
# Part of every Linux with glibc, and closely tied to it: these must be the system's own.
SYSTEM = re.compile(r"(linux-vdso|linux-gate|ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libgcc_s|"
                    r"libstdc\+\+)\.so")
SOURCES = ["CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml", "bench", "debian", "docs", "examples",
           "include", "python", "scripts", "src", "tests", "tools", "wasm"]
# Where NVIDIA's wheels put the libraries that the plugin opens: CUDA 13 and 12, cuDNN, NCCL.
NVIDIA_FOLDERS = ("cu13", "cuda_runtime", "cublas", "cudnn", "nccl")
LEFT_OUT = {"__pycache__", ".pytest_cache"}


def version():
    return re.search(r'^#define TL_VERSION "(.*)"', (ROOT / "include/tally.h").read_text(), re.M).group(1)


def metadata(name=NAME, summary=SUMMARY, needs=("Requires-Dist: numpy>=1.24",), text=None):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version()}", f"Summary: {summary}", "License: MIT",
             "License-File: LICENSE", "Requires-Python: >=3.10", *needs, "Description-Content-Type: text/markdown", "",
             text or (ROOT / "README.md").read_text(encoding="utf-8")]
    return "\n".join(lines).encode()


# ---- Building ----

def has_python_headers():
    return Path(sysconfig.get_path("include"), "Python.h").exists()


def make(folder, settings, targets, environment):
    command = ["make", "-C", str(ROOT), f"-j{settings.get('jobs', len(os.sched_getaffinity(0)))}", f"BUILD={folder}",
               f"PYTHON={sys.executable}"]
    if "blas" in settings:
        command.append(f"BLAS={settings['blas']}")
    environment = {**os.environ, "MAKEFLAGS": "", "MFLAGS": "", **environment}
    try:
        subprocess.run(command + [f"{folder}/{t}" for t in targets], check=True, env=environment, stdout=sys.stderr)
    except FileNotFoundError:
        raise SystemExit("make is missing. Debian, Ubuntu: run scripts/install-deps") from None
    except subprocess.CalledProcessError:
        raise SystemExit("the library could not be built: see the lines above. scripts/install-deps installs what it "
                         "needs") from None


def travelling():
    """Settings of make for a library that is installed elsewhere: no debug information unless CFLAGS says otherwise,
    and an RPATH instead of a RUNPATH. The loader searches an RPATH before LD_LIBRARY_PATH and for indirect dependencies
    too, so that it finds the libraries in the wheel. The plugin is for all GPUs, not for those of this machine. It has
    a RUNPATH, so that LD_LIBRARY_PATH comes before NVIDIA's wheels, and these before the system's CUDA."""
    nvidia = [f"$$ORIGIN/{up}/nvidia/{part}/lib" for up in ("..", "../..") for part in NVIDIA_FOLDERS]
    return {"CFLAGS": os.environ.get("CFLAGS", "-O2"), "CUDA_ARCHS": os.environ.get("CUDA_ARCHS", "all"),
            "CUDA_RPATHS": " ".join(f"-Wl,--enable-new-dtags,-rpath,'{p}'" for p in [*nvidia, "/usr/local/cuda/lib64"]),
            "LDFLAGS": os.environ.get("LDFLAGS", "") + " -Wl,--disable-new-dtags"}


def needed_libraries(*files):
    """Path of each shared library that has to travel with `files`, by the name it is asked for."""
    found = {}
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    for file in files:
        text = subprocess.run(["ldd", str(file)], check=True, capture_output=True, text=True, env=environment).stdout
        for line in text.splitlines():
            name, arrow, rest = line.strip().partition(" => ")
            if not arrow or SYSTEM.match(Path(name).name):
                continue
            if rest.startswith("not found"):
                raise SystemExit(f"{file} needs {name}, which is not here")
            found[name] = Path(rest.rpartition(" (")[0]).resolve()
    return dict(sorted(found.items()))


def licence_of(library):
    """The licence text of a library that Debian installed, or nothing."""
    # /lib is a link to /usr/lib.
    for path in (library, Path("/", *library.parts[2:]) if library.parts[1:2] == ("usr",) else library):
        try:
            owner = subprocess.run(["dpkg", "-S", str(path)], capture_output=True, text=True).stdout
        except FileNotFoundError:
            return None
        text = Path("/usr/share/doc", owner.partition(":")[0], "copyright")
        if owner and text.exists():
            return text.read_bytes()
    return None


# ---- Packing ----

def epoch():
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", 315532800)), 315532800)  # zip knows no time before 1980


class Wheel:
    """A wheel being written: add() files, then close()."""

    def __init__(self, folder, tag, project=NAME, files=None):
        self.info = f"{project}-{version()}.dist-info"
        self.name = f"{project}-{version()}-{tag}.whl"
        self.info_files = files or info_files(tag)
        self.records = []
        self.file = zipfile.ZipFile(Path(folder, self.name), "w", zipfile.ZIP_DEFLATED)

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, time.gmtime(epoch())[:6])
        entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
        entry.create_system = 3
        self.file.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self):
        for name, data in self.info_files.items():
            self.add(f"{self.info}/{name}", data)
        self.records.append(f"{self.info}/RECORD,,\n")
        entry = zipfile.ZipInfo(f"{self.info}/RECORD", time.gmtime(epoch())[:6])
        entry.external_attr, entry.create_system = 0o100644 << 16, 3
        self.file.writestr(entry, "".join(self.records))
        self.file.close()
        return self.name


def wheel_files(tag, described):
    pure = "true" if tag == "py3-none-any" else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: tally\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    return {"METADATA": described, "WHEEL": wheel.encode(), "licenses/LICENSE": (ROOT / "LICENSE").read_bytes()}


def info_files(tag):
    script = b"[console_scripts]\ntally = tally.__main__:main\n"
    return {**wheel_files(tag, metadata()), "entry_points.txt": script}


def tag(kind=None):
    kind = kind or ("cp310-abi3" if has_python_headers() else "py3-none")
    return f"{kind}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def package_files():
    """The package's own files: everything under python/tally but what only the build reads."""
    package = ROOT / "python" / "tally"
    for path in sorted(package.rglob("*")):
        if path.is_file() and not LEFT_OUT & set(path.parts) and path.name not in ("_native.c", "_generate.py"):
            yield f"tally/{path.relative_to(package)}", path


def stub_files(library):
    """Type stubs of the package, which the package itself is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TALLY_LIB": str(library)}
        subprocess.run([sys.executable, str(ROOT / "tools" / "python_stubs"), folder], check=True, env=environment)
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                yield str(path.relative_to(folder)), path.read_bytes()


def wanted(settings, name):
    return str(settings.get(name, "0")).lower() not in ("0", "no", "false", "")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings = config_settings or {}
    plugin = wanted(settings, "cuda")
    library, program, binding = "libtally.so", "tally", "python/_native.abi3.so"
    made = [library, program, *[binding] * has_python_headers(), *["libtally_cuda.so"] * plugin]
    make(BUILD, settings, made, travelling())
    built = ROOT / BUILD
    wheel = Wheel(wheel_directory, tag())
    for name, path in package_files():
        wheel.add(name, path.read_bytes())
    foreign = settings.get("stubs_by")
    for name, data in stub_files(foreign or built / library):
        wheel.add(name, data)
    wheel.add("tally/tally.h", (ROOT / "include/tally.h").read_bytes())
    if has_python_headers():
        wheel.add("tally/_native.abi3.so", (built / binding).read_bytes(), 0o755)
    wheel.add("tally/bin/tally", (built / program).read_bytes(), 0o755)
    wheel.add("tally/lib/libtally.so", (built / library).read_bytes(), 0o755)  # under one name: wheels have no links
    if plugin:
        wheel.add("tally/lib/libtally_cuda.so", (built / "libtally_cuda.so").read_bytes(), 0o755)
    if foreign:
        for path in sorted(Path(os.environ["PKG_CONFIG_SYSROOT_DIR"]).glob("usr/share/doc/*/copyright")):
            if path.is_file() and not path.parent.name.endswith("-dev"):
                wheel.add(f"{wheel.info}/licenses/{path.parent.name}.txt", path.read_bytes())
        return wheel.close()
    for name, path in needed_libraries(built / library, built / program).items():
        if not wanted(settings, "bare"):
            wheel.add(f"tally/lib/{name}", path.read_bytes(), 0o755)
        text = licence_of(path)
        if text:
            wheel.add(f"{wheel.info}/licenses/{name}.txt", text)
    return wheel.close()


def cuda_needs(plugin):
    """The metadata's lines: tally of the same version, and, where `pip install tally-cuda[nvidia]` asks for them,
    NVIDIA's wheels of the CUDA that the plugin was linked with."""
    text = subprocess.run(["readelf", "-d", str(plugin)], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\[libcudart\.so\.(\d+)\]", text)
    if not found:
        raise SystemExit(f"{plugin} is not linked with libcudart")
    major = int(found[1])
    suffix = "" if major >= 13 else f"-cu{major}"  # wheels of CUDA 13 have the plain names
    parts = [*(f"nvidia-{part}{suffix}>={major},<{major + 1}" for part in ("cuda-runtime", "cublas")),
             f"nvidia-cudnn-cu{major}>=9,<10", f"nvidia-nccl-cu{major}"]
    return [f"Requires-Dist: {NAME}=={version()}", "Provides-Extra: nvidia",
            *(f"Requires-Dist: {part}; extra == 'nvidia'" for part in parts)]


def build_cuda_wheel(folder, settings=None, plugin=None):
    """tally-cuda: the plugin, which tally finds beside its own package when it is asked for a GPU. It contains none of
    NVIDIA's libraries. `plugin` is one that is built already."""
    if plugin is None:
        make(BUILD, settings or {}, ["libtally_cuda.so"], travelling())
        plugin = ROOT / BUILD / "libtally_cuda.so"
    text = (ROOT / "python" / "tally_cuda" / "__init__.py").read_text(encoding="utf-8")
    kind = tag("py3-none")
    described = metadata("tally-cuda", "The CUDA plugin of tally", cuda_needs(plugin), text.strip('"\n') + "\n")
    wheel = Wheel(folder, kind, "tally_cuda", wheel_files(kind, described))
    wheel.add("tally_cuda/__init__.py", text.encode())
    wheel.add("tally_cuda/libtally_cuda.so", Path(plugin).read_bytes(), 0o755)
    return wheel.close()


def install(folder, built):
    """The package in a folder of Python's, without the libraries: it opens the system's. What installs it keeps the
    list of its files."""
    folder, built = Path(folder), ROOT / built
    files = {name: path.read_bytes() for name, path in package_files()}
    files.update(stub_files(built / "libtally.so"))
    files["tally/tally.h"] = (ROOT / "include/tally.h").read_bytes()
    files["tally/_native.abi3.so"] = (built / "python/_native.abi3.so").read_bytes()
    files[f"{NAME}-{version()}.dist-info/METADATA"] = metadata()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Points at this tree, whose library is built in build/ as `make` would."""
    settings = config_settings or {}
    make("build", settings, ["libtally.so", "tally", *["python/_native.abi3.so"] * has_python_headers()], {})
    wheel = Wheel(wheel_directory, "py3-none-any")
    wheel.add(f"_{NAME}_editable.pth", f"{ROOT / 'python'}\n".encode())
    return wheel.close()


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = Path(metadata_directory, f"{NAME}-{version()}.dist-info")
    for name, data in info_files(tag()).items():
        (info / name).parent.mkdir(parents=True, exist_ok=True)
        (info / name).write_bytes(data)
    return info.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    """The sources, as a .tar.gz from which the wheel can be built again."""
    folder = f"{NAME}-{version()}"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        add_source(tar, f"{folder}/PKG-INFO", metadata(), 0o644)
        for name in SOURCES:
            top = ROOT / name
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and not LEFT_OUT & set(path.parts):
                    add_source(tar, f"{folder}/{path.relative_to(ROOT)}", path.read_bytes(),
                               0o755 if os.access(path, os.X_OK) else 0o644)
    target = Path(sdist_directory, f"{folder}.tar.gz")
    with open(target, "wb") as file, gzip.GzipFile("", "wb", 9, file, epoch()) as packed:
        raw.seek(0)
        shutil.copyfileobj(raw, packed)
    return target.name


def add_source(tar, name, data, mode):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), mode, epoch()
    tar.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--install":
        raise SystemExit(install(*sys.argv[2:]))
    kind = sys.argv[1] if sys.argv[1:2] in (["--cuda"], ["--bare"]) else None
    rest = sys.argv[2 if kind else 1:]
    if not rest or len(rest) > (2 if kind == "--bare" else 1) or rest[0].startswith("-"):
        raise SystemExit(__doc__)
    os.makedirs(rest[0], exist_ok=True)
    wanted_so = {"bare": "1", **({"stubs_by": rest[1]} if len(rest) == 2 else {})} if kind == "--bare" else None
    print(Path(rest[0], build_cuda_wheel(rest[0]) if kind == "--cuda" else build_wheel(rest[0], wanted_so)))
