from hoplo.ray.util import *

from . import accelerators as accelerators
from . import actor_group as actor_group
from . import actor_pool as actor_pool
from . import annotations as annotations
from . import check_serialize as check_serialize
from . import client as client
from . import collective as collective
from . import dask as dask
from . import debug as debug
from . import helpers as helpers
from . import inspect as inspect
from . import iter as iter
from . import iter_metrics as iter_metrics
from . import joblib as joblib
from . import local_iter as local_iter
from . import multiprocessing as multiprocessing
from . import named as named
from . import progress as progress
from . import queue as queue
from . import scheduling_strategies as scheduling_strategies
from . import serialization as serialization
from . import state as state
from . import summary as summary
from . import timer as timer
