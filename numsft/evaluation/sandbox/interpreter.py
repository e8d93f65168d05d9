"""The interpreter that programs get: its command line, its environment, and the only files they may read."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from dataclasses import dataclass

from numsft.errors import UserError

# -I without -E: the environment below is ours alone, and a fixed hash seed makes the order of sets
# repeatable. -u: what was printed before a kill is kept. -S: start-up files (`*.pth`) are not run: they may
# do anything, and those of an editable install cost more than the rest of the start.
_FLAGS = ("-s", "-P", "-S", "-B", "-u", "-X", "utf8")

# What `python FILE` does, with the names that -S leaves out.
_RUN = """
def run(file):
    import __main__, _sitebuiltins, builtins, sys
    del __main__.run
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D")
    builtins.help = _sitebuiltins._Helper()
    sys.argv[:] = [file]
    __main__.__file__ = file
    with open(file, "rb") as text:
        code = compile(text.read(), file, "exec", dont_inherit=True)
    exec(code, vars(__main__))
run({file!r})
"""

_SHARED_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_TIME_ZONES = ("/usr/share/zoneinfo", "/etc/localtime")


@dataclass(frozen=True)
class Interpreter:
    """What a program is run with.

    Attributes:
        executable: path of the interpreter that this environment is based on.
        binds: real paths of the files and folders a program may read, none inside another.
        links: symbolic links (place, target) outside them that lead there.
        environment: the whole environment of a program, without `HOME` and `TMPDIR`.
    """

    executable: str
    binds: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]

    def command(self, file: str) -> list[str]:
        """The command line that runs the program in `file`."""
        return [self.executable, *_FLAGS, "-c", _RUN.format(file=file)]


@functools.cache
def interpreter() -> Interpreter:
    """The interpreter of this process, as programs get it.

    Raises:
        UserError: this Python does not know its own executable.
    """
    executable = getattr(sys, "_base_executable", None) or sys.executable
    if not executable:
        raise UserError(
            "this Python does not know its own executable; run the evaluation with a plain `python`"
        )
    library = [sysconfig.get_path("stdlib"), *(path for path in sys.path if path.endswith("lib-dynload"))]
    packages = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    search = [path for path in dict.fromkeys([*library, *packages]) if os.path.isdir(path)]
    base_libraries = [os.path.join(sys.base_prefix, name) for name in ("lib", "lib64")]
    links: dict[str, str] = {}
    wanted = [executable, *base_libraries, *search, *_SHARED_LIBRARIES, *_TIME_ZONES]
    real = sorted({_follow(path, links) for path in wanted if os.path.exists(path)})
    binds = [path for path in real if not any(_inside(path, other) for other in real if other != path)]
    outside = {place: to for place, to in links.items() if not any(_inside(place, bind) for bind in binds)}
    environment = {
        "PYTHONPATH": os.pathsep.join(search),
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C.UTF-8",
        # Threads of numerical libraries take address space before they take any work.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    return Interpreter(executable, tuple(binds), tuple(outside.items()), tuple(environment.items()))


def _inside(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder


def _follow(path: str, links: dict[str, str]) -> str:
    """The real path; every symbolic link met on the way is added to `links`."""
    here, rest = "/", os.path.abspath(path).split("/")
    while rest:
        part = rest.pop(0)
        if part == "..":
            here = os.path.dirname(here)
        elif part not in ("", "."):
            step = os.path.join(here, part)
            if os.path.islink(step):
                links[step] = os.readlink(step)
                rest = [*links[step].split("/"), *rest]
                here = "/" if links[step].startswith("/") else here
            else:
                here = step
    return here
