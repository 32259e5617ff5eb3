# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# huggingface_hub's progress class is untyped
"""Models from the Hugging Face Hub. Only called when a person asked for a model by its id, never for a request's sake."""

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attrs import frozen

from p2pexo.generation.errors import GenerationError, InvalidRequestError, ModelNotFoundError, UnavailableError
from p2pexo.models.card import Card
from p2pexo.models.describe import describe
from p2pexo.models.directory import ModelFilesError, Tensor, read_json
from p2pexo.models.names import check_id
from p2pexo.models.support import check_config

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "LICENSE*", "README.md")
"""What a model directory needs; no other weight formats, and no code."""


@frozen
class Hub:
    endpoint: str | None = None
    """Address of the server; None is the public one, or that of HF_ENDPOINT."""

    def look_up(self, id: str) -> Card:
        """The card of a model: its config and the headers of its weight files are read, nothing else.

        Raises InvalidRequestError for what is no id, or no model that can be run, ModelNotFoundError, and
        UnavailableError when the Hub can't be reached.
        """
        check_id(id)
        with _hub_errors(id), tempfile.TemporaryDirectory() as folder:
            api = self._api()
            revision = str(api.model_info(id).sha)
            config = read_json(Path(api.hf_hub_download(id, "config.json", revision=revision, local_dir=folder)))
            check_config(id, config)
            headers = api.get_safetensors_metadata(id, revision=revision).files_metadata
            tensors = {
                name: Tensor(name, str(info.dtype), tuple(info.shape), file)
                for file, header in headers.items()
                for name, info in header.tensors.items()
            }
            return describe(config, tensors, id=id, revision=revision, source="hub")

    def download(self, card: Card, directory: Path, progress: Callable[[float], None]) -> None:
        """Fetch the files of a card; what an earlier try left in ``directory`` is not fetched again.

        Raises as ``look_up`` does.
        """
        check_id(card.id)
        with _hub_errors(card.id):
            self._api().snapshot_download(
                card.id,
                revision=card.revision,
                local_dir=directory,
                allow_patterns=list(FILES),
                tqdm_class=_bar_that_tells(progress),
            )

    def _api(self) -> "HfApi":
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint)


@contextmanager
def _hub_errors(id: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        ours = translate(error, id)
        if ours is None:
            raise
        raise ours from error


def translate(error: Exception, id: str) -> GenerationError | None:
    """Ours for one of huggingface_hub's many errors, or for files that can't be used; None for any other."""
    from huggingface_hub import errors

    if isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError):  # a gated one is of these too
        message = (
            f"the Hub has no model {id!r} that this machine may read; for a gated one, log in with `hf auth login`"
        )
        return ModelNotFoundError(message, param="model")
    if isinstance(error, errors.LocalEntryNotFoundError):  # said when it was not reached, and nothing is cached
        return UnavailableError(f"{id!r} can't be fetched from the Hub: {error}")
    if isinstance(error, errors.EntryNotFoundError | errors.NotASafetensorsRepoError | ModelFilesError):
        return InvalidRequestError(f"{id!r} is no model that can be run here: {error}", param="model")
    of_the_network = type(error).__module__.startswith("httpx")  # of whichever generation huggingface_hub stands on
    if of_the_network or isinstance(error, OSError | errors.HfHubHTTPError):
        return UnavailableError(f"{id!r} can't be fetched from the Hub: {error}")
    return None


def _bar_that_tells(progress: Callable[[float], None]) -> Any:
    """huggingface_hub reports through a progress bar's class; this one draws nothing and passes the share of bytes on.

    The bar's total grows as files are begun, so the share could fall; what is told only rises.
    """
    from tqdm.auto import tqdm

    told = 0.0

    class Telling(cast(Any, tqdm)):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": True})
            self.total = options.get("total")
            self._counts_bytes = options.get("unit") == "B"

        def update(self, n: float | None = 1) -> None:
            nonlocal told
            self.n += n or 0
            if self._counts_bytes and self.total:
                told = max(told, min(1.0, cast(float, self.n / self.total)))
                progress(told)

    return Telling
