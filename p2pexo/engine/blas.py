"""active_blas only for now"""


def active_blas() -> str:
    return "reference"
