"""What runs between the evaluator and a program: standard library only, started anew for each program.

The evaluator starts `launcher.main` with `python -I -S -B` and this folder's parent on `sys.path`, so nothing
here may import from `numsft`, and every import is paid for once a program.
"""
