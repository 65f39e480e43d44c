"""Set before any test imports the package: shapes are checked in every call, and JAX computes on the CPU."""

import os
from collections.abc import Iterator

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A whole number is welcome where a float is asked for (PEP 484), as in `steps=1000`.
install_import_hook("rcpo", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

# No deadline: the first example of a test also compiles. Derandomised: the same tests everywhere, every time.
settings.register_profile("rcpo", deadline=None, derandomize=True)
settings.load_profile("rcpo")


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """XLA keeps every program that it has compiled; with those of all files in one process its compiler has crashed."""
    yield
    jax.clear_caches()


@pytest.fixture
def quick_compile() -> Iterator[None]:
    """For tests that compile much and compute little: XLA leaves out most of its optimisations."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
