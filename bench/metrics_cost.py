"""METRICS: a run while /metrics of coordinator and workers is read every second, against a run that nobody watches.

metrics_cost.py BIN MODEL RECIPE
"""

import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

TARGET = 0.95
PAIRS = 9
INTERVAL_SECONDS = 1.0


@contextmanager
def program(command: list[str], event: str, name: str) -> Iterator[tuple[str, str]]:
    """Starts it and yields the addresses `name` and `metrics` of the log line of `event`."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                found = {key: re.search(rf"\b{key}=(\S+)", line) for key in (name, "metrics")}
                if f"event={event}" in line and all(found.values()):
                    break
            else:
                sys.exit(f"metrics_cost: {command[0]} did not start:\n{''.join(lines)}")
            # What it says later is read, so that it never waits for a reader.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield tuple(match[1] for match in found.values() if match)  # type: ignore[misc]
        finally:
            process.terminate()


class Scraper:
    """Reads all addresses every second, from the moment it is entered."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.seconds: list[float] = []
        self.done = threading.Event()
        self.pool = ThreadPoolExecutor(1)

    def __enter__(self) -> None:
        self.done.clear()
        self.scraping = self.pool.submit(self.scrape)

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.scraping.result()  # raises what ended it early

    def scrape(self) -> None:
        """Until it is left."""
        due = time.monotonic()
        while not self.done.wait(max(0.0, due - time.monotonic())):
            due += INTERVAL_SECONDS
            for address in self.addresses:
                start = time.perf_counter()
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                    answer.read()
                self.seconds.append(time.perf_counter() - start)


def main() -> None:
    """Prints one line: the ratio, its target, both sides, and how long a scrape took."""
    binaries, model, recipe = map(Path, sys.argv[1:4])
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        def start(name: str, event: str, address: str, *options: str) -> tuple[str, str]:
            command = [str(binaries / name), "--metrics-listen", "127.0.0.1:0", *options]
            return stack.enter_context(program(command, event, address))

        coordinator, metrics = start("espalier-coordinator", "listening", "address", "--listen", "127.0.0.1:0")
        workers = [
            start("espalier-worker", "starting", "coordinator", "--coordinator", coordinator, "--name", f"w{rank}")
            for rank in range(2)
        ]
        scraper = Scraper([metrics, *(served for _, served in workers)])

        def run_watched() -> float:
            with scraper:
                return run()

        def run() -> float:
            options = ["--model", str(model), "--output", f"{folder}/out", "--overwrite", "--workers", "2", "--wait"]
            command = [str(binaries / "espalier"), "submit", str(recipe), "--coordinator", coordinator, *options]
            begun = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - begun

        run()
        bare, watched = [], []
        for pair in range(PAIRS):
            if pair % 2 == 1:
                watched.append(run_watched())
            bare.append(run())
            if pair % 2 == 0:
                watched.append(run_watched())
    ratio = statistics.median(b / w for b, w in zip(bare, watched, strict=True))
    verdict = "PASS" if ratio >= TARGET else "FAIL"
    print(
        f"METRICS run-scraped-every-{INTERVAL_SECONDS:.0f}s ratio={ratio:.2f} target>={TARGET:.2f} {verdict}",
        f"baseline={statistics.median(bare):.2f}s ours={statistics.median(watched):.2f}s",
        f"scrape={statistics.median(scraper.seconds) * 1e3:.1f}ms slowest={max(scraper.seconds) * 1e3:.1f}ms",
        f"scrapes={len(scraper.seconds)}",
    )


main()
