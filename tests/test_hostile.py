"""Some thousands of hostile files; `benchmarks/fuzz_checkpoint.py` has a hundred thousand."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PLACE = Path(__file__).parent.parent / "benchmarks" / "fuzz_checkpoint.py"


@pytest.fixture(scope="module")
def fuzzer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_checkpoint", PLACE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("inputs", [600, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_hostile_file_is_read_or_refused_in_one_sentence(fuzzer: ModuleType, inputs: int) -> None:
    counts, failures = fuzzer.fuzz(inputs)
    assert failures == []
    # All kinds of files were attacked, and the attacks were neither all harmless nor all noticed at once.
    attacked = {name.partition(":")[0] for name in counts} - {"distinct inputs"}
    assert len(attacked) == 8 and counts["distinct inputs"] > 0.7 * inputs
    refused, read = (sum(n for name, n in counts.items() if name.endswith(end)) for end in ("refused", ": read"))
    assert refused + read == inputs and read > 0.05 * inputs and refused > 0.5 * inputs


def test_the_fuzzer_would_notice(fuzzer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that lets something else than a `UsageError` through."""
    monkeypatch.setattr(fuzzer, "parse_json", lambda data, path: __import__("json").loads(data))
    _, failures = fuzzer.fuzz(300)
    assert any("settings: " in failure for failure in failures)
