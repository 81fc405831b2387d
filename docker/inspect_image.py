"""Runs inside an image, under its own Python (3.8 or newer, standard library only): prints what the image holds, as JSON.

    python3 -c "$(cat inspect_image.py)"

It only reads. What it finds is judged outside, by scripts/images/verify.py.
"""

import base64
import csv
import ctypes
import glob
import hashlib
import json
import mmap
import os
import platform
import re
import struct
import subprocess
from importlib.metadata import distributions

#: What would compile C, C++ or CUDA; versions may follow a name, as in gcc-12.
COMPILERS = re.compile(r"^(cc1(plus)?|cicc|nvcc|cudafe\+\+|clang(\+\+)?|cc|c\+\+|((x86_64-linux-gnu-)?(gcc|g\+\+)))(-[0-9]+)?$")

#: What a build could leave behind: caches, and settings of the machine that built.
LEFTOVERS = ("/root/.cache", "/root/.pip", "/root/.config", "/root/.netrc", "/etc/pip.conf", "/run/secrets", "/run/kit", "/run/locks", "/run/wheels", "/wheels")

FATBIN_MAGIC = 0xBA55ED50


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.digest()


def record_of(distribution):
    """[(path, name, digest)] of a distribution's RECORD."""
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    return [(os.path.normpath(str(distribution.locate_file(name))), name, digest.rstrip("=")) for name, digest, _ in rows]


def recorded_digests(everything):
    """{path: the digests that distributions record for it}. Two distributions may bring the same file: the one installed last wins."""
    digests = {}
    for distribution in everything:
        for path, _, digest in record_of(distribution):
            digests.setdefault(path, set()).add(digest)
    return digests


def altered_files(distribution, recorded):
    """Files of a distribution that are not, or no longer, what its RECORD or that of another distribution says."""
    found = []
    for path, name, digest in record_of(distribution):
        # cmake's list names folders, of which one was never there; numpy's has a hash of bytecode, which pip makes anew.
        if name.endswith(("/", ".pyc")) or os.path.isdir(path):
            continue
        if not os.path.exists(path):
            found.append(name + ": missing")
        elif digest.startswith("sha256="):
            there = "sha256=" + base64.urlsafe_b64encode(sha256(path)).decode().rstrip("=")
            if there not in recorded[path]:
                found.append(name + ": another hash")
    return found


def unowned_files(recorded):
    """{path in site-packages: sha256} of files that no package brought, "" for a link to a folder: Python imports what lies behind it."""
    found = {}
    for top in glob.glob("/opt/venv/lib/python3*/site-packages"):
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            links = [os.path.join(folder, name) for name in folders if os.path.islink(os.path.join(folder, name))]
            paths = [os.path.join(folder, name) for name in names]
            found.update((os.path.relpath(path, top), "") for path in links if path not in recorded)
            found.update((os.path.relpath(path, top), sha256(path).hex()) for path in paths if path not in recorded)
    return found


def archives():
    """{name: sha256} of the files that pip installed, as the build noted them."""
    noted = {}
    for path in sorted(glob.glob("/opt/kit/archives/*.json")):
        with open(path) as stream:
            noted.update((name, one["sha256"]) for name, one in json.load(stream).items())
    return noted


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as stream:
        return stream.read().split()


