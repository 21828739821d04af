"""When commands come under the processor quota, and when it is lifted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sandboxd.isolation import quota as quotas
from sandboxd.isolation.cgroups import Counters
from sandboxd.isolation.quota import Quota
from tests.fakes.waiting import eventually


class Group:
    """Processes that come as a test says."""

    asks = False

    def __init__(self) -> None:
        self.strangers = 0
        self.looks = 0
        self.quotas: list[int] = []
        self.is_gone = False

    def throttle(self) -> int:
        self.looks += 1
        if self.is_gone:
            raise FileNotFoundError("the cgroup is gone")
        found, self.strangers = self.strangers, 0
        return found

    def set_quota(self, cpu_quota_us: int) -> None:
        if self.is_gone:
            raise FileNotFoundError("the cgroup is gone")
        self.quotas.append(cpu_quota_us)

    def admit(self) -> None: ...

    def counters(self) -> Counters:
        raise NotImplementedError

    def cpu_ns(self) -> int:
        raise NotImplementedError

    def processes(self) -> int:
        raise NotImplementedError

    def reset_peak_memory(self) -> None: ...

    def peak_memory(self) -> int:
        return 0

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "NEXT_SECONDS", "LIFTED_SECONDS"):
        monkeypatch.setattr(quotas, name, 0.01)


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def quota(group: Group) -> Iterator[Quota]:
    quota = Quota(group, 25_000)
    yield quota
    quota.close()


async def test_looks_go_on_while_something_runs(quota: Quota, group: Group) -> None:
    """As long as a command runs, new processes of it are found."""
    quota.begin()
    await eventually(lambda: group.looks >= 3)
    quota.end()
    await eventually(lambda: quota._throttling is None)


async def test_what_a_command_left_behind_is_found(quota: Quota, group: Group) -> None:
    """A look that finds somebody is followed by another, also when no command runs."""
    group.strangers = 1
    quota.begin()
    quota.end()
    await eventually(lambda: quota._throttling is None)

    assert group.looks == 2


async def test_kill_lifts_the_quota_for_a_while(quota: Quota, group: Group) -> None:
    """What is killed has processor time to die in; then the quota is back."""
    quota.lift()
    quota.lift()
    await eventually(lambda: group.quotas[-1] == 25_000)

    assert group.quotas == [0, 0, 25_000]


async def test_sandbox_that_is_gone_is_no_error(quota: Quota, group: Group) -> None:
    """The end of a sandbox may come between any two looks."""
    group.is_gone = True
    quota.begin()
    quota.lift()
    await eventually(lambda: quota._throttling is None)
    await asyncio.sleep(0)


async def test_work_on_files_comes_under_the_quota_when_it_lasts(
    quota: Quota, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that ends soon costs no look and no move; work that lasts is included until it ends."""
    with quota.over_work():
        pass
    assert quota._throttling is None

    monkeypatch.setattr(quotas, "WORK_SECONDS", 0.0)
    with quota.over_work():
        await eventually(lambda: group.looks >= 3)
    looks, group.strangers = group.looks, 1
    await eventually(lambda: quota._throttling is None)
    assert group.looks <= looks + 1
