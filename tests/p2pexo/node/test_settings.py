from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from p2pexo.cli.main import build_app
from p2pexo.engine.limits import Limits
from p2pexo.node.settings import NodeSettings
from p2pexo.node.values import MemoryBudget, SettingsError


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch):
    import os

    for name in [name for name in os.environ if name.startswith("P2PEXO_")]:
        monkeypatch.delenv(name)


def parse(*arguments: str) -> NodeSettings:
    _, bound, _ = build_app().parse_args(["node", *arguments], exit_on_error=False, print_error=False)
    bound.apply_defaults()
    return bound.arguments["settings"]


def test_without_a_flag_everything_has_its_default():
    assert parse() == NodeSettings()


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--home", "~/elsewhere"], "home", Path("~/elsewhere").expanduser()),
        (["--name", "studio"], "name", "studio"),
        (["--no-may-lead"], "may_lead", False),
        (["--peer", "10.0.0.1:1", "--peer", "10.0.0.2:2"], "peers", ("/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.2/tcp/2")),
        (["--listen", "127.0.0.1:0"], "listen", ("/ip4/127.0.0.1/tcp/0",)),
        (["--no-mdns"], "mdns", False),
        (["--api-port", "0"], "api_port", 0),
        (["--allow-origin", "https://a.example"], "allow_origins", ("https://a.example",)),
        (["--memory", "8GB"], "memory", MemoryBudget(size=8 * 10**9)),
        (["--memory", "50%"], "memory", MemoryBudget(share=0.5)),
        (["--model-dir", "/a", "--model-dir", "/b"], "model_dirs", (Path("/a"), Path("/b"))),
        (["--precision", "keep"], "precision", "keep"),
        (["--load-timeout", "10m"], "load_timeout", 600.0),
        (["--keep-alive", "1h30m"], "keep_alive", 5400.0),
        (["--keep-alive", "-1"], "keep_alive", -1.0),
        (["--keep-alive", "0"], "keep_alive", 0.0),
        (["--response-lifetime", "48h"], "response_lifetime", 172800.0),
        (["--no-autoload"], "autoload", False),
        (["--max-waiting", "0"], "max_waiting", 0),
        (["--step-time", "0.05"], "step_time", 0.05),
        (["--log-format", "json"], "log_format", "json"),
    ],
)
def test_a_flag_sets_its_field(arguments: list[str], field: str, value: Any):
    assert getattr(parse(*arguments), field) == value


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("P2PEXO_SECRET", "s3cret", "secret", "s3cret"),
        ("P2PEXO_PEER", "10.0.0.1:1 10.0.0.2:2", "peers", ("/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.2/tcp/2")),
        ("P2PEXO_MDNS", "no", "mdns", False),
        ("P2PEXO_API_PORT", "8000", "api_port", 8000),
        ("P2PEXO_MEMORY", "70%", "memory", MemoryBudget(share=0.7)),
        ("P2PEXO_MODEL_DIR", "/a:/b", "model_dirs", (Path("/a"), Path("/b"))),
        ("P2PEXO_CACHE", "~/cache", "cache", Path("~/cache").expanduser()),
        ("P2PEXO_EXIT_WITH_PARENT", "1", "exit_with_parent", True),
        ("P2PEXO_ENGINE", "scripted", "engine", "scripted"),
        ("P2PEXO_PREFIX_TOKENS", "4096", "prefix_tokens", 4096),
    ],
)
def test_a_variable_sets_its_field(monkeypatch: pytest.MonkeyPatch, variable: str, text: str, field: str, value: Any):
    monkeypatch.setenv(variable, text)
    assert getattr(parse(), field) == value


def test_a_flag_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("P2PEXO_API_PORT", "8000")
    assert parse("--api-port", "9000").api_port == 9000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--memory", "7x"], "'7x' is not a size"),
        (["--peer", "nowhere"], "'nowhere' is not an address"),
        (["--api-port", "99999"], "99999 is not a port"),
        (["--load-timeout", "soon"], "'soon' is not a duration"),
        (["--precision", "double"], "keep"),
        (["--max-running", "0"], "0 is too few"),
        (["--step-time", "quick"], "'quick' is not a duration"),
        (["--secret", ""], "the secret is empty"),
        (["--api-portt", "1"], "--api-port"),
    ],
)
def test_a_wrong_value_is_named_with_its_flag(arguments: list[str], complaint: str):
    with pytest.raises(Exception) as caught:
        parse(*arguments)
    assert complaint in str(caught.value)
    assert arguments[0] in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"open": True, "secret": "s"}, "--open means a cluster without a secret"),
        ({"join": "t", "secret": "s"}, "a ticket already names"),
        ({"join": "t", "cluster": "c"}, "a ticket already names"),
        ({"api_key": "k", "no_api_key": True}, "contradicts"),
        ({"api_key": " "}, "--api-key is empty"),
        ({"api_host": "0.0.0.0"}, "--api-host 0.0.0.0 lets other machines use this node"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], complaint: str):
    with pytest.raises(SettingsError, match=complaint):
        NodeSettings(**settings)


@pytest.mark.parametrize("settings", [{"api_key": "k"}, {"no_api_key": True}])
def test_other_machines_may_use_the_api_with_a_key_or_an_explicit_no(settings: dict[str, Any]):
    assert NodeSettings(api_host="0.0.0.0", **settings).api_host == "0.0.0.0"


def test_loopback_keeps_the_ports_and_drops_the_hosts():
    settings = NodeSettings(listen=("/ip4/0.0.0.0/tcp/52416", "/ip6/::/tcp/52416"), loopback=True)
    assert settings.listen_addresses == ("/ip4/127.0.0.1/tcp/52416",)


def test_what_a_ring_takes_on_is_what_it_takes_on_by_itself_unless_told_otherwise():
    assert NodeSettings().limits == Limits()
    told = NodeSettings(max_running=2, max_waiting=3, batch_size=4, chunk_size=64, step_time=0.5, prefix_tokens=0)
    assert told.limits == Limits(running=2, waiting=3, together=4, rows=64, step_s=0.5, kept_tokens=0)


def test_secrets_are_not_in_the_repr():
    shown = repr(NodeSettings(secret="s3cret", api_key="k3y")) + repr(NodeSettings(join="t1cket"))
    assert not any(word in shown for word in ("s3cret", "k3y", "t1cket"))


def test_every_setting_is_explained_in_the_help(capsys: pytest.CaptureFixture[str]):
    arguments = build_app()["node"].assemble_argument_collection(parse_docstring=True)
    explained = {argument.field_info.name for argument in arguments if argument.parameter.help}
    assert explained >= {each.name for each in fields(NodeSettings)}
