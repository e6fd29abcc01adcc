"""Reference pages from the tables of the code.

Gates, signals, rates, forms of files, settings, commands, public names.

Each function gives the Markdown or reStructuredText of one page. Nothing here is written by hand
twice: a row that is added to a table of raglab is on its page.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import typer
from rules import rule_sentences
from typer.core import TyperGroup

from raglab.bandit import LEARNERS
from raglab.cli import app
from raglab.cli.door import EXIT_CODES
from raglab.gates import GATES, Gate, Threshold
from raglab.lab.tracking import STORE_VARIABLE as TRACKING_VARIABLE
from raglab.live import settings
from raglab.live.telemetry import CAPTURE_VARIABLE
from raglab.metrics import RATE_TABLE
from raglab.policy_parts.arms import ARMS
from raglab.reward import COMPONENT_BY_NAME, PUBLISHED_REWARD_WEIGHTS
from raglab.signals import BUILT_IN, UNITS, Unit
from raglab.store.loaders import FORMATS
from raglab.store.policies import Policy
from raglab.words.packs import Pack

DOORS = ("raglab", "raglab.lab", "raglab.live", "raglab.displays", "raglab.io", "raglab.sklearn")
ALGEBRA = (
    *("gates", "resolver", "bandit", "default_learner", "calibration", "certify"),
    *(
        "metrics",
        "off_policy",
        "reward",
        "gating.expected_cost",
        "gating.fused_gate",
        "policy",
        "replay",
        "signals",
        "values",
    ),
)
FIRING = {
    "refuse": "refuses",
    "ask": "hands over to the resolver, which asks back",
    "warn": "warns",
}
JUDGED = {
    "query": "the question",
    "hits": "all hits",
    "chosen": "the hits of the answer",
    "answer": "the answer",
}
DIRECTIONS = {
    "surer": "speaks for an answer",
    "ask": "speaks for asking back",
    "either": "says nothing alone",
}
STAGES = {"query": "the question", "hits": "the hits", "answer": "the answer"}
BETTER = {"low": "low is better", "high": "high is better"}


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown; a bar in a cell is escaped, a line break becomes a blank.

    Args:
      heads: of the columns.
      rows: cells, a sequence a row.
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell(value) for value in line)} |" for line in lines) + "\n"


def cell(value: object) -> str:
    """Text of one cell."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(text: object) -> str:
    """A text as code, empty where it is empty."""
    return f"`{text}`" if str(text) else ""


def number(value: float | None) -> str:
    """A number of a policy in short; `null` where there is none."""
    return (
        "null"
        if value is None or (isinstance(value, float) and math.isnan(value))
        else f"{value:g}"
    )


def value_range(unit: Unit) -> str:
    """Range of a unit, in words."""
    return f"{unit.name}, {number(unit.low)} to {number(unit.high)}"


def page(title: str, *parts: str) -> str:
    """A page: heading and parts, a blank line between them."""
    return "\n\n".join((f"# {title}", *(part.strip() for part in parts))) + "\n"


def defaults() -> Mapping[str, Any]:
    """The default policy as nested mappings."""
    return Policy.load().model_dump()


def default_of(threshold: Threshold) -> str:
    """Value of a threshold in the default policy."""
    section, key = threshold.section, threshold.key
    stated = defaults().get(section, {})
    return number(
        stated.get(key, threshold.default) if isinstance(stated, Mapping) else threshold.default
    )


# Gates, signals, rates


