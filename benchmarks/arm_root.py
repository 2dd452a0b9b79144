"""A Debian root for aarch64, whose programs run under qemu's user emulation: no virtual machine, and no board."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PROJECT = Path(__file__).parents[1]
PACKAGES = "python3,python3-venv,ca-certificates,libgomp1"
TOOLS = {
    "debootstrap": "debootstrap",
    "qemu-aarch64-static": "qemu-user-static",
    "unshare": "util-linux",
    "mount": "mount",
    "git": "git",
}
"""What this needs, and the Debian packages that have it."""
PROCESSOR = "cortex-a76"
"""Which processor is emulated unless another is named: that of a Raspberry Pi 5, and an RK3588's large cores."""
FAST_CORE = "1"
FILES = {"possible": "0-1", "present": "0-1", "online": "0-1"} | {
    f"cpu{core}/{name}": text
    for core, capacity, khz in ((0, "446", "1800000"), (1, "1024", "2400000"))
    for name, text in (
        ("cpu_capacity", capacity),
        ("cpufreq/cpuinfo_max_freq", khz),
        ("regs/identification/midr_el1", "0x00000000414fd0b1"),
    )
}
"""What the root's /sys says of processors, one small and one large; the real one would be this machine's."""

_FORMATS = Path("/proc/sys/fs/binfmt_misc")
_NAME = "qemu-aarch64-edgefront"
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
"""The start of an ELF program for aarch64, 64 bits, little-endian (binfmt_misc in the kernel's documentation)."""
_ENTER = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" sh -c 'cd /src; exec "$@"' sh "$@"
"""
"""Mounts are of this process alone, and end with it."""
_CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")


def check_tools() -> None:
    """Ends the program if something is missing, and says what."""
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        sys.exit(f"missing on this machine: {', '.join(missing)}. On Debian: apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        sys.exit("this makes a Debian root, mounts and registers an emulator: run it as root")


@contextmanager
def emulation() -> Iterator[None]:
    """The kernel starts programs for aarch64 under qemu. What this registers is withdrawn at the end."""
    if not (_FORMATS / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", _FORMATS], check=True)
    if any("qemu-aarch64" in entry.name and "_be" not in entry.name for entry in _FORMATS.iterdir()):
        yield
        return
    # F: the kernel opens the emulator now, so that it is found inside another root.
    rule = f":{_NAME}:M::{_MAGIC}:{_MASK}:{shutil.which('qemu-aarch64-static')}:F"
    (_FORMATS / "register").write_text(rule)
    try:
        yield
    finally:
        (_FORMATS / _NAME).write_text("-1")


class Root:
    """A Debian root in a folder. Network and /proc are this machine's; /sys is files that `create` wrote."""

    def __init__(self, folder: Path, processor: str = PROCESSOR) -> None:
        self.folder, self._processor = folder, processor

    def create(self) -> None:
        """Makes it, unless it is there."""
        if not (self.folder / "complete").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            options = ["--arch=arm64", "--variant=minbase", f"--include={PACKAGES}"]
            subprocess.run(["debootstrap", *options, "bookworm", self.folder], check=True, stdout=subprocess.DEVNULL)
            (self.folder / "complete").touch()
        for copied in (Path("etc/resolv.conf"), _CERTIFICATES):
            if (Path("/") / copied).exists():
                shutil.copy(Path("/") / copied, self.folder / copied)
        for name, text in FILES.items():
            file = self.folder / "sys/devices/system/cpu" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")

    def copy_project(self) -> None:
        """The files that git does not ignore, as they are now, into /src."""
        source = self.folder / "src"
        shutil.rmtree(source, ignore_errors=True)
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE).stdout
        for name in filter(None, names.decode().split("\0")):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, target, follow_symlinks=False)

    def run(self, *command: str) -> str:
        """The standard output of a command, in /src. `CalledProcessError` if it fails."""
        inside, environment = self._inside(command), self._environment()
        return subprocess.run(inside, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout

    def start(self, *command: str, log: BinaryIO) -> subprocess.Popen[bytes]:
        """A command in /src that writes into a log; its process is the program itself, so that signals reach it."""
        return subprocess.Popen(self._inside(command), env=self._environment(), stdout=log, stderr=log)

    def _inside(self, command: Sequence[str]) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", _ENTER, str(self.folder), *command]

    def _environment(self) -> dict[str, str]:
        # How pip reaches an index; folders of wheels are not in the root.
        pip = {name: text for name, text in os.environ.items() if name.startswith("PIP_") and name != "PIP_FIND_LINKS"}
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "QEMU_CPU": self._processor,
            **({"PIP_CERT": f"/{_CERTIFICATES}"} if (Path("/") / _CERTIFICATES).exists() else {}),
            **pip,
        }
