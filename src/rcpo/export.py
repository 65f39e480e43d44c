"""A run's policy as one ONNX file: what it sees goes in as it comes, actions come out as the environment takes them.

The normaliser, the network, and the scaling and clipping of actions are inside; the constraint card is in the metadata.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from rcpo import __version__
from rcpo.bodies import Convolutional, Layers
from rcpo.checkpoint import read_json, write_atomically
from rcpo.envs.base import Box, Choices, Environment
from rcpo.envs.gym import GymEnvironment
from rcpo.errors import UsageError
from rcpo.folder import CONFIG, verdict_document, versions
from rcpo.networks import (
    CONVOLUTIONS,
    ConvolutionalActorCritic,
    Linear,
    Perceptron,
    SeparateActorCritic,
    TabularActorCritic,
)
from rcpo.normalise import CLIP, SMALLEST_VARIANCE

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from rcpo.run import Run

OPSET, IR_VERSION = 17, 8
"""Of 2022: every runtime reads them, and nothing newer is needed."""
CARD: Final = "rcpo"
"""The metadata's key under which the constraint card stands, as JSON."""
CHECKED, TOLERANCE = 1000, 1e-5
"""On so many observations the file is compared with the run's own policy before it is written."""


@final
@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the run's own policy."""

    path: Path
    difference: float
    card: dict[str, Any]


def need(module: str, extra: str, what: str) -> Any:
    """An optional module, or one sentence that says how to get it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(f"{what} needs {module}, which is not installed: pip install 'rcpo[{extra}]'") from None


@final
class Graph:
    """Nodes and constants of a graph in the making; every value gets a name of its own."""

    def __init__(self) -> None:
        self.floats = need("onnx", "onnx", "the export").TensorProto.FLOAT
        self.helper = need("onnx.helper", "onnx", "the export")
        self.numpy_helper = need("onnx.numpy_helper", "onnx", "the export")
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.asarray(value), name))
        return name

    def __call__(self, operator: str, *inputs: Any, name: str = "", **attributes: Any) -> str:
        """One node; inputs are names, or arrays, which become constants. The name of what it gives."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = name or f"value_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, names, [output], **attributes))
        return output


def layer(graph: Graph, x: str, linear: Linear) -> str:
    return graph("Gemm", x, np.asarray(linear.weight), np.asarray(linear.bias))


def outputs_of(graph: Graph, network: Any, x: str) -> str:
    """Logits or means, [N, A], of what is seen."""
    if isinstance(network, TabularActorCritic):
        return graph("Gather", np.asarray(network.logits), x, axis=0)
    if isinstance(network, ConvolutionalActorCritic):
        return convolutional(graph, network, x)
    body = network.actor.body if isinstance(network, SeparateActorCritic) else network
    if isinstance(body, Convolutional):
        return picture(graph, body, x)
    if not isinstance(body, Perceptron):
        raise UsageError("the policy is a network of its user's own, which has no ONNX graph here; use run.act or "
                         "run.actor, or export the module with its own tools")  # fmt: skip
    if network.sight is not None:
        scale = 1.0 / np.sqrt(np.asarray(network.sight.variance) + np.float32(SMALLEST_VARIANCE))
        x = graph("Mul", graph("Sub", x, np.asarray(network.sight.mean)), scale.astype(np.float32))
        x = graph("Clip", x, np.float32(-CLIP), np.float32(CLIP))
    *hidden, last = body.layers
    for linear in hidden:
        x = graph("Tanh", layer(graph, x, linear))
    return layer(graph, x, last)


def convolutional(graph: Graph, network: ConvolutionalActorCritic, x: str) -> str:
    """The Mars Rover's network."""
    x = convolutions(graph, network.trunk, CONVOLUTIONS, x)
    return layer(graph, graph("Relu", layer(graph, x, network.actor[0])), network.actor[1])


