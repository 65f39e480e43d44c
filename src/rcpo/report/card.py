"""The verdict card of a run: what can be promised, with its intervals, and how single episodes are spread."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from rcpo.errors import UsageError
from rcpo.health import Health
from rcpo.histograms import LEVELS, Histogram
from rcpo.report.saved import SavedRun, entries, interval, read_bound
from rcpo.report.svg import bars, gauge, number, short

SIGNS: Final = {"satisfied": "\N{HEAVY CHECK MARK}", "violated": "\N{HEAVY BALLOT X}", "undecided": "?"}
HAPPENED: Final = ((-0.5, 0.5), (-0.5, 1.5), (0.5, 1.5))
"""The ends of a histogram of episodes in which something never, sometimes or always happened."""
OPTION: Final = re.compile(r"(--[a-z][a-z.-]+)")
MEANING: Final = {
    "satisfied": "the whole interval keeps the limit",
    "violated": "the whole interval is beyond the limit",
    "undecided": "the limit lies within the interval: these episodes cannot tell",
}


def verdict_word(verdict: Mapping[str, Any] | None) -> str:
    """The run in one word: the worst of its constraints; nothing before there is a verdict."""
    words = [str(entry.get("verdict")) for entry in entries(verdict, "constraints")]
    if verdict is None:
        return ""
    worst = next((word for word in ("violated", "undecided") if word in words), None)
    return worst or "satisfied"


def verdict_card(run: SavedRun, truth: Mapping[str, float] | None = None) -> str:
    """The big word, a gauge for each constraint, and the other numbers of the same episodes."""
    verdict = run.verdict
    if verdict is None:
        return _card_on_the_way(run)
    word, held = verdict_word(verdict), entries(verdict, "constraints")
    sentence = _sentence(verdict, bool(held))
    rows = "".join(_constraint_row(entry, truth) for entry in held)
    return (
        f'<section class="card {word}"><h2><span aria-hidden="true">{SIGNS[word]}</span> {word}</h2>'
        f"<p>{sentence}</p>{rows}{_others(verdict, truth)}</section>\n"
    )


def _sentence(verdict: Mapping[str, Any], constrained: bool) -> str:
    episodes, looks = (interval({"value": verdict.get(key)})[0] for key in ("episodes", "looks"))
    confidence = _percent(interval({"value": verdict.get("confidence")})[0])
    said = verdict.get("outcome") or verdict.get("statement")
    seen = f"{short(episodes)} fresh episodes, {number(looks)} look{'' if looks == 1 else 's'} at candidates"
    if isinstance(said, str):
        return f"{escape(said)} ({seen})."
    if not constrained:
        return f"No constraint was asked for ({seen})."
    if verdict.get("verified") is True:
        return f"Verified at {confidence} confidence, all looks counted: the policy keeps every limit ({seen})."
    return f"Not verified: no policy of this run could be shown to keep every limit ({seen}). This is the closest."


def _card_on_the_way(run: SavedRun) -> str:
    target = interval({"value": run.config.get("steps")})[0]
    share = min(run.steps / target, 1.0) if target > 0.0 else 0.0
    words = {"running": "on its way", "stands still": "stands still"}[run.state]
    since = "" if run.state == "running" else f" Its last word came {_ago(run.quiet)} ago."
    rows = []
    for bound in run.bounds:
        last = run.records[-1] if run.records else {}
        value = last.get(f"constraint/{bound.quantity}/value", math.nan)
        multiplier = last.get(f"constraint/{bound.quantity}/multiplier", math.nan)
        rows.append(f'<div class="row"><b>{escape(bound.text)}</b><span>now {number(value)}, multiplier '
                    f"{number(multiplier)}</span></div>")  # fmt: skip
    return (
        f'<section class="card undecided"><h2>{words}</h2><p>{short(run.steps)} of {short(target)} steps. There is no '
        f'verdict before the end.{since}</p><progress max="1" value="{share:.4f}">{share:.0%}</progress>'
        f"{''.join(rows)}</section>\n"
    )


def _constraint_row(entry: Mapping[str, Any], truth: Mapping[str, float] | None) -> str:
    """One constraint: its text, its verdict, its interval beside the limit."""
    text = str(entry.get("constraint"))
    word = str(entry.get("verdict"))
    value, low, high = interval(entry)
    limit = interval({"value": entry.get("limit")})[0]
    if word not in SIGNS or not math.isfinite(limit):
        raise UsageError(f"cannot read the verdict on {text!r}: got {word!r} and the limit {entry.get('limit')!r}")
    bound = read_bound(text)
    at_least = bound is not None and bound.at_least
    exact = f", exactly {number(truth[text])}" if truth and text in truth else ""
    return (
        f'<div class="row {word}"><b>{escape(text)}</b><span class="word">{SIGNS[word]} {word}</span>'
        f"{gauge(value, low, high, limit, at_least)}"
        f"<span>measured {number(value)}, interval {number(low)} to {number(high)}{exact}</span>"
        f'<span class="faint">{MEANING[word]}</span></div>'
    )


def _others(verdict: Mapping[str, Any], truth: Mapping[str, float] | None) -> str:
    rows = []
    named = (("reward", "reward", "mean"), ("episode_steps", "steps", "mean"), ("success", "P(success)", "value"),
             ("steps_given_success", "steps given success", "mean"))  # fmt: skip
    for key, words, name in named:
        if not isinstance(verdict.get(key), Mapping):
            continue
        value, low, high = interval(verdict[key], name)
        exact = number(truth[words]) if truth and words in truth else ""
        rows.append((words, number(value), f"{number(low)} to {number(high)}", exact))
    level = _percent(interval({"value": verdict.get("interval_confidence")})[0])
    head = ("per episode", "measured", f"{level} interval", "exact" if truth else "")
    return table(head, rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], plain: bool = True) -> str:
    """A table that scrolls by itself where the screen is narrow. `plain` cells are text and are escaped."""
    shown = [i for i, title in enumerate(head) if title or any(row[i] for row in rows)]
    top = "".join(f"<th>{escape(head[i])}</th>" for i in shown)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(row[i]) if plain else row[i]}</td>' for i in shown)}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def health_section(health: Sequence[Health], notes: Sequence[str], unreadable: int) -> str:
    """How the multipliers did, and what to do about it."""
    if not health:
        return ""
    marked = [OPTION.sub(r"<code>\1</code>", escape(note)) for note in notes]
    said = [f'<li class="advice">{note}</li>' for note in marked]
    if unreadable:
        said.append(f'<li class="advice">{unreadable} lines of metrics.jsonl are damaged and were left out</li>')
    facts = "".join(f"<li>{escape(str(one))}</li>" for one in health)
    advised = f"<ul>{''.join(said)}</ul>" if said else "<p>Nothing stands out.</p>"
    return f'<section><h2>Health of the multipliers</h2>{advised}<ul class="faint">{facts}</ul></section>\n'


def distributions(verdict: Mapping[str, Any] | None) -> str:
    """Histograms of the verification's episodes."""
    drawn = [_distribution(entry, verdict) for entry in entries(verdict, "distributions")]
    if not drawn:
        return ""
    return (
        '<section><h2>Episodes of the verification</h2><p class="faint">How single episodes are spread, in shares of '
        f"all. A limit bounds their mean, not each of them.</p><div class='side'>{''.join(drawn)}</div></section>\n"
    )


