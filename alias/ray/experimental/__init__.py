from hoplo.ray.experimental import *

from . import compiled_dag_ref as compiled_dag_ref
from . import internal_kv as internal_kv
from . import locations as locations
from . import tqdm_ray as tqdm_ray
