"""Types of Ray's in annotations."""

import ray
from ray import ObjectRef
from ray.actor import ActorClass, ActorHandle
from ray.remote_function import RemoteFunction
from ray.util.annotations import PublicAPI


@PublicAPI(stability="beta")
def gather(refs: list["ObjectRef[int]"]) -> list[int]:
    return ray.get(refs)


@ray.remote
def f() -> int:
    return 1


@ray.remote
class A:
    pass


def show(ref: ObjectRef[int], actor: ActorHandle) -> None:
    print(isinstance(ref, ray.ObjectRef), isinstance(f, RemoteFunction), isinstance(A, ActorClass))


show(f.remote(), A.remote())
print(gather([f.remote()]))
# > True True True
# > [1]
