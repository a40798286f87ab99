"""An async actor, and refs that are awaited."""

import asyncio

import ray


@ray.remote
class Echo:
    async def say(self, text):
        await asyncio.sleep(0)
        return text


@ray.remote
def one():
    return 1


async def main():
    echo = Echo.options(max_concurrency=10).remote()
    print(await asyncio.gather(*[echo.say.remote(i) for i in range(3)]))
    print(await one.remote(), await one.remote().as_future())
    done, _ = await asyncio.wait([asyncio.wrap_future(one.remote().future())])
    print([future.result() for future in done])


asyncio.run(main())
# > [0, 1, 2]
# > 1 1
# > [1]
