# All that is needed: make, and Python 3.11 or newer. `make train PYTHON=python3.13` picks another Python.
PYTHON ?= python3
# What `make train` trains: make train ARGS='mars-rover --constraint "P(crash) <= 0.1" --out runs/bolder'
ARGS ?= mars-rover --constraint "P(crash) <= 0.01"
# Which tests `make test` runs: make test PYTEST_ARGS= runs the slow ones too.
PYTEST_ARGS ?= -m "not slow"

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# Present only where make itself made the environment: `make clean` removes no other.
OURS := $(VENV)/made-by-make
LOCK_VENV := .venv-lock
# Somebody else's learners, for the tests of the wrapper around them: exact versions, in an environment of their own.
SB3_VENV := .venv-sb3
SB3_BIN := $(SB3_VENV)/bin
SB3_INSTALLED := $(SB3_VENV)/installed
TORCH := torch==2.13.0
SB3 := stable-baselines3==2.9.2

.PHONY: train test test-sb3 lock clean
.DELETE_ON_ERROR:

train: $(INSTALLED)
	$(BIN)/rcpo train $(ARGS)

# pytest comes last, so that its summary ends the output.
test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# torch comes first, so that nothing else decides which build of it is installed.
$(SB3_INSTALLED): pyproject.toml requirements.lock Makefile
	$(PYTHON) -m venv --clear $(SB3_VENV)
	$(SB3_BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(SB3_BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(SB3_BIN)/python -m pip install --quiet --disable-pip-version-check $(SB3)
	$(SB3_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(SB3_BIN)/python -m pip check
	@touch $@

# The wrapper around Stable-Baselines3's PPO, SAC and DQN.
test-sb3: $(SB3_INSTALLED)
	$(SB3_BIN)/python -m pytest tests/test_sb3.py

# `pip check` says so when requirements.lock lacks what pyproject.toml asks for: then run `make lock`.
$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rcpo needs Python 3.11 or newer and '$(PYTHON)' is not; name one that is: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/pip || { $(PYTHON) -m venv $(VENV) && touch $(OURS); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(BIN)/python -m pip check
	@touch $@

# Locked with the oldest Python that is supported: what runs there also runs on newer ones, not the other way round.
lock:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "make the lock with Python 3.11, '$(PYTHON)' is another: make lock PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check '.[test]'
	{ echo "# Made by 'make lock' with Python 3.11: what '.[test]' installs, exactly. Fits newer Pythons too."; \
	  $(LOCK_VENV)/bin/python -m pip freeze --exclude rcpo; } > requirements.lock
	rm -rf $(LOCK_VENV)

# Leaves runs/ (results are yours) and an environment in .venv that make did not make.
clean:
	if test -e $(OURS); then rm -rf $(VENV); fi
	rm -rf $(LOCK_VENV) $(SB3_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