def gates_page() -> str:
    """Every gate in its order, and every threshold of the gates."""
    rows = [
        (n, code(gate.name), gate.rule, JUDGED[gate.judges], FIRING[gate.firing])
        for n, gate in enumerate(GATES, 1)
    ]
    thresholds = [threshold_row(gate, threshold) for gate in GATES for threshold in gate.thresholds]
    return page(
        "Gates",
        "A gate compares what was measured for a question with a threshold of the policy. The "
        "gates run in this order, "
        "and the first one that fires decides (rule S2.12). To refuse is also called abstention. "
        "The order is `decision.order` of a policy; a gate that is "
        "left out of it is off. This page is generated from `raglab.gates.GATES`.",
        table(("", "gate", "rule", "judges", "when it fires"), rows),
        "## Thresholds",
        "The default is that of the default policy, the thresholds of the source documents. A "
        "*floor* passes at or "
        "above the threshold, a *ceiling* at or below.",
        table(("threshold", "default", "side", "unit and range", "compared with"), thresholds),
        "Every signal has a gate of its own: `signals.<name>.min` and `signals.<name>.max` (rule "
        "S2.15, "
        "[signals](signals.md)). Gates of your own: [how to](../howto/own_signals.md).",
        "## The rules",
        *(f"- **{gate.name}** ({gate.rule}): {rule_sentences()[gate.rule]}" for gate in GATES),
    )


def threshold_row(gate: Gate, threshold: Threshold) -> tuple[str, ...]:
    """Row of one threshold of a gate."""
    condition = f" where `{threshold.where}` holds" if threshold.where else ""
    label = gate.label or threshold.meets
    return (
        code(threshold.path),
        default_of(threshold),
        threshold.side,
        value_range(threshold.unit),
        label + condition,
    )


def signals_page() -> str:
    """Every built-in signal, and the units that a signal of one's own may name."""
    rows = [
        (
            code(row.name),
            row.meaning,
            value_range(row.unit),
            DIRECTIONS[row.direction],
            STAGES[row.stage],
        )
        for row in BUILT_IN
    ]
    return page(
        "Signals",
        "A signal is a number for each question, measured once and free of thresholds (rule "
        "S2.15). Every one can be "
        "gated, swept, tuned and explained. A missing value fires its gate. This page is "
        "generated from "
        f"`raglab.signals.BUILT_IN`; it has {len(BUILT_IN)} signals.",
        table(("signal", "meaning", "unit and range", "more of it", "measured from"), rows),
        "## Units of signals of your own",
        "`unit=` may be one of these names, or any other words, which then have no range. "
        "How to add a signal: [signals and gates of your own](../howto/own_signals.md).",
        units_table(),
    )


def units_table() -> str:
    """Units that have a name, with their ranges."""
    units = [
        (code(name), f"{number(unit.low)} to {number(unit.high)}") for name, unit in UNITS.items()
    ]
    return table(("unit", "range"), units)


def metrics_page() -> str:
    """Every rate of decisions."""
    rows = [
        (
            code(name),
            f"{rate.label}: `{rate.count}` of {rate.share_of} cases",
            BETTER[rate.better],
            number(rate.target),
        )
        for name, rate in RATE_TABLE.items()
    ]
    return page(
        "Rates",
        "A rate is k of n cases with its exact binomial interval (rule S6.2). "
        "`decisions.rates()`, `sweep`, `steps`, "
        "studies, reports, MLflow and the command line show the same rates. What is better low "
        "may be promised by a "
        "certificate. This page is generated from `raglab.metrics.RATE_TABLE`.",
        table(("rate", "what is counted", "", "default target"), rows),
        "A case is *correct* if its contract holds: an answer where one is expected, with the "
        "expected sources; a "
        "refusal or a question where that is expected (rule S6.3). The expected cost is in "
        "[expected cost](../explanation/expected_cost.md); functions of further measures are in "
        "{py:mod}`raglab.metrics`.",
        "In selective prediction a refusal is an abstention, `hallucination_rate` the selective "
        "risk. Of the curve of risk and coverage: `aurc`, `augrc`, `prr`, and "
        "[a figure](../howto/figures.md).",
    )


# Files, settings, policy


def loaders_page() -> str:
    """Every form of a file that is read."""
    rows = []
    for name, form in FORMATS.items():
        parts = [word for word in ("corpus", "cases") if getattr(form, word)]
        files = " ".join(map(code, dict.fromkeys((form.corpus_file, form.cases_file)))).strip()
        rows.append(
            (name, " ".join(map(code, form.endings)), " and ".join(parts), files, form.mark)
        )
    return page(
        "Forms of files",
        "`raglab.load_corpus` and `raglab.load_cases` go by what a source is: a folder, a file by "
        "its ending, or a "
        "DataFrame. Of several forms with one ending the first record decides. This page is "
        "generated from "
        "`raglab.store.loaders.FORMATS`; [your own data](../howto/own_data.md) shows how they are "
        "used.",
        table(("form", "endings", "holds", "its file in a folder", "recognised by"), rows),
    )


