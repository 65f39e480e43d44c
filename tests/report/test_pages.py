"""The page in a browser: nothing wider than the screen, no complaint, no request; it follows a run that goes on."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, browser
from saved_runs import config_of, record, verdict_of, wavy, write_run

from rcpo.report import write_report
from rcpo.report.watch import make_server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
DESKTOP, PHONE, SMALL_PHONE = 1280, 390, 320
LONG = "mean(a_cost_column_with_a_name_as_long_as_somebody_will_surely_choose_one_day) <= 0.25"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of one run, one with long names, one of many runs, one of a run on its way."""
    place = tmp_path_factory.mktemp("pages")
    runs = []
    for method in ("rcpo", "fixed"):
        for seed in range(4):
            verdict = verdict_of(word="satisfied" if method == "rcpo" else "violated")
            config = config_of(method=method, seed=seed)
            runs.append(write_run(place / f"{method}-{seed}", wavy(40, 1e6), verdict, config=config))
    quantity = LONG.partition(" ")[0]
    long = write_run(place / "long", wavy(40, 1e6, quantity), verdict_of((LONG, LONG)), "An-Environment" * 9,
                     config_of((LONG,)), "rcpo train --" + "long" * 80)  # fmt: skip
    way = write_run(place / "way", wavy(7, 2e5))
    made = {"one": [runs[0]], "long": [long], "many": runs, "way": [way]}
    return {name: write_report(folders, place / f"{name}.html") for name, folders in made.items()}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [DESKTOP, PHONE, SMALL_PHONE])
@pytest.mark.parametrize("name", ["one", "long", "many", "way"])
def test_it_fits_says_nothing_and_asks_for_nothing(
    chromium: Browser, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    url = pages[name].as_uri()
    chromium.open(url, width, dark=dark)
    chromium.ask("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert chromium.wider_than_the_screen <= 0
    assert chromium.complaints == []
    assert chromium.requests == [url]
    ground, ink = (chromium.ask(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    assert (luminance(ground) < 0.1) == dark
    assert contrast(ground, ink) > 7.0


@pytest.mark.parametrize("dark", [False, True])
def test_every_word_stands_out_from_its_ground(chromium: Browser, pages: dict[str, Path], dark: bool) -> None:
    chromium.open(pages["many"].as_uri(), DESKTOP, dark=dark)
    names = ("faint", "good", "bad", "open", *(f"c{i}" for i in range(6)))
    style = "getComputedStyle(document.documentElement).getPropertyValue"
    colours = {name: chromium.ask(f"{style}('--{name}')") for name in (*names, "ground", "card")}
    for name in names:
        for ground in ("ground", "card"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


def luminance(colour: str) -> float:
    """The relative luminance of a colour, as WCAG has it."""
    if colour.startswith("rgb"):
        parts = [int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    else:
        parts = [int(colour.strip()[i : i + 2], 16) for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (p / 255 for p in parts)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_pointer_reads_a_curve(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["one"].as_uri())
    place = chromium.ask("(() => { const box = document.querySelectorAll('.canvas')[1].getBoundingClientRect();"
                         "return [box.left + box.width / 2, box.top + 20]; })()")  # fmt: skip
    chromium.call("Emulation.setDeviceMetricsOverride", width=1280, height=3000, deviceScaleFactor=1, mobile=False)
    chromium.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    text = chromium.ask("document.querySelectorAll('.chart')[1].querySelector('output').textContent")
    value = wavy(40, 1e6)[19]["constraint/mean(torque)/value"]
    steps, shown = text.split(" · ")
    assert steps == "500k" and float(shown) == pytest.approx(value, rel=1e-3)
    assert chromium.complaints == []


def test_a_script_that_slipped_in_would_not_run(chromium: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """The second lock: even a page with somebody else's script in it runs ours alone, and loads nothing."""
    evil = "<script>window.evil = 1</script><img src='http://127.0.0.1:9/x.png' onerror='window.evil = 2'>"
    page = tmp_path / "evil.html"
    page.write_text(pages["one"].read_text().replace("<main>", f"<main>{evil}"))
    chromium.open(page.as_uri())
    assert chromium.ask("window.evil === undefined")
    assert len(chromium.complaints) >= 2  # the browser says what it has refused


def test_a_watched_page_follows_the_run_and_keeps_its_place(chromium: Browser, tmp_path: Path) -> None:
    folder = write_run(tmp_path, wavy(5, 5e5))
    with make_server(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        chromium.open(f"http://127.0.0.1:{server.server_address[1]}/", PHONE, 500)
        chromium.wait("document.getElementById('live').textContent.includes('up to date')")
        chromium.ask("document.querySelector('details').open = true; window.scrollTo(0, 400)")
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record(600_000, {"mean(torque)": 0.2})) + "\n")
        chromium.wait("document.querySelector('main').textContent.includes('600k of 1M steps')")
        assert chromium.ask("window.scrollY") == 400
        assert chromium.ask("document.querySelector('details').open")
        write_run(folder, wavy(10, 1e6), verdict_of())
        chromium.wait("document.querySelector('.card h2').textContent.includes('satisfied')")
        assert chromium.wider_than_the_screen <= 0
        assert chromium.complaints == []
        assert {url.split("/")[2] for url in chromium.requests} == {f"127.0.0.1:{server.server_address[1]}"}
        server.shutdown()
        thread.join()
    chromium.wait("document.getElementById('live').textContent.includes('the watch has ended') || "
                  "document.getElementById('live').textContent.includes('no longer changes')")  # fmt: skip
