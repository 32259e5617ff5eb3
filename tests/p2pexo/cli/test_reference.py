from pathlib import Path

from attrs import fields

from p2pexo.cli.reference import reference
from p2pexo.node.settings import NodeSettings

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_says_what_the_program_says():
    assert PAGE.read_text() == reference(), "run `python -m p2pexo.cli.reference > docs/cli.md`"


def test_the_page_names_every_setting_by_flag_and_variable():
    page = reference()
    for each in fields(NodeSettings):
        if each.name not in ("exit_with_parent", "engine", "mdns_service"):
            flag = (
                each.name.removesuffix("s")
                if each.name in ("peers", "model_dirs", "allow_hosts", "allow_origins")
                else each.name
            )
            assert f"`--{flag.replace('_', '-')}" in page
            assert f"*[env: P2PEXO_{flag.upper()}]*" in page