OPTION = re.compile(r"(?<![`\w-])(--[a-z][a-z-]*)")
SETTING_LINE = re.compile(r"^\s*(RAGLAB_\w+)(?:=\S*\s*(?:# )?|: )(.*)$", re.MULTILINE)


def setting_notes() -> dict[str, str]:
    """Meaning of each variable, from the docstring of `raglab.live.settings`."""
    return {name: note.strip() for name, note in SETTING_LINE.findall(settings.__doc__ or "")}


def setting_type(annotation: Any) -> str:  # noqa: ANN401 - a type
    """Type of a setting in words."""
    if get_origin(annotation) is not None and any(
        isinstance(value, str) for value in get_args(annotation)
    ):
        return " or ".join(map(code, get_args(annotation)))
    name = getattr(annotation, "__name__", str(annotation))
    words = {"bool": "true or false", "int": "whole number", "float": "number", "str": "text"}
    plain = [words.get(kind, kind) for kind in re.findall(r"bool|int|float|str", str(annotation))]
    return plain[0] if plain else {"Path": "path"}.get(name, "path or URL")


def settings_page() -> str:
    """Every environment variable."""
    titles = {
        "Bandit": "bandit_",
        "Clarification": "clarify_",
        "Answers": "answer_",
        "Audit log": "audit_",
    }
    notes = setting_notes()
    parts = []
    for title, prefix in titles.items():
        rows = []
        for name, field in settings.Settings.model_fields.items():
            if not name.startswith(prefix):
                continue
            variable = settings.variable(name)
            default = "" if field.default is None else str(field.default).removesuffix(".0")
            kind_name = setting_type(field.annotation)
            rows.append((code(variable), notes.get(variable, ""), code(default), kind_name))
        parts += [f"## {title}", table(("variable", "meaning", "default", "value"), rows)]
    process = [(code(name), notes[name]) for name in settings.PROCESS_VARIABLES]
    others = [
        (code(TRACKING_VARIABLE), "where MLflow runs are kept, as MLflow reads it"),
        (code(CAPTURE_VARIABLE), "whether spans carry texts, as OpenTelemetry reads it"),
    ]
    return page(
        "Environment variables",
        "A variable is read from the environment, or from a file `.env` in the working directory; "
        "the environment goes "
        "first. A variable that begins with `RAGLAB_` and is none of these is refused, with the "
        "nearest name. This "
        "page is generated from `raglab.live.settings`.",
        *parts,
        "## Of the process",
        "These are read from the environment only; a `.env` that states one is refused.",
        table(("variable", "meaning"), process),
        "## Of other tools",
        table(("variable", "meaning"), others),
        "The key of a language model's server is in the variable that `OpenAIClient(key_env=)` "
        "names. "
        "[A service](../howto/service.md) shows the settings in use.",
    )