def picture(graph: Graph, body: Convolutional, x: str) -> str:
    """The network for pictures [N, H, W, C] of bytes."""
    x = graph("Div", graph("Cast", x, to=graph.floats), np.float32(255.0))
    x = convolutions(graph, body.trunk, body.layers, graph("Transpose", x, perm=[0, 3, 1, 2]))
    return layer(graph, graph("Relu", layer(graph, x, body.features)), body.last)


def convolutions(graph: Graph, trunk: Sequence[Linear], layers: Layers, x: str) -> str:
    """Of pictures [N, C, H, W], in one row; weights lie in the order of patches: row, column, channel."""
    for linear, (outputs, kernel, stride) in zip(trunk, layers, strict=True):
        weight = np.asarray(linear.weight).reshape(kernel, kernel, -1, outputs).transpose(3, 2, 0, 1)
        bias = np.asarray(linear.bias)
        x = graph("Relu", graph("Conv", x, np.ascontiguousarray(weight), bias, strides=[stride, stride]))
    return graph("Flatten", graph("Transpose", x, perm=[0, 2, 3, 1]), axis=1)


def chosen_rows(graph: Graph, parts: list[str]) -> str:
    """Of what every network of a mixture gives, in each row what the `component` of that row does."""
    if len(parts) == 1:
        return parts[0]
    axis = np.array([1], np.int64)
    stacked = graph("Concat", *(graph("Unsqueeze", part, axis) for part in parts), axis=1)
    return graph("GatherND", stacked, graph("Unsqueeze", "component", axis), batch_dims=1)


def choices(graph: Graph, networks: list[Any], greedy: list[bool], actions: int | Choices) -> None:
    """Outputs for choices: `probabilities` as the policy draws, and its likeliest `action`.

    Of several choices at once the options' probabilities stand one behind the other, as in the network.
    """
    logits = [outputs_of(graph, network, "observation") for network in networks]
    ends = np.cumsum(options_of(actions))[:-1]

    def of_each(operator: str, x: str, **attributes: Any) -> str:
        if not len(ends):
            return graph(operator, x, axis=-1, **attributes)
        pieces = zip([0, *ends], [*ends, np.iinfo(np.int64).max], strict=True)
        sliced = [graph("Slice", x, *(np.array([n], np.int64) for n in (*piece, -1))) for piece in pieces]
        return graph("Concat", *(graph(operator, one, axis=-1, **attributes) for one in sliced), axis=-1)

    # A greedy network draws nothing: all of its probability is on one action.
    drawn = [of_each("Hardmax" if sure else "Softmax", x) for x, sure in zip(logits, greedy, strict=True)]
    graph("Identity", chosen_rows(graph, drawn), name="probabilities")
    graph("Identity", of_each("ArgMax", chosen_rows(graph, logits), keepdims=int(len(ends) > 0)), name="action")


def options_of(actions: int | Choices) -> tuple[int, ...]:
    """How many options each choice has."""
    return (actions,) if isinstance(actions, int) else actions.options


def motions(graph: Graph, networks: list[Any], greedy: list[bool], box: Box) -> None:
    """Outputs for motors: `mean` and `std` to draw from, then to be cut off at the range; `action` is the mean, cut."""
    low, high = np.asarray(box.low, np.float32), np.asarray(box.high, np.float32)
    half = np.float32(0.5) * (high - low)
    middle = np.float32(0.5) * (high + low)
    units = [outputs_of(graph, network, "observation") for network in networks]
    mean = graph("Add", middle, graph("Mul", half, chosen_rows(graph, units)), name="mean")
    spreads = []
    for network, sure, unit in zip(networks, greedy, units, strict=True):
        std = np.zeros_like(half) if sure else half * np.exp(np.asarray(network.actor.log_std))
        spreads.append(graph("Expand", std[None].astype(np.float32), graph("Shape", unit)))
    graph("Identity", chosen_rows(graph, spreads), name="std")
    graph("Min", graph("Max", mean, low), high, name="action")


