"""Hostile programs by kind, for the test of a thousand: each a text with `{n}` for its number."""

# TARGET is a file of the evaluator's, EVALUATOR its process id, PORT a TCP port it listens on.
KINDS = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(100)",
    "huge power": "print(10**10**9)",
    "long print": "print(9**(4 * 10**5))",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "daemon": "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
    "    if os.fork() == 0: time.sleep(100)\nprint(1)",
    "child with pipe": "import os, time\nif os.fork() == 0: time.sleep(100)\nprint(1)",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()",
    "memory": "x = [0] * 10**11",
    "slow memory": "x = []\nwhile True: x.append(bytearray(10**6))",
    "memory of children": "import os\nfor _ in range(5): os.fork()\n"
    "x = bytearray(b'x') * (100 << 20)\nwhile True: pass",
    "output": "print('x' * 10**8)",
    "endless output": "while True: print('x' * 1000)",
    "errors": "import sys\nwhile True: sys.stderr.write('Traceback' * 1000)",
    "overwrite": "open(TARGET, 'w').write('hostile {n}')",
    "delete": "import os\nos.unlink(TARGET)",
    "mode": "import os\nos.chmod(TARGET, 0)",
    "new files": "import os\nfor d in ('/tmp', '/dev/shm', '/var/tmp', '/', os.path.dirname(TARGET), '.'):\n"
    "    try: open(d + '/numsft-hostile-{n}', 'w').write('x')\n    except OSError: pass",
    "link": "import os\nos.symlink(TARGET, 'link')\nopen('link', 'w').write('x')",
    "disk": "for k in range(10**5): open(f'f{{k}}', 'wb').write(b'x' * 10**6)",
    "names": "import os\nfor k in range(10**5): os.mkdir(str(k))",
    "shared memory": "import ctypes\nprint(ctypes.CDLL(None).shmget({n} + 77, 4096, 0o1666))",
    "read": "import glob\n"
    "for f in ['/etc/passwd', TARGET, *glob.glob('/home/*/*'), *glob.glob('/*/.*')]: open(f).read()",
    "tcp": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 2).send(b'hostile')",
    "udp": "import socket\nsocket.socket(2, 2).sendto(b'hostile', ('127.0.0.1', PORT))",
    "kill evaluator": "import os\nos.kill(EVALUATOR, 9)",
    "kill all": "import os\nos.kill(-1, 9)",
    "kill group": "import os\nos.killpg(0, 9)",
    "kill parent": "import os\nos.kill(os.getppid(), 9)\nos.kill(os.getppid(), 19)",
    "kill many": "import os\nfor p in range(2, 33000):\n    try: os.kill(p, 15)\n    except OSError: pass",
    "deaf": "import signal\nfor k in range(1, 32):\n    try: signal.signal(k, signal.SIG_IGN)\n"
    "    except OSError: pass\nwhile True: pass",
    "stop": "import os\nos.kill(os.getpid(), 19)",
    "limit evaluator": "import resource\nresource.prlimit(EVALUATOR, resource.RLIMIT_CPU, (1, 1))",
    "renice evaluator": "import os\nos.setpriority(os.PRIO_PROCESS, EVALUATOR, 19)",
    "trace": "import ctypes\nprint(ctypes.CDLL(None).ptrace(16, EVALUATOR, 0, 0))",
    "proc": "open(f'/proc/{{EVALUATOR}}/mem', 'wb').write(b'x')",
    "exit": "import os\nprint(1)\nos._exit(0)",
    "exit code": "import os\nos._exit(77)",
    "system exit": "print(1)\nraise SystemExit('ValueError: x')",
    "crash": "import ctypes\nctypes.string_at(0)",
    "recursion": "def f(): return f()\nf()",
    "own package": "import numsft.evaluation.sandbox.run as r\n"
    "r.run_batch = None\nopen(r.__file__, 'w').write('')",
    "python's files": "import os\nopen(os.__file__, 'a').write('raise SystemExit')",
    "verdict": "import os\nfor fd in range(2, 64):\n    try: os.write(fd, b'ended 0 0\\nbroken x\\n')\n"
    "    except OSError: pass\n1 / 0",
    "close all": "import os\nos.closerange(0, 100)",
    "namespaces": "import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000 | 0x20000))",
    "shell": "import subprocess\n"
    "subprocess.run(['sh', '-c', 'sleep 100 & echo x > /tmp/numsft-hostile-{n}'])",
    "not a program": "The answer is {n}.\x00\ud800",
}
# Those that only the clock ends would take most of the time.
RARE = {"sleep", "fork bomb", "memory of children", "stop", "kill parent"}
