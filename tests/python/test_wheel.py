"""The package as users install it: a wheel, in its own environment with only NumPy, outside the source tree."""
import base64
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import python_wheel  # noqa: E402

# How it is packed is tested here; the baseline kernels are enough for that, and fast code is not needed.
os.environ.setdefault("ISAS", "")
QUICK = {"CFLAGS": os.environ.get("CFLAGS", "-O0 -U_FORTIFY_SOURCE -Wno-frame-larger-than"), "KERNEL_CFLAGS": ""}

if shutil.which("make") is None:
    pytest.skip("make is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        return folder / python_wheel.build_wheel(str(folder))


def quick(patch):
    for name, value in QUICK.items():
        patch.setenv(name, value)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A function that runs Python in a fresh environment that has NumPy."""
    folder = tmp_path_factory.mktemp("environment")
    try:
        venv.create(folder, with_pip=True)
    except subprocess.CalledProcessError:
        pytest.skip("this Python cannot make an environment with pip")
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
             and not k.startswith("TALLY_")}

    def run(*arguments, **more):
        return subprocess.run([str(folder / "bin" / "python"), *arguments], cwd=folder, capture_output=True, text=True,
                              env={**clean, **more})
    done = run("-m", "pip", "install", "--quiet", "--timeout", "20", "--retries", "1", "numpy>=1.24")
    if done.returncode:
        pytest.skip("no package index answered, so NumPy could not be installed")
    return run


def install(environment, *what):
    done = environment("-m", "pip", "install", "--no-index", "--no-deps", "--force-reinstall", *what)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        info = f"tally-{python_wheel.version()}.dist-info"
        for path in (ROOT / "python" / "tally").rglob("*.py"):
            if path.name != "_generate.py":
                assert f"tally/{path.relative_to(ROOT / 'python' / 'tally')}" in names
        assert {"tally/py.typed", "tally/__init__.pyi", "tally/nn/functional.pyi"} <= names
        assert {"tally/tally.h", "tally/lib/libtally.so", "tally/bin/tally", f"{info}/METADATA", f"{info}/WHEEL",
                f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names
        assert any(n.startswith("tally/lib/libjansson.so") for n in names)
        assert not any(n.startswith(("tally/lib/libc.so", "tally/lib/libm.so")) or "libtally_cuda" in n for n in names)
        if python_wheel.has_python_headers():
            assert "tally/_native.abi3.so" in names and "-cp310-abi3-linux_" in wheel.name
        metadata = file.read(f"{info}/METADATA").decode()
        assert (f"Version: {python_wheel.version()}\n" in metadata and "Requires-Python: >=3.10\n" in metadata
                and "Requires-Dist: numpy>=1.24\n" in metadata)
        records = dict((line.split(",")[0], line.split(",")[1:])
                       for line in file.read(f"{info}/RECORD").decode().split())
        assert set(records) == names
        for name, (digest, size) in records.items():
            if name != f"{info}/RECORD":
                data = file.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert digest == "sha256=" + expected and int(size) == len(data)


def test_same_bytes_again(wheel, tmp_path, monkeypatch):
    quick(monkeypatch)
    again = tmp_path / python_wheel.build_wheel(str(tmp_path))
    assert again.read_bytes() == wheel.read_bytes()


def test_without_python_headers(tmp_path, monkeypatch):
    quick(monkeypatch)
    monkeypatch.setattr(python_wheel, "has_python_headers", lambda: False)
    name = python_wheel.build_wheel(str(tmp_path))
    assert "-py3-none-linux_" in name
    assert "tally/_native.abi3.so" not in zipfile.ZipFile(tmp_path / name).namelist()


def test_works_where_it_is_installed(wheel, environment):
    install(environment, str(wheel))
    shown = environment("-m", "pip", "check")
    assert shown.returncode == 0, shown.stdout
    nothing = {"PATH": "/nonexistent"}  # no compiler, no ldconfig
    for binding in ("", "ctypes"):
        done = environment(str(ROOT / "tests" / "installed" / "wheel.py"), TALLY_BINDING=binding, **nothing)
        assert done.returncode == 0, done.stderr
        assert "libtally" in done.stdout and "libjansson" in done.stdout
        assert f"compiled binding: {binding == '' and python_wheel.has_python_headers()}" in done.stdout


STUB = """
#include <stdbool.h>
#include <stdio.h>
int cudart(void);
const char *tally_cuda_version(void) { return VERSION; }
int tally_cuda_count(void) { return cudart(); }
bool tally_cuda_open(int index, void *device, char *error) { return false; }
bool tally_cuda_card(int index, void *card, char *error) {
    sprintf(error, "the stub has no card %d", index);
    return false;
}
"""


def cuda_wheel(folder, version):
    """tally-cuda with a stub in place of the plugin, whose build takes long; and a stub of a library of NVIDIA's, of a
    version that no machine has."""
    def cc(text, name, *options):
        (folder / "stub.c").write_text(text)
        subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-o", folder / name, folder / "stub.c",
                        *options], check=True)
    cc("int cudart(void) { return 0; }", "libcudart.so.99", "-Wl,-soname,libcudart.so.99")
    paths = shlex.split(python_wheel.travelling()["CUDA_RPATHS"].replace("$$", "$"))
    cc(STUB, "libtally_cuda.so", f'-DVERSION="{version}"', str(folder / "libcudart.so.99"), *paths)
    return folder / python_wheel.build_cuda_wheel(folder, plugin=folder / "libtally_cuda.so")


def test_the_cuda_wheel_is_found(wheel, environment, tmp_path):
    """By the program and by the package; NVIDIA's libraries in the folder of NVIDIA's wheels are found from it."""
    install(environment, str(wheel))
    plugin = cuda_wheel(tmp_path, python_wheel.version())
    with zipfile.ZipFile(plugin) as file:
        info = f"tally_cuda-{python_wheel.version()}.dist-info"
        assert set(file.namelist()) == {"tally_cuda/__init__.py", "tally_cuda/libtally_cuda.so",
                                        *(f"{info}/{n}" for n in ("METADATA", "WHEEL", "licenses/LICENSE", "RECORD"))}
        metadata = file.read(f"{info}/METADATA").decode()
        assert f"Name: tally-cuda\nVersion: {python_wheel.version()}\n" in metadata and "-py3-none-" in plugin.name
        assert f"Requires-Dist: tally=={python_wheel.version()}\n" in metadata
        assert "Requires-Dist: nvidia-cublas>=99,<100; extra == 'nvidia'\n" in metadata
    install(environment, str(plugin))
    assert environment("-m", "pip", "check").returncode == 0
    assert "(libcudart.so.99: cannot open" in environment("-m", "tally", "--version").stdout
    site = Path(environment("-c", "import tally; print(tally.__path__[0])").stdout.strip()).parent
    (site / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    shutil.copy(tmp_path / "libcudart.so.99", site / "nvidia" / "cu13" / "lib")
    assert "the stub has no card 0" in environment("-m", "tally", "--version").stdout
    assert "the stub has no card 1" in environment("-c", "import tally; tally.ones(2, device='cuda:1')").stderr
    install(environment, str(cuda_wheel(tmp_path, "9.9")))
    assert f"is of version 9.9 and this is {python_wheel.version()}" in environment("-m", "tally", "--version").stdout
    assert environment("-m", "pip", "uninstall", "-y", "tally-cuda").returncode == 0
    assert not (site / "tally_cuda").exists()


def test_pip_builds_it(wheel, environment, tmp_path):
    """By way of pip, with its isolated environment: no build requirement is asked of an index."""
    done = environment("-m", "pip", "wheel", "--no-index", "--no-deps", "-w", str(tmp_path), str(ROOT),
                       PATH=os.environ["PATH"], **QUICK)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_editable(environment):
    install(environment, "-e", str(ROOT))
    assert environment("-m", "tally", "--version", PATH="/nonexistent").returncode == 0
    done = environment("-c", "import tally; print(tally.__file__); assert tally.ones(3).sum().item() == 3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(ROOT / "python" / "tally" / "__init__.py")


def test_sources_are_whole(tmp_path):
    """The archive of sources has what make needs: a dry run finds every file that it names."""
    name = python_wheel.build_sdist(str(tmp_path))
    assert name == python_wheel.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as tar:
        members = tar.getnames()
        tar.extractall(tmp_path, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(tmp_path)
    folder = tmp_path / f"tally-{python_wheel.version()}"
    assert f"{folder.name}/PKG-INFO" in members and f"{folder.name}/pyproject.toml" in members
    done = subprocess.run(["make", "-n", "CUDA=0", "lib", "python"], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "MAKEFLAGS": ""})
    assert done.returncode == 0 and "src/ops/create.c" in done.stdout, done.stderr
