from hoplo.ray.dag import *

from . import class_node as class_node
from . import compiled_dag_node as compiled_dag_node
from . import dag_node as dag_node
from . import function_node as function_node
from . import input_node as input_node
from . import output_node as output_node
