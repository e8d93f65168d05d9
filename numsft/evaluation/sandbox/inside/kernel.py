"""The system calls that Python has no name for, through ctypes; each raises OSError naming what failed."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE, AT_EMPTY_PATH = -100, 0x8000, 0x1000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 1, 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
ADDR_NO_RANDOMIZE = 0x0040000
SIGKILL = 9

# Numbers that do not depend on the architecture: all calls since Linux 5.0 share theirs.
SYS_MOUNT_SETATTR = 442
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    """A raw system call; integers are widened to 64 bits."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(what, _libc.syscall(ctypes.c_long(number), *words))


def unshare(flags: int) -> None:
    """New namespaces for this process (for the pid namespace: for its children)."""
    _checked("unshare", _libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """`mount(2)`."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _checked(f"mount on {target}", _libc.mount(*arguments))


def read_only(target: str) -> None:
    """Makes a mount and all below it read-only; flags that an outer namespace locked are left as they are."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    where = ctypes.c_char_p(target.encode())
    size = ctypes.sizeof(attributes)
    syscall("mount_setattr", SYS_MOUNT_SETATTR, AT_FDCWD, where, AT_RECURSIVE, ctypes.byref(attributes), size)


def enter_root(folder: str) -> None:
    """Makes `folder`, a mount point, the root, and drops the old root."""
    os.chdir(folder)
    here = ctypes.c_char_p(b".")
    syscall("pivot_root", SYS_PIVOT_ROOT[os.uname().machine], here, here)
    _checked("umount2", _libc.umount2(b".", MNT_DETACH))
    os.chdir("/")


def prctl(what: str, option: int, *arguments: object) -> None:
    """`prctl(2)`."""
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(what, _libc.prctl(option, *words))


def die_with_parent() -> None:
    """This process is killed when the one that made it ends."""
    prctl("PR_SET_PDEATHSIG", PR_SET_PDEATHSIG, SIGKILL)


def drop_capabilities() -> None:
    """Gives up every capability; with no_new_privs none comes back, not even to uid 0 on exec."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    number = SYS_CAPSET[os.uname().machine]
    syscall("capset", number, ctypes.byref(header), ctypes.byref(nothing))


def fix_addresses() -> None:
    """Turns address randomisation off, so that the order of a set of objects is the same in every run.

    Docker's default filter forbids it; there the order of such sets may differ.
    """
    _libc.personality(ctypes.c_ulong(ADDR_NO_RANDOMIZE))