def _distribution(entry: Mapping[str, Any], verdict: Mapping[str, Any] | None) -> str:
    from rcpo.checkpoint import from_json

    one: Histogram = from_json(Histogram, dict(entry), "distributions")
    held = {str(bound.get("constraint")): bound for bound in entries(verdict, "constraints")}
    if one.name.startswith("P(") and (one.low, one.high) in HAPPENED:
        often = sum(one.counts) if one.low > 0.0 else one.counts[1] if len(one.counts) > 1 else 0
        return f"<p><b>{escape(one.name)}</b>: it happened in {often:,} of {sum(one.counts):,} episodes.</p>"
    marks: list[tuple[str, str, float]] = []
    for text, bound in held.items():
        if text.startswith(f"{one.name} "):
            marks = [("limit", "limit of the mean", interval({"value": bound.get("limit")})[0]),
                     ("mean", "mean", interval(bound)[0])]  # fmt: skip
    if not marks and verdict is not None:
        marks = [("mean", "mean", interval(verdict.get({"steps": "episode_steps"}.get(one.name, one.name)), "mean")[0])]
    ends = [number(one.quantiles[i]) for i in (0, -1)] if len(one.quantiles) == len(LEVELS) else []
    title = one.name
    if ends:
        title += f": nine of ten episodes {'at' if ends[0] == ends[1] else 'from'} {' to '.join(dict.fromkeys(ends))}"
    return bars(title, one.counts, (one.low, one.high), marks)


def _percent(share: float) -> str:
    return f"{number(100.0 * share)} %"


def _ago(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
