"""The key-value store."""

import ray
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_exists,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

ray.init(num_cpus=1)
print(_internal_kv_put("job:1", b"one"), _internal_kv_put("job:1", b"two", overwrite=False))
print(_internal_kv_get("job:1"), _internal_kv_exists("job:2"), _internal_kv_list("job:"))
print(_internal_kv_del("job:1"), _internal_kv_get(b"job:1"))
# > False True
# > b'one' False [b'job:1']
# > 1 None