def policy_page(defaults_yaml: str) -> str:
    """The policy file with every key.

    Args:
      defaults_yaml: text of `raglab/defaults.yaml`.
    """
    arms = [
        (code(name), arm.what, arm.cost, "yes" if arm.live else "compares only")
        for name, arm in ARMS.items()
    ]
    learners = [
        (code(name), "linear in the features" if row.linear else "by arm")
        for name, row in LEARNERS.items()
    ]
    parts = [
        (
            code(name),
            part.measured,
            number(float(getattr(PUBLISHED_REWARD_WEIGHTS, part.weight))),
            code(f"RAGLAB_BANDIT_{part.variable}"),
        )
        for name, part in COMPONENT_BY_NAME.items()
    ]
    return page(
        "Policy file",
        "A policy is one YAML file (rule S0.5). What it leaves out is filled in from the default "
        "policy, which is this "
        "file. `raglab.Policy.load(path)` reads one, `policy.save(path)` writes one, "
        "`policy.replace(path, value, …)` "
        "gives another.",
        f"```yaml\n{defaults_yaml.strip()}\n```",
        "## Arms",
        "An arm is a retrieval strategy (rule S4.1), `strategy.arm` of a policy.",
        table(("arm", "what it does", "costs", "answers live"), arms),
        "## Learners",
        "Algorithms of a bandit (rule S4.5), `Bandit(algorithm=…)` or `RAGLAB_BANDIT_POLICY`.",
        table(("algorithm", "reward"), learners),
        "## Parts of the reward",
        "What a live bandit is rewarded for (rules S4.3 and S4.4).",
        table(("part", "measured", "published weight", "variable"), parts),
        "## Packs",
        "A pack says what a trade calls things, in YAML. Keys: "
        + ", ".join(map(code, Pack.model_fields))
        + ". "
        "[Data sets](../project/datasets.md) shows one.",
    )


# Commands


def commands_page() -> str:
    """Every command with its arguments and options."""
    command = typer.main.get_command(app)
    context = command.make_context("raglab", [], resilient_parsing=True)
    parts = [part for sub in subcommands(command, context) for part in command_parts(*sub)]
    return page(
        "Command line",
        f"{command.help}",
        "`raglab COMMAND --help` prints the same as this page, which is generated from the "
        "commands. "
        "[The command line](../howto/command_line.md) shows them in use.",
        "Every command takes `--debug` (the stack of an error) and `--help`.",
        "## Exit codes",
        "\n".join(
            f"- {plain_help(line)}"
            for line in EXIT_CODES.removeprefix("Exit codes:").rstrip(".").split("·")
        ),
        *parts,
    )


# of click, which typer brings
def subcommands(command: Any, context: Any) -> Iterable[tuple[str, Any]]:  # noqa: ANN401
    """Every command that does something, with its name as it is typed."""
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        if isinstance(sub, TyperGroup):
            for inner, leaf in subcommands(sub, context):
                yield f"{name} {inner}", leaf
        else:
            yield name, sub


def command_parts(name: str, command: Any) -> list[str]:  # noqa: ANN401 - of click
    """Heading, help, usage and parameters of one command."""
    arguments = [row for row in command.params if row.param_type_name == "argument"]
    options = [
        row
        for row in command.params
        if row.param_type_name == "option" and not getattr(row, "hidden", False)
    ]
    usage = " ".join(
        [
            "raglab",
            name,
            *(f"{argument_name(row)}" for row in arguments),
            *(["[OPTIONS]"] if options else []),
        ]
    )
    parts = [f"## {name}", plain_help(command.help or ""), f"```sh\n{usage}\n```"]
    rows = [
        (code(argument_name(row)), plain_help(getattr(row, "help", None) or ""))
        for row in arguments
    ]
    rows += [
        (" ".join(map(code, (*row.opts, *row.secondary_opts))), option_help(row)) for row in options
    ]
    parts += [table(("argument or option", "meaning"), rows)] if rows else []
    return parts + ([plain_help(command.epilog)] if command.epilog else [])


def argument_name(argument: Any) -> str:  # noqa: ANN401 - of click
    """Name of an argument as usage shows it."""
    name = (argument.metavar or argument.name).upper()
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def option_help(option: Any) -> str:  # noqa: ANN401 - of click
    """Meaning of an option with its choices and default."""
    annotation = option.type_descriptor.annotation
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    named = f" One of {', '.join(map(code, choices))}." if choices else ""
    default = option.default
    is_stated = default not in (None, (), [], "") and not callable(default) and not option.is_flag
    return (
        plain_help(option.help or "") + named + (f" Default: {code(default)}." if is_stated else "")
    )


def plain_help(text: str) -> str:
    """A help text as Markdown: paragraphs kept, what looks like a tag or a marker escaped."""
    paragraphs = [
        " ".join(part.split()) for part in inspect.cleandoc(text.replace("\b", "")).split("\n\n")
    ]
    escaped = (
        re.sub(r"(?<!`)([<>*_\[\]])(?![^`]*`)", r"\\\1", part) for part in paragraphs if part
    )
    # as code, or two hyphens become a dash
    return "\n\n".join(OPTION.sub(r"`\1`", part) for part in escaped)


