import pytest

from p2pexo.generation import errors
from p2pexo.generation.errors import ErrorReport, GenerationError, from_report


def every_error_class() -> list[type[GenerationError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, GenerationError)]


@pytest.mark.parametrize("cls", every_error_class(), ids=lambda cls: cls.__name__)
def test_an_error_comes_out_of_its_report_as_the_same_class(cls: type[GenerationError]) -> None:
    error = cls("temperature is 99: it must lie between 0 and 2", param="temperature", retry_after_s=3)
    again = from_report(error.report())
    assert type(again) is cls
    assert (again.message, again.param, again.retry_after_s) == (error.message, error.param, error.retry_after_s)


def test_every_class_has_a_kind_of_its_own() -> None:
    kinds = [cls.kind for cls in every_error_class()]
    assert len(kinds) == len(set(kinds))


def test_a_kind_from_a_newer_peer_becomes_the_base_class() -> None:
    error = from_report(ErrorReport("invented_later", "something new"))
    assert type(error) is GenerationError
    assert str(error) == "something new"
