"""Where copies of a Gymnasium environment come from: an id, a class in a file, a factory, or an object to copy.

Light, without JAX: the worker processes import this.
"""

import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rcpo.errors import UsageError

SPACES: Final = ("observation_space", "action_space")
PICTURES: Final = "rgb_array"
Kwargs = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Source:
    """How an environment is called, and what makes a copy of it."""

    name: str
    make: Callable[[], Any]


def source(origin: Any, arguments: Kwargs, max_steps: int) -> Source:
    """Whatever a user may give for an environment; nothing is made yet."""
    if isinstance(origin, str):
        if is_file(origin):
            return Source(origin, functools.partial(_from_file, origin, dict(arguments)))
        return Source(origin, functools.partial(_from_id, origin, dict(arguments), max_steps))
    if isinstance(origin, VectorEnv):
        raise UsageError(f"got a whole vector of environments ({type(origin).__name__}); give one environment, its id "
                         "or a factory, for rcpo makes the copies itself")  # fmt: skip
    if not isinstance(origin, type) and hasattr(origin, "step") and hasattr(origin, "reset"):
        if arguments:
            raise UsageError(f"got arguments for {name_of(origin)}, which is made already; give its class or an id")
        return Source(f"{name_of(origin)} (object)", functools.partial(_copy, origin))
    if callable(origin):
        return Source(f"{name_of(origin)} (factory)", functools.partial(_call, origin, dict(arguments)))
    raise UsageError(f"got {origin!r} for an environment; give a name, a Gymnasium environment, or a function "
                     "that makes one")  # fmt: skip


def name_of(thing: Any) -> str:
    """How an object, a class or a function is called."""
    spec = getattr(thing, "spec", None)
    named = getattr(spec, "id", None) or getattr(thing, "__name__", None)
    if named == "<lambda>":
        return "environment"
    return str(named or type(getattr(thing, "unwrapped", thing)).__name__)


def is_file(name: str) -> bool:
    """Whether a name is a file's, with or without the class in it."""
    return name.endswith(".py") or name.rpartition(":")[0].endswith(".py")


def known(name: str) -> bool:
    """Whether a word names an environment: one of Gymnasium's, one in a module that registers it, one in a file."""
    return name in gymnasium.registry or is_file(name) or re.fullmatch(r"[\w.]+:\S+-v\d+", name) is not None


def registered(name: str) -> bool:
    """Whether Gymnasium knows a name. Those that stand for environments of the old Gym are left out: which one, and
    in which module, is said in their arguments."""
    return name in gymnasium.registry and not name.startswith("GymV2")


def check(name: str, others: Iterable[str]) -> None:
    """Refuse a name that nothing answers to; `others` are the names that do not need Gymnasium."""
    if is_file(name):
        find_file(name)
        return
    module, _, bare = name.rpartition(":")
    if module:
        _import(module, name)
    if bare not in gymnasium.registry:
        choices = [*others, *gymnasium.registry]
        close = difflib.get_close_matches(bare, choices, n=1, cutoff=0.5)
        hint = (f"did you mean {close[0]!r}?" if close else
                f"choose one of {', '.join(sorted(others))}, an id that Gymnasium knows, or FILE.py:CLASS")  # fmt: skip
        raise UsageError(f"unknown environment {name!r}; {hint}")


def _import(module: str, name: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"unknown environment {name!r}: cannot import {module!r} ({error})") from None


def find_file(name: str) -> tuple[Path, str]:
    """The file and the class that a name stands for."""
    path, _, what = name.rpartition(":") if not name.endswith(".py") else (name, "", "")
    if not Path(path).is_file():
        raise UsageError(f"{path!r} is no file; give the path of a file with your environment, as in my_env.py:MyEnv")
    if not what:
        raise UsageError(f"{name!r} does not say which environment; give its class too, as in {name}:MyEnv")
    return Path(path), what


def _from_id(name: str, arguments: Kwargs, max_steps: int) -> Any:
    module, _, bare = name.rpartition(":")
    if module:
        _import(module, name)
    limit = {"max_episode_steps": max_steps} if max_steps else {}
    try:
        # The checks that Gymnasium would make in the first step are made, more strictly, before training begins.
        return gymnasium.make(bare, disable_env_checker=True, **limit, **arguments)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise UsageError(f"cannot make {name}: {one_line(error)}") from None
    except Exception as error:
        raise UsageError(f"cannot make {name}{_with(arguments)}: {type(error).__name__}: {one_line(error)}") from error


def _from_file(name: str, arguments: Kwargs) -> Any:
    path, what = find_file(name)
    module = _load(path.resolve(), path.stat().st_mtime_ns)
    found = getattr(module, what, None)
    if found is None:
        able = sorted(key for key, value in vars(module).items()
                      if isinstance(value, type) and value.__module__ == module.__name__)  # fmt: skip
        close = difflib.get_close_matches(what, able, n=1)
        there = f"did you mean {close[0]!r}?" if close else f"its classes are: {', '.join(able) or 'none'}"
        raise UsageError(f"{str(path)!r} has no {what!r}; {there}")
    if callable(found):
        return _call(found, arguments)
    return _copy(found)


