"""A run that was killed and gone on with ends in the same bits as one that nothing ever stopped."""

import random
from pathlib import Path

import pytest
from interrupted import KINDS, PATIENCE, POINTS, assert_alike, kill_at, left_behind, lines, start, to_the_end

CACHE = "compiled"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


def reference(workshop: Path, kind: str) -> Path:
    """The same run, never interrupted."""
    folder = workshop / kind / "never"
    if not (folder / "verdict.json").exists():
        to_the_end(kind, folder, workshop / CACHE)
    return folder


def killed_and_resumed(workshop: Path, kind: str, name: str, kills: int, seed: int) -> int:
    """Kill a run at random moments, so often, and go on with it each time; how often it really was killed."""
    draw, folder, survived = random.Random(seed), workshop / kind / name, 0
    while survived < kills:
        process = start(kind, folder, workshop / CACHE)
        room = POINTS - lines(folder)
        point = lines(folder) + draw.randrange(0, max(1, 2 * room // (kills - survived + 1)))
        if not kill_at(process, folder, point, draw.uniform(0.0, 0.1)):
            break
        survived += 1
    if not (folder / "verdict.json").exists():
        to_the_end(kind, folder, workshop / CACHE)
    return survived


@pytest.mark.parametrize("kind", KINDS)
def test_one_kill(workshop: Path, kind: str) -> None:
    never = reference(workshop, kind)
    assert killed_and_resumed(workshop, kind, "once", 1, 7) == 1
    assert_alike(never, workshop / kind / "once")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_many_kills(workshop: Path, kind: str, seed: int) -> None:
    """Twenty-four in all."""
    never = reference(workshop, kind)
    assert killed_and_resumed(workshop, kind, f"often{seed}", 4, seed) == 4
    assert_alike(never, workshop / kind / f"often{seed}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kills_in_the_middle_of_writing(workshop: Path, kind: str) -> None:
    """Before any of the calls that make a checkpoint last: files synced, put in place, their folder synced."""
    never = reference(workshop, kind)
    for deadly, times in (("fsync", 7), ("fsync", 8), ("fsync", 9), ("fsync", 10), ("fsync", 14)):
        folder = workshop / kind / f"{deadly}{times}"
        process = start(kind, folder, workshop / CACHE, deadly, times)
        process.join(PATIENCE)
        assert process.exitcode == -9 and not (folder / "verdict.json").exists()
        to_the_end(kind, folder, workshop / CACHE)
        assert_alike(never, folder)


def test_a_reference_has_something_to_compare(workshop: Path) -> None:
    documents, arrays = left_behind(reference(workshop, "robot"))
    assert len(documents["records"]) == POINTS
    assert {"state[0].key", "copies[0]['state']", "copies[1]['generators']", "candidates.value"} <= arrays.keys()
