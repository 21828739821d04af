from __future__ import annotations

from tests.service.client import Api


async def test_short_command_answers_in_one_message(api: Api) -> None:
    """Start, output and exit of a short command come as one batch."""
    call = api.exec(await api.open_id(), "echo hi; exit 3")
    responses = [response async for response in call]

    assert len(responses) == 1
    kinds = [event.WhichOneof("event") for event in responses[0].events]
    assert kinds == ["started", "stdout", "exited"]
