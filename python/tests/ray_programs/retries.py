"""A task that is run again after an error."""

import os
import tempfile

import ray

folder = tempfile.mkdtemp()


@ray.remote(max_retries=3, retry_exceptions=[OSError])
def flaky(folder):
    attempt = len(os.listdir(folder))
    open(os.path.join(folder, str(attempt)), "w").close()
    if attempt < 2:
        raise OSError("not yet")
    return attempt


print(ray.get(flaky.remote(folder)))
# > 2
