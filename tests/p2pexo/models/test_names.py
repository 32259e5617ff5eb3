import pytest
from attrs import evolve

from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError
from p2pexo.models.catalogue import EMBEDDED, Catalogue
from p2pexo.models.names import check_id, folder_name

OTHER = evolve(EMBEDDED, id="mlx-community/Llama-3.2-1B")
TWIN = evolve(EMBEDDED, id="somebody/SmolLM2-135M-Instruct")


@pytest.mark.parametrize(
    "name",
    [
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "huggingfacetb/smollm2-135m-instruct",
        "SmolLM2-135M-Instruct",
        "smollm2-135m-INSTRUCT",
    ],
)
def test_the_id_and_its_last_part_name_a_model_in_any_letter_case(name: str) -> None:
    assert Catalogue((EMBEDDED, OTHER)).resolve(name) is EMBEDDED


@pytest.mark.parametrize(
    "name",
    ["", " ", "/", "no-such-model", "SmolLM2", "SmolLM2-135M-Instruct ", "HuggingFaceTB", "HuggingFaceTB/", "x/y"],
)
def test_nothing_else_names_a_model_and_the_error_lists_the_known_ids(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="HuggingFaceTB/SmolLM2-135M-Instruct, mlx-community/Llama") as caught:
        Catalogue((EMBEDDED, OTHER)).resolve(name)
    assert caught.value.param == "model"


def test_a_last_part_that_two_models_share_names_neither() -> None:
    catalogue = Catalogue((EMBEDDED, TWIN, OTHER))
    with pytest.raises(ModelNotFoundError, match=r"could mean any of: HuggingFaceTB/.*, somebody/"):
        catalogue.resolve("SmolLM2-135M-Instruct")
    assert catalogue.resolve("Somebody/SmolLM2-135M-Instruct") is TWIN


@pytest.mark.parametrize("id", ["a/b", "a-1/b_2.3", "mlx-community/Llama-3.2-1B-Instruct-4bit", "local/x-"])
def test_ordinary_ids_are_ids(id: str) -> None:
    check_id(id)


PATHS = (
    *("", ".", "..", "../..", "a", "a/..", "../a", "a/b/c", "/a/b", "a/", "/b", "a\\b/c", "a/.b", "a/b.", "a/b..c"),
    *("%2e%2e/a", "a/b%2f", "a b/c", "a/b\n", "a/b\0", "a--b/c", "ä/b", "a/" + "b" * 97),
)


@pytest.mark.parametrize("id", PATHS)
def test_whatever_could_become_a_path_is_no_id(id: str) -> None:
    with pytest.raises(InvalidRequestError, match="no model id"):
        check_id(id)
    with pytest.raises(InvalidRequestError):
        folder_name(evolve(EMBEDDED, id=id))


def test_a_folder_is_one_name_for_a_model_and_revision() -> None:
    assert folder_name(EMBEDDED) == "HuggingFaceTB--SmolLM2-135M-Instruct--q4_1"
    with pytest.raises(InvalidRequestError):
        folder_name(evolve(EMBEDDED, revision="../x"))