def debian_packages():
    """name=version of every Debian package."""
    try:
        done = subprocess.run(["dpkg-query", "--show", "--showformat", "${Package}=${Version}\n"], stdout=subprocess.PIPE, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return sorted(done.stdout.decode().split())


def compilers():
    """Paths of programs that compile."""
    found = []
    for top in ("/bin", "/usr", "/opt"):
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            found += [os.path.join(folder, name) for name in names if COMPILERS.match(name) and os.access(os.path.join(folder, name), os.X_OK)]
    return sorted(found)


def leftovers():
    """Caches and settings that a build forgot."""
    found = [path for path in LEFTOVERS if os.path.exists(path)]
    found += glob.glob("/opt/venv/lib/python3*/site-packages/*.dist-info/direct_url.json") + glob.glob("/usr/local/share/ca-certificates/*")
    return sorted(found)


def elf_section(data, wanted):
    """(offset, size) of a section of a 64-bit ELF file, or None. System V ABI, chapter 4."""
    if data[:5] != b"\x7fELF\x02":
        return None
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    (names,) = struct.unpack_from("<Q", data, table + names_index * entry_bytes + 0x18)
    for index in range(count):
        header = table + index * entry_bytes
        (name,) = struct.unpack_from("<I", data, header)
        if data[names + name : data.find(b"\0", names + name)] == wanted:
            return struct.unpack_from("<QQ", data, header + 0x18)
    return None


def architectures(path):
    """The GPU architectures that a library holds code for: "sm_86" is machine code, "compute_86" PTX.

    Its section .nv_fatbin is a row of containers, each a header (magic, version, header size, size) and a row of entries (kind at 0: 1 is
    PTX, 2 is machine code; header size at 4; payload size at 8; architecture at 28). NVIDIA does not document this; cuobjdump reads the same.
    """
    found = set()
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        section = elf_section(data, b".nv_fatbin")
        if section is None:
            return []
        place, end = section[0], section[0] + section[1]
        while place + 16 <= end:
            magic, _, header_bytes, size = struct.unpack_from("<IHHQ", data, place)
            if magic != FATBIN_MAGIC:
                place += 8  # containers are aligned to 8 bytes
                continue
            entry, place = place + header_bytes, place + header_bytes + size
            while entry + 32 <= place:
                kind, _, entry_header_bytes, payload = struct.unpack_from("<HHIQ", data, entry)
                (arch,) = struct.unpack_from("<I", data, entry + 28)
                found.add(("sm_" if kind == 2 else "compute_") + str(arch))
                entry += entry_header_bytes + payload
    return sorted(found, key=lambda name: (name.split("_")[0], int(name.split("_")[1])))


def kernel_libraries():
    """{path in site-packages: {"architectures": […], "loads": "" or why not}} of the libraries with GPU code that were compiled for this image."""
    found = {}
    for path in sorted(glob.glob("/opt/venv/lib/python3*/site-packages/deepspeed/ops/**/*.so", recursive=True)):
        try:
            ctypes.CDLL(path)
            loads = ""
        except OSError as error:
            loads = str(error)
        found[path.partition("site-packages/")[2]] = {"architectures": architectures(path), "loads": loads}
    return found


def torch_facts():
    """CUDA's version and the architectures as torch tells them, and those that its libraries hold."""
    try:
        import torch
    except ImportError:
        return "", [], []
    flags = torch._C._cuda_getArchFlags() or ""  # torch.cuda.get_arch_list tells nothing where there is no GPU
    libraries = glob.glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cuda*.so"))
    return torch.version.cuda or "", flags.split(), sorted({one for path in libraries for one in architectures(path)})


def main():
    everything = list(distributions())
    recorded = recorded_digests(everything)
    cuda, flags, held = torch_facts()
    print(
        json.dumps(
            {
                "python": platform.python_version(),
                "cuda": cuda,
                "arch_list": flags,
                "torch_architectures": held,
                "packages": {one.metadata["Name"]: one.version for one in everything},
                "archives": archives(),
                "altered": {one.metadata["Name"]: files for one in everything for files in [altered_files(one, recorded)] if files},
                "unowned": unowned_files(recorded),
                "compiled_with": lines("/opt/kit/compiled-with.txt"),
                "debian": debian_packages(),
                "debian_added": lines("/opt/kit/debian.txt"),
                "compilers": compilers(),
                "leftovers": leftovers(),
                "kernels": kernel_libraries(),
                "user": os.getuid(),
            }
        )
    )


if __name__ == "__main__":
    main()
