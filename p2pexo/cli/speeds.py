"""How fast nodes are and what rings are busy with, as words for a terminal. Pure."""

from rich.text import Text

from p2pexo.client import Activity, Member, Placement


def compute_speed(member: Member) -> str:
    """Bytes of weights for a token, and operations for a prompt, each second; empty if they aren't known."""
    if member.speeds is None or not member.speeds.decode_bytes_per_s or not member.speeds.prefill_flops_per_s:
        return ""
    return f"{_scaled(member.speeds.decode_bytes_per_s, 'B/s')}, {_scaled(member.speeds.prefill_flops_per_s, 'FLOP/s')}"


def activity_lines(placement: Placement) -> list[Text]:
    """What the stages do now, and how the request fared that ended last; nothing if none has said anything."""
    activities = [stage.activity for stage in placement.stages]
    first = activities[0] if activities else None
    if not any(activities):
        return []
    shares = " ".join("–" if each is None else f"{each.busy_share:.0%}" for each in activities)
    parts = [f"Busy {shares}", *(_batches(first) if first is not None else [])]
    fared = _fared(first) if first is not None else []
    lines = ["; ".join(parts), *([f"Last request: {', '.join(fared)}"] if fared else [])]
    return [Text(line, style="dim") for line in lines]


def _batches(activity: Activity) -> list[str]:
    """While there are any."""
    if not activity.batches_per_s:
        return []
    batches = f"{activity.batches_per_s:g} batches/s of {activity.rows:g} tokens from {activity.sequences:g} requests"
    hops = [] if activity.hop_s is None else [f"{1000 * activity.hop_s:g} ms from stage to stage"]
    return [batches, *hops]


def _fared(activity: Activity) -> list[str]:
    told = (
        ("waited {:g} s", activity.queue_s),
        ("read {:g} tokens/s", activity.prefill_tokens_per_s),
        ("wrote {:g} tokens/s", activity.decode_tokens_per_s),
    )
    return [words.format(figure) for words, figure in told if figure is not None]


def _scaled(figure: float, unit: str) -> str:
    """With two digits, such as ``25 GB/s``."""
    for power, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, "")):
        if figure >= power:
            return f"{float(f'{figure / power:.2g}'):g} {prefix}{unit}"
    return f"0 {unit}"