# Public names


def public_names(module: ModuleType) -> list[str]:
    """Names of a module that are public.

    Those of `__all__`, else the functions and classes that it defines.
    """
    if hasattr(module, "__all__"):
        public = [name for name in module.__all__ if not name.startswith("_")]
        return sorted(name for name in public if not inspect.ismodule(getattr(module, name)))
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]


def is_of_other(value: object, name: str) -> bool:
    """Whether a value is defined in another module of the algebra, on whose page it is."""
    parts = str(getattr(value, "__module__", "")).split(".")
    return len(parts) > 1 and parts[1] in ALGEBRA and parts[1] != name


def first_line(value: object) -> str:
    """First line of a docstring, without its full stop."""
    text = inspect.getdoc(value) or ""
    return text.partition("\n")[0].rstrip(".")


def door_page(name: str) -> str:
    """Page of a door in reStructuredText: a table of its names, each with a page of its own."""
    module = importlib.import_module(name)
    lines = [rst_heading(name, "="), "", f".. module:: {name}", "", f"{first_line(module)}.", ""]
    lines += [".. autosummary::", "   :toctree: names", "   :nosignatures:", ""]
    lines += [f"   {public}" for public in public_names(module)]
    return "\n".join(lines) + "\n"


def module_page(name: str) -> str:
    """Page of a module of the algebra in reStructuredText.

    Its functions, classes and values in one place.
    """
    module = importlib.import_module(f"raglab.{name}")
    path = f"raglab.{name}"
    names = [
        public for public in public_names(module) if not is_of_other(getattr(module, public), name)
    ]
    lines = [rst_heading(path, "="), "", f".. module:: {path}", "", f"{first_line(module)}.", ""]
    lines += [f".. currentmodule:: {path}", ""]
    for public in names:
        value = getattr(module, public)
        is_class = inspect.isclass(value)
        if not (is_class or inspect.isroutine(value) or hasattr(value, "__wrapped__")):
            continue
        lines += [
            rst_heading(public, "-"),
            "",
            f".. auto{'class' if is_class else 'function'}:: {public}",
        ]
        lines += ["   :members:", ""] if is_class else [""]
    return "\n".join(lines) + "\n"


def rst_heading(text: str, mark: str) -> str:
    """A heading of reStructuredText."""
    return f"{text}\n{mark * len(text)}"


def api_page() -> str:
    """The page that lists doors and modules, in reStructuredText."""
    lines = [rst_heading("Python API", "="), ""]
    lines += [
        (
            "The doors hold the names that a user needs. The modules of the algebra are functions "
            "over plain"
        ),
        "arrays.",
    ]
    lines += ["", rst_heading("Doors", "-"), "", ".. toctree::", "   :maxdepth: 1", ""]
    lines += [f"   {name}" for name in DOORS]
    lines += ["", rst_heading("Algebra", "-"), "", ".. toctree::", "   :maxdepth: 1", ""]
    lines += [f"   raglab.{name}" for name in ALGEBRA]
    return "\n".join(lines) + "\n"


def reference_pages(defaults_yaml: str) -> dict[str, str]:
    """Every generated page, by its path in the site.

    Args:
      defaults_yaml: text of `raglab/defaults.yaml`.
    """
    pages = {
        "reference/gates.md": gates_page(),
        "reference/signals.md": signals_page(),
        "reference/metrics.md": metrics_page(),
        "reference/loaders.md": loaders_page(),
        "reference/settings.md": settings_page(),
        "reference/policy.md": policy_page(defaults_yaml),
        "reference/commands.md": commands_page(),
        "reference/api/index.rst": api_page(),
    }
    pages |= {f"reference/api/{name}.rst": door_page(name) for name in DOORS}
    return pages | {f"reference/api/raglab.{name}.rst": module_page(name) for name in ALGEBRA}
