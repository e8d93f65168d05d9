"""Studies: the same recipe with several objectives and seeds, run, collected and compared.

`study.py` reads the study file, `runs.py` runs what is missing, `collect.py` reads what the runs left,
`statistics.py` compares objectives; `numsft.report` draws it.
"""

from numsft.compare.collect import collect
from numsft.compare.runs import run_missing
from numsft.compare.study import Study, load_study

__all__ = ["Study", "collect", "load_study", "run_missing"]
