"""Archives in and out of a real guest."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import stat
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from sandboxd.errors import (
    FileNotFound,
    InvalidArchive,
    NotADirectory,
    OutsideWorkspace,
    WorkspaceFull,
)
from sandboxd.files import Compression, TarMade, TarSpec, TarUnpacked
from tests.guest.file_rig import MIB, FileRig, chunks_of, guest_with_files

pytestmark = pytest.mark.usefixtures("rig")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FileRig]:
    async with guest_with_files(tmp_path, max_file_bytes=32 * MIB) as rig:
        yield rig


async def upload(rig: FileRig, data: bytes, path: str = "", **more: Any) -> TarUnpacked:
    size = more.pop("chunk", MIB)
    return await rig.files.upload_tar(TarSpec(path=rig.path(path), **more), chunks_of(data, size))


async def download(rig: FileRig, path: str = "", **more: Any) -> tuple[bytes, TarMade]:
    async with rig.files.download_tar(rig.path(path), **more) as tar:
        data = b"".join([chunk async for chunk in tar])
    return data, tar.made


def archive(
    *members: tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], bytes],
    form: int = tarfile.PAX_FORMAT,
) -> bytes:
    """An archive of these: name, what differs from a plain file, content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, fields, *rest in members:
            info = tarfile.TarInfo(name)
            content = rest[0] if rest else b""
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zstd_compress(data: bytes) -> bytes:
    """With a checksum, as the program does."""
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def refused(result: TarUnpacked) -> dict[bytes, str]:
    return {member.name: member.why for member in result.refused}


