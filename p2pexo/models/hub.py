# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# huggingface_hub's progress class is untyped
"""Models from the Hugging Face Hub. Only called when a person asked for a model by its id, never for a request's sake."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from p2pexo.generation.errors import GenerationError, InvalidRequestError, ModelNotFoundError, UnavailableError
from p2pexo.models.card import Card
from p2pexo.models.describe import describe
from p2pexo.models.directory import Tensor, read_json
from p2pexo.models.names import check_id

FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "LICENSE*", "README.md")
"""What a model directory needs; no other weight formats, and no code."""


def look_up(id: str) -> Card:
    """The card of a model on the Hub: its config and the headers of its weight files are read, nothing else.

    Raises InvalidRequestError for what can't be an id, ModelNotFoundError, and UnavailableError when the Hub is not
    reached.
    """
    import huggingface_hub

    check_id(id)
    with _hub_errors(id):
        revision = str(huggingface_hub.model_info(id).sha)
        metadata = huggingface_hub.get_safetensors_metadata(id, revision=revision)
        with tempfile.TemporaryDirectory() as folder:
            huggingface_hub.hf_hub_download(id, "config.json", revision=revision, local_dir=folder)
            config = read_json(Path(folder) / "config.json")
        tensors = {
            name: Tensor(name, info.dtype, tuple(info.shape), file)
            for file, header in metadata.files_metadata.items()
            for name, info in header.tensors.items()
        }
    return describe(config, tensors, id=id, revision=revision, source="hub")


def download(card: Card, directory: Path, progress: Callable[[float], None]) -> None:
    """Fetch the files of a card; what an earlier try left in ``directory`` is not fetched again. Raises as ``look_up``."""
    import huggingface_hub

    check_id(card.id)
    with _hub_errors(card.id):
        huggingface_hub.snapshot_download(
            card.id,
            revision=card.revision,
            local_dir=directory,
            allow_patterns=list(FILES),
            tqdm_class=cast(Any, _bar_that_tells(progress)),
        )


class _hub_errors:  # noqa: N801 - reads as a statement
    """Turns the many errors of huggingface_hub into ours."""

    def __init__(self, id: str) -> None:
        self._id = id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        from huggingface_hub import errors

        if not isinstance(error, Exception) or isinstance(error, GenerationError):
            return
        if isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError | errors.GatedRepoError):
            message = f"the Hub has no model {self._id!r} that this machine may read; for a gated one, log in with `hf auth login`"
            raise ModelNotFoundError(message, param="model") from error
        if isinstance(error, errors.EntryNotFoundError | errors.NotASafetensorsRepoError):
            message = f"{self._id!r} is no model that can be run here: {error}"
            raise InvalidRequestError(message, param="model") from error
        if isinstance(error, OSError | errors.HfHubHTTPError) or type(error).__module__.startswith("httpx"):
            raise UnavailableError(f"{self._id!r} can't be fetched from the Hub: {error}") from error


def _bar_that_tells(progress: Callable[[float], None]) -> type:
    """huggingface_hub reports through a progress bar's class; this one draws nothing and passes the bytes on."""
    from tqdm.auto import tqdm

    class Telling(tqdm[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._counts_bytes = options.get("unit") == "B"
            options.pop("name", None)
            super().__init__(*arguments, **{**options, "disable": True})
            self.total = options.get("total")

        def update(self, n: float | None = 1) -> bool | None:
            self.n += n or 0
            if self._counts_bytes and self.total:
                progress(min(1.0, self.n / self.total))
            return None

    return Telling
