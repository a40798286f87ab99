"""Asks every question, one after the other, then writes RESULTS.md."""

import subprocess
import sys
import time

from harness import HERE
from report import ORDER


def main() -> None:
    failed = []
    for name in ORDER:
        start = time.monotonic()
        done = subprocess.run([sys.executable, f"{name}.py", *sys.argv[1:]], cwd=HERE, check=False)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    subprocess.run([sys.executable, "report.py"], cwd=HERE, check=True)
    if failed:
        sys.exit(f"these programs failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
