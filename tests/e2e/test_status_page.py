"""The status page as a browser shows it: headless Chromium loads it from a live coordinator."""

import re
import subprocess
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from harness import Cluster, Tensor, bf16, make_checkpoint, recipe

# What a browser would run, or take for markup, wherever it is put unescaped.
HOSTILE = "l<script>document.title='taken'</script>\"'&amp;"
ZEROS = {0: 96, 1: 0, 2: 48, 10: 24}  # of 96 elements, by layer


class Page(HTMLParser):
    """Elements with their attributes, and the texts of a document that a browser has finished."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def chromium(directory: Path, *arguments: str) -> str:
    """Its standard output. A profile of its own, and no sandbox: tests may run as root."""
    directory.mkdir(exist_ok=True)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"]
    done = subprocess.run(
        ["chromium", *options, f"--user-data-dir={directory / 'profile'}", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=directory,
    )
    return done.stdout


def pixels(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Rows x columns x channels of a PNG with 8 bits a channel, which is what a screenshot is."""
    data = path.read_bytes()
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert data[24] == 8
    channels = {2: 3, 6: 4}[data[25]]
    packed, at = b"", 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += 12 + size
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    out = np.zeros((height, width, channels), np.uint8)
    before = np.zeros((width, channels), np.uint8)
    for y, line in enumerate(lines):
        row = line[1:].reshape(width, channels).copy()
        kind = int(line[0])
        if kind == 2:  # up
            row += before
        elif kind == 1:  # sub
            row = np.add.accumulate(row, axis=0, dtype=np.uint8)
        elif kind in (3, 4):  # average, Paeth: each pixel waits for the one to its left
            for x in range(width):
                left = row[x - 1].astype(int) if x else np.zeros(channels, int)
                up, corner = before[x].astype(int), (before[x - 1].astype(int) if x else np.zeros(channels, int))
                if kind == 3:
                    guess = (left + up) // 2
                else:
                    near = np.abs(np.stack([up - corner, left - corner, left + up - 2 * corner]))
                    guess = np.choose(np.argmin(near, axis=0), [left, up, corner])
                row[x] = (row[x] + guess) % 256
        out[y] = before = row
    return out


def zeroed(zeros: int) -> Tensor:
    values = np.ones(96, "<f4")
    values[:zeros] = 0
    return bf16(values.reshape(8, 12))


@pytest.fixture(name="page", scope="module")
def fixture_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """The page of a held run: its address, the document, and a folder."""
    directory = tmp_path_factory.mktemp("page")
    tensors = {f"{HOSTILE}.{layer}.weight": zeroed(zeros) for layer, zeros in ZEROS.items()}
    model = make_checkpoint(directory / "m", tensors)
    path = recipe(directory, "zeros", 'ConstantPruningModifier: {targets: ["re:.*weight"]}')
    with Cluster(directory / "c", workers=1, lease="60s") as cluster:
        run = cluster.hold(path, model, 1)
        found = re.search(r"metrics=(127\.0\.0\.1:\d+)", cluster.log("coordinator"))
        assert found
        url = f"http://{found.group(1)}/?run={run}"
        yield url, chromium(directory / "dom", "--dump-dom", url), directory


def test_layers_are_bars_in_their_order(page: tuple[str, str, Path]) -> None:
    document = Page(page[1])
    bars = [float(rect["width"]) for rect in document.all("rect")]
    whole, filled = bars[::2], bars[1::2]
    assert len(set(whole)) == 1
    assert [round(96 * bar / whole[0]) for bar in filled] == [ZEROS[layer] for layer in sorted(ZEROS)]
    shares = [text for text in document.texts if text.endswith(" of 96")]
    assert shares == ["100.00 % of 96", "0.00 % of 96", "50.00 % of 96", "25.00 % of 96"]


def test_what_users_name_is_text(page: tuple[str, str, Path]) -> None:
    document = Page(page[1])
    assert document.all("script") == []
    assert "<title>Espalier</title>" in page[1]
    assert any(HOSTILE in text for text in document.texts)


def test_nothing_comes_from_elsewhere(page: tuple[str, str, Path]) -> None:
    for tag, attributes in Page(page[1]).elements:
        for name, value in attributes.items():
            if name in ("src", "href", "action", "data", "style"):
                assert value.startswith("/"), (tag, name, value)
            assert not name.startswith("on"), (tag, name)


def test_the_picture_has_the_bars(page: tuple[str, str, Path]) -> None:
    """As many pixels of the bars' colour as the layers have zeros, in one scale."""
    url, document, directory = page
    picture = directory / "status.png"
    chromium(directory / "shot", f"--screenshot={picture}", "--window-size=1200,900", url)
    fill = [rect["fill"] for rect in Page(document).all("rect")][1]
    colour = [int(fill[i : i + 2], 16) for i in (1, 3, 5)]
    rows = (pixels(picture)[:, :, :3] == colour).all(axis=2).sum(axis=1)
    runs = [int(row) for row, before in zip(rows, [0, *rows], strict=False) if row > 20 and before <= 20]
    assert [round(96 * run / max(runs)) for run in runs] == pytest.approx([96, 48, 24], abs=1)
