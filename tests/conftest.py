"""Set before any test imports the package: shapes are checked in every call, and JAX computes on the CPU."""

import os

from hypothesis import settings
from jaxtyping import install_import_hook

os.environ.setdefault("JAX_PLATFORMS", "cpu")
install_import_hook("rcpo", "beartype.beartype")

# No deadline: the first example of a test also compiles. Derandomised: the same tests everywhere, every time.
settings.register_profile("rcpo", deadline=None, derandomize=True)
settings.load_profile("rcpo")