def model_of(run: "Run", component: int | None, card: dict[str, Any]) -> "ModelProto":
    """The policy, or one of its networks, as an ONNX model."""
    onnx = need("onnx", "onnx", "the export")
    graph, spec, policy = Graph(), run.environment.spec, run.policy
    picked = range(policy.components) if component is None else [component]
    networks = [jax.tree.map(lambda leaf, m=m: np.asarray(leaf[m]), policy.networks) for m in picked]
    greedy = [bool(policy.greedy[m]) for m in picked]
    floats, integers, rows = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, "N"
    kind = onnx.TensorProto.UINT8 if spec.pixels else floats if spec.observation_shape else integers
    value = graph.helper.make_tensor_value_info
    inputs = [value("observation", kind, [rows, *spec.observation_shape])]
    if len(networks) > 1:
        inputs.append(value("component", integers, [rows]))
    if not isinstance(spec.actions, Box):
        choices(graph, networks, greedy, spec.actions)
        several = [len(spec.actions.options)] if isinstance(spec.actions, Choices) else []
        outputs = [value("action", integers, [rows, *several]), value("probabilities", floats, [rows, spec.outputs])]
    else:
        motions(graph, networks, greedy, spec.actions)
        outputs = [value(name, floats, [rows, spec.outputs]) for name in ("action", "mean", "std")]
    made = graph.helper.make_model(
        graph.helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants),
        opset_imports=[graph.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="rcpo",
        producer_version=__version__,
        doc_string=f"A policy for {spec.name}; the metadata's entry '{CARD}' is its constraint card, as JSON.",
    )
    graph.helper.set_model_props(made, {CARD: json.dumps(card)})
    onnx.checker.check_model(made, full_check=True)
    return made


def constraint_card(run: "Run", component: int | None) -> dict[str, Any]:
    """What one has to know of a policy that is far from the run that made it."""
    spec, policy = run.environment.spec, run.policy
    document = read_json(run.folder / CONFIG) if run.folder else {}
    actions: Any = spec.actions if isinstance(spec.actions, int) else asdict(spec.actions)
    whole = component is None
    return {
        "environment": run.environment_name,
        "environment_settings": asdict(run.config.env),
        "observation": {
            "shape": list(spec.observation_shape),
            "meaning": meaning(run.environment),
        },
        "actions": actions,
        "component": component,
        "weights": [float(weight) for weight in policy.weights] if whole else None,
        "about": ("the verdict is about actions drawn from the outputs"
                  + (", one network drawn by `weights` for each episode" if policy.components > 1 else "")
                  + ("" if whole else "; this file is one network of that mixture alone")),
        "verdict": verdict_document(run),
        "constraints": [str(constraint) for constraint in run.constraints],
        "method": run.config.method,
        "seed": run.config.seed,
        "steps": run.steps,
        "command": document.get("command", "rcpo.train(...)"),
        "versions": document.get("versions", versions()),
        "exported_with": versions(),
    }  # fmt: skip


def meaning(environment: Environment) -> str:
    """What an observation is, for whoever has not seen the environment."""
    spec = environment.spec
    if spec.pixels:
        return "a picture of bytes: height, width, channels"
    if isinstance(environment, GymEnvironment):
        return "as gymnasium.spaces.flatten writes it; options are counted from 0"
    return "as the environment gives it" if spec.observation_shape else "the state's number"


def export(run: "Run", path: str | Path, component: int | None = None) -> Exported:
    """Write the policy as ONNX, once it was found to do what the run's own policy does.

    A mixture becomes one model with a second input, `component`: which network each row follows. With `component`
    given here, the file holds that network alone.
    """
    path = Path(path)
    if component is not None and not 0 <= component < run.policy.components:
        raise UsageError(f"got the component {component}; this policy has {run.policy.components}, counted from 0")
    card = constraint_card(run, component)
    written = model_of(run, component, card).SerializeToString()
    difference = farthest(run, written, component)
    if not difference <= TOLERANCE:
        raise UsageError(f"the exported policy differs from the run's by {difference:.2g}, more than {TOLERANCE:g}; "
                         "nothing was written: use another version of onnxruntime, and report it")  # fmt: skip
    try:
        write_atomically(path, written)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}; give another path") from None
    return Exported(path, difference, card)


