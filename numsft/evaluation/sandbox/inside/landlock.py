"""Landlock: the kernel's file rules for one process and its children (landlock)."""

from __future__ import annotations

import ctypes
import os
import stat

from . import kernel

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
READ = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15
# Rights known at each ABI: 13 at first, then moving between folders, truncation, device ioctls.
_FILE_BITS = {1: 13, 2: 14, 3: 15, 4: 15}


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def abi() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    try:
        return kernel.syscall("landlock", CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


def restrict(version: int, readable: list[str], writable: list[str]) -> None:
    """Allows reading below `readable` and everything below `writable`; refuses the rest.

    TCP is refused from ABI 4 on, signals and abstract sockets of processes outside from ABI 6 on.
    """
    every = (1 << _FILE_BITS.get(version, 16)) - 1
    attributes = (ctypes.c_uint64 * 3)(every, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = kernel.syscall("landlock_create_ruleset", CREATE_RULESET, ctypes.byref(attributes), size, 0)
    for path in readable:
        _allow(rules, path, READ & every)
    for path in writable:
        _allow(rules, path, every)
    kernel.syscall("landlock_restrict_self", RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(folder).st_mode):
        rights &= FILE_RIGHTS
    rule = _Rule(rights, folder)
    kernel.syscall("landlock_add_rule", ADD_RULE, rules, 1, ctypes.byref(rule), 0)
    os.close(folder)
