"""Ids as values."""

import pickle

import ray

for kind in (ray.ActorID, ray.TaskID, ray.JobID, ray.NodeID, ray.WorkerID, ray.UniqueID):
    nil = kind.nil()
    print(kind.__name__, nil.is_nil(), len(nil.binary()) == kind.size(), kind(nil.binary()) == nil)
one = ray.NodeID.from_random()
print(ray.NodeID.from_hex(one.hex()) == one, pickle.loads(pickle.dumps(one)) == one)
print(str(one) == f"NodeID({one.hex()})", len({one, ray.NodeID.from_hex(one.hex())}))
try:
    ray.JobID(b"123456789")
except ValueError:
    print("too long")
# > ActorID True True True
# > TaskID True True True
# > JobID True True True
# > NodeID True True True
# > WorkerID True True True
# > UniqueID True True True
# > True True
# > True 1
# > too long