def probe(run: "Run", count: int) -> np.ndarray:
    """Observations of all sorts: the environment's own states, or normal ones around what training saw."""
    spec, states, rng = run.environment.spec, None, np.random.default_rng(0)
    if spec.pixels:
        return rng.integers(0, 256, (count, *spec.observation_shape), dtype=np.uint8)
    if hasattr(run.environment, "states"):
        states = run.environment.states()
    if states is not None:
        return np.asarray(states)[rng.integers(len(states), size=count)]
    obs, sight = rng.normal(size=(count, *spec.observation_shape)), getattr(run.policy.networks, "sight", None)
    if sight is not None:
        obs = np.asarray(sight.mean)[0] + 2.0 * np.sqrt(np.asarray(sight.variance)[0]) * obs
    return obs.astype(np.float32)


def farthest(run: "Run", model: bytes, component: int | None, count: int = CHECKED) -> float:
    """The largest difference between the model's numbers and the run's own networks, over all components."""
    runtime = need("onnxruntime", "onnx", "the export")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    obs = probe(run, count)
    obs = obs if run.environment.spec.observation_shape else obs.astype(np.int64)
    worst = 0.0
    for m in range(run.policy.components) if component is None else [component]:
        feed = {"observation": obs}
        if component is None and run.policy.components > 1:
            feed["component"] = np.full(count, m, np.int64)
        got = dict(zip((output.name for output in session.get_outputs()), session.run(None, feed), strict=True))
        for name, expected in in_jax(run, obs, m).items():
            worst = max(worst, float(np.nanmax(np.abs(got[name] - expected), initial=0.0)))
    return worst


def in_jax(run: "Run", obs: np.ndarray, m: int) -> dict[str, np.ndarray]:
    """What the run's own network number `m` gives, under the names of the outputs; NaN where two answers are right."""
    spec, sure = run.environment.spec, bool(run.policy.greedy[m])
    network = jax.tree.map(lambda leaf: leaf[m], run.policy.networks)
    # Patches of a thousand pictures at once would take hundreds of megabytes.
    raw = np.concatenate([np.asarray(_outputs(network, jnp.asarray(part))) for part in np.array_split(obs, 10)])
    if not isinstance(spec.actions, Box):
        parts = np.split(raw, np.cumsum(options_of(spec.actions))[:-1], axis=-1)
        drawn = [surest(part) if sure else np.asarray(jax.nn.softmax(part, axis=-1)) for part in parts]
        return {"probabilities": np.concatenate(drawn, axis=-1)}
    low, high = (np.asarray(bound, np.float32) for bound in (spec.actions.low, spec.actions.high))
    std = np.zeros(len(low)) if sure else np.exp(np.asarray(network.actor.log_std)) * 0.5 * (high - low)
    mean = 0.5 * (high + low) + 0.5 * (high - low) * raw
    return {"mean": mean, "std": np.broadcast_to(std, mean.shape), "action": np.clip(mean, low, high)}


def surest(raw: np.ndarray) -> np.ndarray:
    """All of the probability on the likeliest option; nan where rounding decides which one that is."""
    ordered = np.sort(raw, axis=-1)
    clear = ordered[:, -1:] - ordered[:, -2:][:, :1] > TOLERANCE
    return np.where(clear, np.eye(raw.shape[-1])[raw.argmax(axis=-1)], np.nan)


@jax.jit
def _outputs(network: PyTree, obs: Array) -> Float[Array, "N A"]:
    """The logits or means of a network."""
    return network.actor.body(network.see(obs)) if isinstance(network, SeparateActorCritic) else network(obs)[0]