def tree(top: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below, with what has to be equal."""
    found = {}
    for directory, names, files in os.walk(top):
        for name in [*names, *files]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content: object = ""
            if stat.S_ISREG(status.st_mode):
                content = Path(path).read_bytes()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            mode = status.st_mode
            found[os.path.relpath(path, top)] = (mode, status.st_mtime_ns, content)
    return found


# --- there and back ---


def _plant(top: Path, count: int = 20) -> None:
    for number in range(count):
        path = top / f"d{number % 5}" / f"e{number % 3}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number * 97 % 5000))
        path.chmod(0o600 + number % 64)
        os.utime(path, ns=(0, 1_600_000_000_123_456_789 + number))
    (top / "empty").mkdir(mode=0o711)
    (top / "link").symlink_to("d0/e0/file0")
    (top / "dangling").symlink_to("/nowhere/at/all")
    (top / ("n" * 200)).write_bytes(b"long name")
    os.mkdir(os.fsencode(top) + b"/\xff\nodd")
    deep = top / "/".join("deeper" for _ in range(40))
    deep.mkdir(parents=True)
    (deep / "bottom").write_bytes(b"b" * 300_000)
    os.link(top / "d0/e0/file0", top / "hard")
    for directory, _, _ in os.walk(top, topdown=False):
        os.utime(directory, ns=(0, 1_500_000_000_000_000_001))


@pytest.mark.parametrize("compression", Compression)
async def test_there_and_back(rig: FileRig, compression: Compression) -> None:
    """Names, modes, times to the nanosecond, contents and links are equal."""
    (rig.workspace / "one").mkdir()
    _plant(rig.workspace / "one")
    data, made = await download(rig, "one", compression=compression)
    result = await upload(rig, data, "two", compression=compression)

    assert tree(rig.workspace / "two") == tree(rig.workspace / "one")
    assert (result.refused_count, made.skipped_count) == (0, 0)
    assert result.extracted == made.members == len(tree(rig.workspace / "one"))
    first, other = rig.workspace / "two/d0/e0/file0", rig.workspace / "two/hard"
    assert first.stat().st_ino == other.stat().st_ino


async def tar_program(arguments: list[str], data: bytes = b"") -> bytes:
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec("tar", *arguments, stdin=pipe, stdout=pipe)
    output, _ = await program.communicate(data)
    assert program.returncode == 0
    return output


@pytest.mark.parametrize("form", ["posix", "gnu", "ustar", "v7"])
async def test_archives_of_the_tar_program(rig: FileRig, tmp_path: Path, form: str) -> None:
    """Ours are read by it, and its are read by us, in every format it has."""
    source, target = tmp_path / "source", tmp_path / "target"
    for directory in (source, target):
        directory.mkdir()
    (source / "d").mkdir()
    (source / "d/file").write_bytes(b"content")
    (source / "link").symlink_to("d/file")
    made = await tar_program(["-C", str(source), f"--format={form}", "-cf", "-", "."])
    result = await upload(rig, made, "here")
    data, _ = await download(rig, "here")
    await tar_program(["-C", str(target), "-xf", "-"], data)

    assert result.refused_count == 0
    assert (rig.workspace / "here/d/file").read_bytes() == b"content"
    assert tree(target) == tree(rig.workspace / "here")


async def test_in_any_pieces(rig: FileRig) -> None:
    """It does not matter how an archive is cut into chunks."""
    data = archive(*[(f"f{n}", {}, os.urandom(n * 100)) for n in range(20)])
    for size in (1, 511, 512, 513, 100_000):
        result = await upload(rig, data, f"in{size}", chunk=size)
        assert (result.extracted, result.extracted_bytes) == (20, 19000)


async def test_quicker_than_one_by_one(rig: FileRig) -> None:
    """900 small files: the figures of both ways, which the benchmark compares."""
    contents = {f"f{number}": os.urandom(1000) for number in range(900)}
    data = archive(*[(name, {}, content) for name, content in contents.items()])
    begin = time.perf_counter()
    result = await upload(rig, data, "tar")
    as_tar = time.perf_counter() - begin
    begin = time.perf_counter()
    await rig.files.make_directory(rig.path("single"))
    for name, content in contents.items():
        await rig.put(f"single/{name}", content)
    one_by_one = time.perf_counter() - begin

    print(f"900 files: {as_tar * 1000:.0f} ms as tar, {one_by_one * 1000:.0f} ms one by one")
    assert result.extracted == 900
    assert set(os.listdir(rig.workspace / "tar")) == set(contents)


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("../evil", {}, "leads out"),
        ("a/../../evil", {}, "leads out"),
        ("/evil", {}, "leads out"),
        ("/tmp/evil", {}, "leads out"),
        ("device", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}, "devices"),
        ("block", {"type": tarfile.BLKTYPE, "devmajor": 8}, "devices"),
        ("fifo", {"type": tarfile.FIFOTYPE}, "devices"),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, "leads out"),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "../../etc/passwd"}, "leads out"),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "nothing"}, "hard link"),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "out/passwd"}, "leads out"),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "out"}, "hard link"),
        ("out/written", {}, "leads out"),
        ("chain/written", {}, "leads out"),
        ("file/below", {}, "not a directory"),
        ("x" * 300, {}, "too long"),
        ("/".join(["d" * 200] * 30), {}, "too long"),
        ("odd", {"type": b"Z"}, "unknown"),
        ("sparse", {"type": tarfile.GNUTYPE_SPARSE}, "sparse"),
        ("sparse", {"pax_headers": {"GNU.sparse.major": "1"}}, "sparse"),
        ("sly", {"type": tarfile.SYMTYPE, "linkname": ""}, "hard link"),
    ],
)
async def test_hostile_members(
    rig: FileRig, tmp_path: Path, name: str, fields: dict[str, Any], why: str
) -> None:
    """Each is refused with its reason, and those before and after it are extracted."""
    data = archive(
        ("file", {}, b"first"),
        ("out", {"type": tarfile.SYMTYPE, "linkname": "/etc"}),
        ("chain", {"type": tarfile.SYMTYPE, "linkname": "out"}),
        (name, fields, b""),
        ("last", {}, b"last"),
    )
    before = set(os.listdir("/etc")) | set(os.listdir(tmp_path))
    result = await upload(rig, data, "here")

    assert result.refused_count == 1
    ((refused_name, words),) = refused(result).items()
    assert why in words
    assert name.encode().startswith(refused_name)
    assert (rig.workspace / "here/last").read_bytes() == b"last"
    assert (rig.workspace / "here/file").read_bytes() == b"first"
    assert set(os.listdir("/etc")) | set(os.listdir(tmp_path)) == before


async def test_links_inside_the_directory_are_followed(rig: FileRig) -> None:
    """A member below a link that stays inside is where the link leads."""
    data = archive(
        ("real", {"type": tarfile.DIRTYPE, "mode": 0o755}),
        ("alias", {"type": tarfile.SYMTYPE, "linkname": "real"}),
        ("alias/file", {}, b"x"),
    )
    result = await upload(rig, data, "here")

    assert result.refused_count == 0
    assert (rig.workspace / "here/real/file").read_bytes() == b"x"


async def test_modes_are_stripped(rig: FileRig) -> None:
    """No set-user-ID, set-group-ID or sticky bit comes out of an archive."""
    data = archive(
        ("suid", {"mode": 0o6755}, b"x"), ("d", {"type": tarfile.DIRTYPE, "mode": 0o7777})
    )
    await upload(rig, data)

    assert stat.S_IMODE((rig.workspace / "suid").stat().st_mode) == 0o755
    assert stat.S_IMODE((rig.workspace / "d").stat().st_mode) == 0o777


async def test_duplicates_and_what_is_there(rig: FileRig) -> None:
    """The last of a name wins, or the first where overwriting is refused; a replaced file is a
    new one; a directory is not replaced by a file."""
    data = archive(("file", {}, b"1"), ("file", {}, b"2"), ("d", {}, b"file"))
    (rig.workspace / "d").mkdir()
    (rig.workspace / "file").write_bytes(b"0")
    os.link(rig.workspace / "file", rig.workspace / "other")
    replaced = await upload(rig, data)
    kept = await upload(rig, data, "new", replace=False)
    again = await upload(rig, data, "new", replace=False)

    assert (rig.workspace / "file").read_bytes() == b"2"
    assert (rig.workspace / "other").read_bytes() == b"0"
    assert list(refused(replaced)) == [b"d"]
    assert (rig.workspace / "new/file").read_bytes() == b"1"
    assert (kept.extracted, kept.refused_count) == (2, 1)
    assert (again.extracted, again.refused_count) == (0, 3)


async def test_links_replace_links(rig: FileRig) -> None:
    """Links and hard links are made anew over what is there, and leave no names of ours."""
    data = archive(
        ("file", {}, b"x"),
        ("soft", {"type": tarfile.SYMTYPE, "linkname": "file"}),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "file"}),
    )
    for _ in range(2):
        assert (await upload(rig, data)).refused_count == 0

    assert rig.names() == {"file", "soft", "hard"}


async def test_the_layout_stays(rig: FileRig) -> None:
    """Members of the names of the layout are extracted into, not over."""
    (rig.workspace / "outputs").mkdir()
    (rig.workspace / "agent_workspace").symlink_to(".")
    data = archive(
        ("outputs", {"type": tarfile.DIRTYPE, "mode": 0o700}),
        ("outputs/file", {}, b"x"),
        ("agent_workspace", {}, b"x"),
        ("agent_workspace/two", {}, b"2"),
    )
    result = await upload(rig, data)

    why = "it is part of the layout of the workspace, or its directory is read-only"
    assert refused(result) == {b"agent_workspace": why}
    assert stat.S_IMODE((rig.workspace / "outputs").stat().st_mode) != 0o700
    assert (rig.workspace / "two").read_bytes() == b"2"


async def test_a_member_over_the_limit(rig: FileRig) -> None:
    """It is refused without being written, and the rest goes on."""
    data = archive(("large", {}, bytes(33 * MIB)), ("small", {}, b"x"))
    result = await upload(rig, data)

    assert list(refused(result)) == [b"large"]
    assert rig.names() == {"small"}


# --- what is not an archive ---


def _lying(change: Callable[[bytearray], None]) -> bytes:
    data = bytearray(archive(("file", {}, b"x" * 1000), form=tarfile.USTAR_FORMAT))
    change(data)
    data[148:156] = b" " * 8
    data[148:155] = b"%06o\0" % sum(data[:512])
    return bytes(data)


def _set(begin: int, value: bytes) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[begin : begin + len(value)] = value

    return change


DAMAGED = {
    "empty": b"",
    "noise": os.urandom(5000),
    "text": b"hello world\n" * 100,
    "cut in a header": archive(("file", {}, b"x"))[:300],
    "cut in a member": archive(("file", {}, b"x" * 5000))[:3000],
    "a size beyond the end": _lying(_set(124, b"77777777777\0")),
    "a negative size": _lying(_set(124, b"\xff" * 12)),
    "a huge size": _lying(_set(124, b"\x80" + b"\xff" * 11)),
    "no number": _lying(_set(124, b"hello world\0")),
    "a wrong checksum": bytes(archive(("file", {}, b"x"))[:148] + b"0000000\0" + bytes(1000)),
    "a huge extended header": _lying(
        lambda data: (_set(156, b"x")(data), _set(124, b"00040000000\0")(data))[0]
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
async def test_what_is_no_archive(rig: FileRig, name: str) -> None:
    """Said as that, with nothing of the damaged member left."""
    with pytest.raises(InvalidArchive):
        await upload(rig, DAMAGED[name], "here")
    await rig.files.aclose()

    assert rig.names() <= {"here"}


@pytest.mark.parametrize(
    "records",
    [
        b"99 path=evil\n",
        b"path=evil\n",
        b"5 x\n\n\n",
        b"-1 path=x\n",
        b"1000000000000 path=x\n",
        b"12 size=-99\n",
        b"12 size=abc\n",
        b"14 mtime=now!\n",
    ],
)
async def test_extended_headers_that_lie(rig: FileRig, records: bytes) -> None:
    """No length in them is believed."""
    head = bytearray(archive(("pax", {}, b"x" * len(records)), form=tarfile.USTAR_FORMAT))
    head[156:157] = b"x"
    head[148:156] = b" " * 8
    head[148:155] = b"%06o\0" % sum(head[:512])
    head[512 : 512 + len(records)] = records
    data = bytes(head[:1024]) + archive(("file", {}, b"x"), form=tarfile.USTAR_FORMAT)
    with pytest.raises(InvalidArchive):
        await upload(rig, data)


async def test_a_stream_that_breaks_off_keeps_what_was_whole(rig: FileRig) -> None:
    """Members before the break are there, the broken one is not, nor anything of ours."""
    data = archive(("one", {}, b"1"), ("two", {}, bytes(5 * MIB)))
    with pytest.raises(InvalidArchive):
        await upload(rig, data[: 2 * MIB])

    assert rig.names() == {"one"}


@pytest.mark.parametrize(
    ("compression", "pack"),
    [(Compression.GZIP, gzip.compress), (Compression.ZSTD, zstd_compress)],
)
async def test_packed_badly(
    rig: FileRig, compression: Compression, pack: Callable[[bytes], bytes]
) -> None:
    """Not packed, cut off or damaged: said as that. Several pieces in a row are one archive."""
    plain = archive(("file", {}, os.urandom(5000)))
    packed = pack(plain)
    damaged = bytearray(packed)
    damaged[len(damaged) // 2] ^= 0xFF
    for data in (plain, packed[:-20], packed[:10], bytes(damaged)):
        with pytest.raises(InvalidArchive):
            await upload(rig, data, "bad", compression=compression)

    both = pack(plain[:2000]) + pack(plain[2000:])
    for size in (1, 100, MIB):
        result = await upload(rig, both, "good", compression=compression, chunk=size)
        assert result.extracted == 1


@pytest.mark.parametrize(
    ("compression", "pack"),
    [(Compression.GZIP, gzip.compress), (Compression.ZSTD, zstd_compress)],
)
async def test_a_bomb(
    tmp_path: Path, compression: Compression, pack: Callable[[bytes], bytes]
) -> None:
    """Little that unpacks to very much ends at the limit of the workspace."""
    directory = tmp_path / "bomb"
    directory.mkdir()
    async with guest_with_files(directory, workspace_bytes=MIB) as rig:
        bomb = pack(bytes(16 * MIB)) * 40
        data = pack(archive(("file", {}, b"x"))) + bomb
        with pytest.raises(WorkspaceFull):
            await upload(rig, data, compression=compression)


async def test_where_nothing_can_be_extracted(rig: FileRig) -> None:
    """A directory is made; what is none is refused before anything is sent."""
    (rig.workspace / "file").write_bytes(b"")
    (rig.workspace / "out").symlink_to("/tmp")
    data = archive(("x", {}, b""))
    with pytest.raises(NotADirectory):
        await upload(rig, data, "file")
    with pytest.raises(OutsideWorkspace):
        await upload(rig, data, "out/here")
    await upload(rig, data, "new/deep")

    assert (rig.workspace / "new/deep/x").exists()


# --- what is left out ---


async def test_what_is_left_out_of_an_archive(rig: FileRig) -> None:
    """Pipes and sockets are named as left out; what cannot be listed is not found."""
    os.mkfifo(rig.workspace / "fifo")
    (rig.workspace / "file").write_bytes(b"x")
    data, made = await download(rig)

    assert [member.name for member in made.skipped] == [b"fifo"]
    assert (made.members, made.skipped_count) == (1, 1)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.getnames() == ["file"]
    with pytest.raises(FileNotFound):
        await download(rig, "missing")
    with pytest.raises(NotADirectory):
        await download(rig, "file")


async def test_an_archive_of_a_changing_tree(rig: FileRig) -> None:
    """It can be read whatever happens meanwhile, and has nothing from outside."""
    await rig.run("mkdir -p d/{1..20}; ln -s /etc etc; head -c 3000000 /dev/zero > d/big")
    changing = rig.start(
        "while :; do mv d/1 x; mv etc d/1; mv d/1 etc; mv x d/1; truncate -s $RANDOM d/big; "
        "head -c 900000 /dev/zero > d/big; done 2>/dev/null"
    )
    for _ in range(20):
        data, _ = await download(rig)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            names = tar.getnames()
        assert not [name for name in names if "passwd" in name]
    rig.link.kill(changing.number)
    await changing.end
