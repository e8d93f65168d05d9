"""A seccomp filter of refused system calls: sockets, namespaces, mounts, tracing, and memory no limit counts.

Where there is no pid namespace (`alone`), it also refuses new processes, signals to others, and the changes
of files that Landlock does not govern (mode, owner, times).
"""

from __future__ import annotations

import ctypes
import os

from . import kernel

# name: (x86_64, aarch64); None where aarch64 has no such call.
_ALWAYS: dict[str, tuple[int, int]] = {
    "socket": (41, 198), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "syslog": (103, 116), "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "process_madvise": (440, 440),
}  # fmt: skip
_ALONE: dict[str, tuple[int, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "file_setattr": (469, 469), "truncate": (76, 45),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
}  # fmt: skip
_CLONE3 = 435
_KILL, _TGKILL, _CLONE = (62, 129), (234, 131), (56, 220)
_PRLIMIT, _SETAFFINITY, _FCNTL, _IOCTL, _PRCTL = (302, 261), (203, 122), (72, 25), (16, 29), (157, 167)

_NEW_NAMESPACES = 0x7E020080
_CLONE_THREAD = 0x00010000
_SET_OWNER = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: a signal to anyone through a pipe
# FIOSETOWN and SIOCSPGRP do the same; the other two set attributes of a file that is open for reading.
_REFUSED_IOCTL = (0x8901, 0x8902, 0x40086602, 0x401C5820)

_EPERM, _ENOSYS = 0x00050000 | 1, 0x00050000 | 38
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def supported() -> bool:
    """Whether this machine's system call numbers are known here."""
    return os.uname().machine in _AUDIT_ARCH


def program(machine: str, alone: bool, own_pid: int) -> list[Instruction]:
    """The filter as BPF instructions."""
    column = 0 if machine == "x86_64" else 1
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":  # the x32 numbers name the same calls again
        code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _EPERM)]
    refused: list[tuple[int, int | None]] = [*_ALWAYS.values(), *(_ALONE.values() if alone else ())]
    for numbers in refused:
        number = numbers[column]
        if number is not None:
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    # Without clone3, whose flags lie behind a pointer, the C library falls back to clone.
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ENOSYS)]
    code += _when(_CLONE[column], [(0, _ANY_BIT, (_NEW_NAMESPACES,), _EPERM)])
    if alone:
        code += _when(_CLONE[column], [(0, _ANY_BIT, (_CLONE_THREAD,), None)], otherwise=_EPERM)
        for call in (_KILL, _TGKILL):
            code += _when(call[column], [(0, _EQUAL, (own_pid,), None)], otherwise=_EPERM)
        for call in (_PRLIMIT, _SETAFFINITY):
            code += _when(call[column], [(0, _EQUAL, (0, own_pid), None)], otherwise=_EPERM)
        code += _when(_FCNTL[column], [(1, _EQUAL, _SET_OWNER, _EPERM)])
        code += _when(_IOCTL[column], [(1, _EQUAL, _REFUSED_IOCTL, _EPERM)])
        code += _when(_PRCTL[column], [(0, _EQUAL, (kernel.PR_SET_PDEATHSIG,), _EPERM)])
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _when(
    number: int, tests: list[tuple[int, int, tuple[int, ...], int | None]], otherwise: int = _ALLOW
) -> list[Instruction]:
    """For one call: tests of an argument's low half (index, comparison, operands, answer; None allows)."""
    body: list[Instruction] = []
    for argument, comparison, operands, answer in tests:
        body.append((_LOAD, 0, 0, _ARGUMENTS + 8 * argument))
        for operand in operands:
            body += [(comparison, 0, 1, operand), (_RETURN, 0, 0, _ALLOW if answer is None else answer)]
    if otherwise != _ALLOW:
        body.append((_RETURN, 0, 0, otherwise))
    else:
        body.append((_LOAD, 0, 0, _NUMBER))  # the next test reads the call's number again
    return [(_EQUAL, 0, len(body), number), *body]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def restrict(alone: bool) -> None:
    """Applies the filter to this process; needs no_new_privs."""
    install(program(os.uname().machine, alone, os.getpid()))


def install(code: list[Instruction]) -> None:
    """Hands instructions to the kernel; they hold for this process and all it starts."""
    packed = b"".join(
        c.to_bytes(2, "little") + bytes((yes, no)) + k.to_bytes(4, "little") for c, yes, no, k in code
    )
    wanted = _Program(len(code), packed)
    kernel.prctl("seccomp", kernel.PR_SET_SECCOMP, 2, ctypes.byref(wanted))
