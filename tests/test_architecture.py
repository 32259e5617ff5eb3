"""Who may import whom (docs/architecture.md). A room imports only from floors below its own, never up, never sideways."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FLOORS = {
    "generation": 1,
    "models": 1,
    "engine": 2,
    "ring": 3,
    "cluster": 4,
    "serving": 5,
    "api": 6,
    "node": 7,
    "cli": 8,
}
# ``models`` stands beside ``generation`` and may use its errors; nothing else goes sideways.
SIDEWAYS = {("models", "generation")}

FORBIDDEN_LIBRARIES = {
    "networking": {"p2pexo", "mlx", "mlx_lm", "quart", "hypercorn"},
    "p2pexo/generation": {"networking", "libp2p", "mlx", "mlx_lm", "quart", "trio"},
    "p2pexo/models": {"networking", "libp2p", "quart", "trio"},
    "p2pexo/engine": {"networking", "libp2p", "quart", "trio", "socket"},
    "p2pexo/cluster": {"libp2p", "mlx", "mlx_lm", "quart"},
    "p2pexo/serving": {"libp2p", "mlx", "mlx_lm", "quart"},
    "p2pexo/api": {"libp2p", "mlx", "mlx_lm"},
    "p2pexo/cli": {"libp2p", "mlx", "mlx_lm", "quart"},
}


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "p2pexo")


def source_files() -> list[Path]:
    return sorted(path for package in ("networking", "p2pexo") for path in (ROOT / package).rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "p2pexo").parts
    return parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", source_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_room_imports_only_from_floors_below(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    for package, libraries in FORBIDDEN_LIBRARIES.items():
        if place.startswith(package + "/"):
            for module in imported_modules(path):
                assert module.split(".")[0] not in libraries, f"{place} imports {module}"
    if not place.startswith("p2pexo/") or room_of(path) not in FLOORS:
        return
    room = room_of(path)
    for module in imported_modules(path):
        if not module.startswith("p2pexo."):
            continue
        other = module.split(".")[1]
        if other == room or other not in FLOORS or (room, other) in SIDEWAYS:
            continue
        assert FLOORS[other] < FLOORS[room], f"{place} (floor {FLOORS[room]}) imports {module} (floor {FLOORS[other]})"


def test_every_room_of_the_product_has_a_floor() -> None:
    entries = [entry for entry in (ROOT / "p2pexo").iterdir() if entry.is_dir() or entry.suffix == ".py"]
    rooms = {entry.name.removesuffix(".py") for entry in entries if not entry.name.startswith("_")}
    assert rooms - {"dashboard", "client"} <= set(FLOORS)
