"""Goes into site-packages as torch/_six.py, for libraries written for torch 1.x on a torch of 2.0 or later.

torch 2.0 dropped its private module of Python 2 and 3 names, and DeepSpeed 0.7.7 still imports `inf` from it. The other names
are what libraries of that time imported from it; every one is plain Python 3, so nothing of torch itself changes.
"""

import collections.abc as container_abcs  # noqa: F401  the old name of the abstract container types
from math import inf, nan  # noqa: F401  torch._six took them from torch, where they are these same two floats

string_classes = (str, bytes)  # what counted as text
int_classes = int  # Python 2 had int and long