@functools.cache
def _load(path: Path, changed: int) -> ModuleType:
    """A user's file as a module; read again only if it has changed."""
    spec = importlib.util.spec_from_file_location(f"rcpo_user_{path.stem}_{changed}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"cannot read {path.name!r}: {type(error).__name__}: {one_line(error)}") from error
    return module


def _call(factory: Callable[..., Any], arguments: Kwargs) -> Any:
    name = name_of(factory)
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise UsageError(f"cannot make {name}{_with(arguments)}: {error}; give its arguments as JSON "
                         "(--env.arguments '{\"size\": 5}'), or defaults") from None  # fmt: skip
    except ValueError:  # some classes in C have no signature
        pass
    try:
        return factory(**arguments)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"cannot make {name}{_with(arguments)}: {type(error).__name__}: {one_line(error)}") from error


def _copy(environment: Any) -> Any:
    """A copy of an object, as it stands; of one that cannot be copied, a new one by its spec."""
    try:
        return deepcopy(environment)
    except Exception as error:
        spec = getattr(environment, "spec", None)
        if spec is not None:
            with contextlib.suppress(Exception):
                return gymnasium.make(spec, disable_env_checker=True)
        name, reason = name_of(environment), f"{type(error).__name__}: {one_line(error)}"
        raise UsageError(f"cannot copy the environment {name}: {reason}; give a function that makes one") from error


def filmed(origin: Any, arguments: Kwargs, max_steps: int, pictures: list[Any]) -> Source:
    """The same, of copies that can draw themselves and do so into a list."""
    plain = source(origin, arguments, max_steps)
    first = plain.make()
    mode, offered = getattr(first, "render_mode", None), getattr(first, "metadata", None) or {}
    _let_go(first)
    if mode != PICTURES and PICTURES not in (offered.get("render_modes") or ()):
        raise UsageError(f"there is no picture of {plain.name}: it does not offer the render_mode {PICTURES!r}")
    try:
        drawn = plain if mode == PICTURES else source(origin, {**arguments, "render_mode": PICTURES}, max_steps)
        trial = drawn.make()
    except UsageError as error:
        raise UsageError(f"there is no picture of {plain.name}, which cannot be made with render_mode={PICTURES!r}: "
                         f"{error}") from None  # fmt: skip
    Filmed(trial, plain.name, []).reset(seed=0)
    _let_go(trial)
    return Source(plain.name, lambda: Filmed(drawn.make(), plain.name, pictures))


def _let_go(environment: Any) -> None:
    with contextlib.suppress(Exception):
        environment.close()


@final
class Filmed:
    """An environment that adds a picture of itself to a list after every reset and every step."""

    def __init__(self, environment: Any, name: str, pictures: list[Any]):
        self._environment, self._name, self._pictures = environment, name, pictures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, **given: Any) -> Any:
        return self._after(self._environment.reset(**given))

    def step(self, action: Any) -> Any:
        return self._after(self._environment.step(action))

    def _after(self, outcome: Any) -> Any:
        try:
            picture = np.asarray(self._environment.render())
        except Exception as error:
            raise UsageError(
                f"there is no picture of {self._name}: {type(error).__name__}: {one_line(error)}"
            ) from None
        if picture.ndim != 3 or picture.shape[-1] != 3 or picture.dtype != np.uint8:
            raise UsageError(f"there is no picture of {self._name}: its render gives {picture.dtype} of shape "
                             f"{picture.shape}, expected bytes of shape (height, width, 3)")  # fmt: skip
        self._pictures.append(picture)
        return outcome


def check_environment(environment: Any, name: str) -> None:
    """Refuse what is no environment of Gymnasium's."""
    if isinstance(environment, VectorEnv):
        raise UsageError(f"{name} made a whole vector of environments; let it make one, rcpo makes the copies itself")
    missing = [part for part in ("reset", "step") if not callable(getattr(environment, part, None))]
    missing += [part for part in SPACES if getattr(environment, part, None) is None]
    if missing:
        raise UsageError(f"{name} is no Gymnasium environment: {type(environment).__name__} has no "
                         f"{' and no '.join(missing)}")  # fmt: skip
    for part in SPACES:
        space = getattr(environment, part)
        if not isinstance(space, gymnasium.Space):
            raise UsageError(f"the {part} of {name} is {type(space).__module__}.{type(space).__name__}; "
                             "expected one of gymnasium.spaces")  # fmt: skip


def _with(arguments: Kwargs) -> str:
    return f" with {dict(arguments)}" if arguments else ""


def one_line(error: BaseException) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split()) or "no message"
