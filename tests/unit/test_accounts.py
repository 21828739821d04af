"""The user database that a sandbox sees."""

from sandboxd.isolation import accounts

IMAGE = "root:x:0:0:root:/root:/bin/bash\nsandboxuser:x:1000:1000::/home:/bin/sh\nmore:x:7:7::/:\n"


def test_sandbox_user_comes_first_and_once() -> None:
    """A lookup by uid or by name gives the sandbox's user, also where the image has that name."""
    text = accounts.passwd(IMAGE, name="sandboxuser", uid=200_003, home="/workspace")

    assert text.splitlines() == [
        "sandboxuser:x:200003:200003::/workspace:/bin/bash",
        "root:x:0:0:root:/root:/bin/bash",
        "more:x:7:7::/:",
    ]


def test_number_of_the_sandbox_is_nobody_elses() -> None:
    """An image user that happens to have the sandbox's uid does not take its name."""
    assert "more" not in accounts.passwd(IMAGE, name="me", uid=7, home="/w")


def test_image_without_accounts_gets_the_one() -> None:
    """An image with no user database at all works too, and broken lines are left out."""
    assert accounts.group("", name="me", gid=5) == "me:x:5:\n"
    assert accounts.group("nonsense\n\n", name="me", gid=5) == "me:x:5:\n"
