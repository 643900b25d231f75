"""docs/serving.md says of settings, options and metrics what the code says."""

import json
import re
import tomllib
from typing import Any

import typer
from pydantic import BaseModel

from proctor.cli.serve import serve
from proctor.envs.targets import Target
from proctor.server.net.metrics import Metrics
from proctor.server.rewards.pipeline import plan_of
from proctor.server.settings import LimitSettings, ServerSettings, StorageSettings, WorkerSettings, parse_settings
from tests.docs.tables import page, table

PAGE = page("serving.md")
NO_SETTING = {"--config", "--json"}
"""Options that say how the command itself behaves."""


def defaults(model: type[BaseModel], before: str = "") -> dict[str, Any]:
    fields = model.model_fields.items()
    return {f"{before}{name}": None if field.is_required() else field.default for name, field in fields}


def options() -> set[str]:
    """Return the long options of the command."""
    alone = typer.Typer(add_completion=False)
    alone.command()(serve)
    return {name for each in typer.main.get_command(alone).params for name in each.opts if name.startswith("--")}


def test_the_page_names_every_setting_with_its_default() -> None:
    rows = {row[0].strip("`"): row[2].strip("`") for row in table(PAGE, "| setting |")}

    expected = defaults(ServerSettings) | defaults(LimitSettings, "limits.") | defaults(WorkerSettings, "worker.")
    expected |= defaults(StorageSettings, "storage.")
    del expected["limits"], expected["worker"], expected["storage"]
    assert {name: json.loads(default) if default else None for name, default in rows.items()} == expected


def test_the_page_names_every_option_of_the_command() -> None:
    named = {row[1].strip("`") for row in table(PAGE, "| setting |")} - {"", "the argument"}

    assert named | NO_SETTING == options()


def test_the_file_of_settings_on_the_page_can_be_served() -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    settings = parse_settings(tomllib.loads(block))

    assert plan_of(settings.transforms)
    Target(settings.target, dict(settings.settings)).make().close()


def test_the_page_names_every_metric_with_its_kind() -> None:
    rows = {row[0].strip("`").removesuffix("_total"): row[1] for row in table(PAGE, "| metric |")}

    assert rows == {metric.name: metric.type for metric in Metrics().registry.collect()}
