"""The engine that a stage process uses unless told otherwise. Importing this imports MLX."""

from p2pexo.engine.stage import StageEngine
from p2pexo.engine.text import TextModel
from p2pexo.engine.yardstick import measure_speed
from p2pexo.ring.engines import EngineKit

kit = EngineKit(StageEngine.load, TextModel.load, measure_speed)
