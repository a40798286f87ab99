"""An actor with `async def` methods serves many calls at once in one process.

    python examples/async_actor.py

A rate limiter that any number of tasks share: each asks for a permit and awaits its turn. While
hundreds of them wait, the actor still answers questions about itself.
"""

import asyncio
import time

import hoplo


@hoplo.remote
class RateLimiter:
    """Gives so many permits a second, in the order in which they were asked for."""

    def __init__(self, per_second: float) -> None:
        self.interval = 1 / per_second
        self.next_turn = 0.0
        self.waiting = 0

    async def permit(self) -> float:
        """Returns how long the caller had to wait for its turn."""
        now = time.monotonic()
        self.next_turn = max(now, self.next_turn + self.interval)
        self.waiting += 1
        await asyncio.sleep(self.next_turn - now)
        self.waiting -= 1
        return self.next_turn - now

    async def queue_length(self) -> int:
        return self.waiting


@hoplo.remote
def fetch(limiter: hoplo.ActorHandle, page: int) -> str:
    """Pretends to ask somebody else's server, politely."""
    waited = hoplo.get(limiter.permit.remote())
    return f"page {page} after {waited:.2f} s"


async def main() -> None:
    limiter = RateLimiter.remote(per_second=100)

    # From tasks: each waits in its own worker.
    for line in hoplo.get([fetch.remote(limiter, page) for page in range(3)]):
        print(line)

    # From this program: refs can be awaited, and gathered, like any other awaitable.
    permits = [limiter.permit.remote() for _ in range(100)]
    await asyncio.sleep(0.2)
    print("waiting now:", await limiter.queue_length.remote())
    waits = await asyncio.gather(*permits)
    print(f"{len(waits)} permits, the last one after {max(waits):.2f} s")


if __name__ == "__main__":
    with hoplo.init():
        asyncio.run(main())
