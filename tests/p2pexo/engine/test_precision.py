import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry
from p2pexo.engine.mlx_models import model_module
from p2pexo.engine.precision import Precision, choose_precision
from p2pexo.engine.stage import StageEngine
from p2pexo.engine.wire import from_wire, to_wire
from p2pexo.generation.request import Sampling

PROMPT = Batch(0, (Entry(1, (5, 17, 300, 42), 0, 0, Drawing(Sampling(temperature=0))),))


@pytest.mark.parametrize(
    ("setting", "gpu", "dense", "expected"),
    [
        ("auto", False, 70, Precision.DEQUANTISE),
        ("auto", False, 90, Precision.KEEP),
        ("auto", True, 1, Precision.KEEP),
        ("keep", False, 1, Precision.KEEP),
        ("dequantise", True, 1000, Precision.DEQUANTISE),
    ],
)
def test_weights_become_dense_on_a_cpu_with_memory_or_by_order(setting, gpu, dense, expected) -> None:
    assert choose_precision(setting, gpu=gpu, dense_bytes=dense, free_bytes=100) is expected


def test_a_precision_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="int4"):
        choose_precision("int4", gpu=False, dense_bytes=1, free_bytes=2)


@pytest.fixture(scope="module")
def quantised(make_model, tmp_path_factory) -> Path:
    """Four bits in groups of 32, the embedding eight in groups of 64, scales in half precision."""
    source = make_model()
    config = json.loads((source / "config.json").read_text())
    module = model_module("llama")
    model = module.Model(module.ModelArgs.from_dict(config))
    model.load_weights(str(source / "model.safetensors"))
    model.set_dtype(mx.float16)
    override = {"group_size": 64, "bits": 8}
    nn.quantize(
        model,
        32,
        4,
        class_predicate=lambda path, each: hasattr(each, "to_quantized") and (override if "embed" in path else True),
    )
    directory = tmp_path_factory.mktemp("quantised")
    model.save_weights(str(directory / "model.safetensors"))
    config["quantization"] = {"group_size": 32, "bits": 4, "model.embed_tokens": override}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def sampled(directory: Path, precision: str) -> tuple[int, StageEngine]:
    stage = StageEngine.load(directory, first_layer=0, end_layer=4, precision=precision)
    result = stage.run(PROMPT)
    assert isinstance(result, BatchResult)
    return result.sampled[0].token, stage


def test_dense_and_quantised_weights_say_the_same(quantised: Path) -> None:
    kept, kept_stage = sampled(quantised, "keep")
    dense, dense_stage = sampled(quantised, "dequantise")
    assert kept == dense
    assert dense_stage.weight_bytes > 4 * kept_stage.weight_bytes
    assert dense_stage.wire_dtype == "float32"


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_hidden_states_travel_bit_by_bit(dtype: mx.Dtype) -> None:
    rows = mx.array([[1.5, -2.25, float("inf")], [0.0, 1e-4, float("nan")]]).astype(dtype)
    data = bytes(to_wire(rows))
    assert len(data) == 6 * dtype.size
    back = from_wire(data, dtype, (2, 3))
    assert back.dtype == dtype
    assert bytes(to_wire(back)) == data
    assert bytes(to_wire(rows[:, ::2])) == bytes(to_wire(mx.contiguous(rows[:, ::2])))
