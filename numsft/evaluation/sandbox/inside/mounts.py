"""A program's own root: what Python needs, read-only; a scratch folder in memory; nothing else."""

from __future__ import annotations

import os

from . import kernel

# A folder that every Linux has and that holds no interpreter: the new root is built on top of it.
BUILD_AT = "/proc"
SCRATCH = "/scratch"
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def build_root(binds: list[str], links: list[tuple[str, str]], scratch_mib: int) -> None:
    """Replaces the file system of this process's mount namespace.

    Args:
        binds: real paths of files and folders that stay, read-only, at the same place.
        links: symbolic links (place, target) that lead to them.
        scratch_mib: size of the scratch folder, MiB; it is gone with the last process of the namespace.
    """
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", BUILD_AT, "tmpfs", flags, "size=1m,mode=755")
    for path in (*binds, *DEVICES):
        _bind(path, BUILD_AT + path)
    for place, target in links:
        os.makedirs(os.path.dirname(BUILD_AT + place), exist_ok=True)
        os.symlink(target, BUILD_AT + place)
    for place in ("/tmp", "/dev/shm"):
        if not os.path.lexists(BUILD_AT + place):
            os.symlink(SCRATCH, BUILD_AT + place)
    os.mkdir(BUILD_AT + SCRATCH)
    kernel.read_only(BUILD_AT)
    kernel.mount("tmpfs", BUILD_AT + SCRATCH, "tmpfs", flags, f"size={scratch_mib}m,nr_inodes=1k,mode=1777")
    kernel.enter_root(BUILD_AT)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)
