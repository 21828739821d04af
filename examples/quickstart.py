"""Run commands in a conversation's workspace, and find its files again."""

from sandboxd_client import SandboxClient

with SandboxClient() as client:
    client.get_or_create_session(user_id="ada", thread_id="conversation-42")

    client.execute("""echo '{"data": [1, 2, 3]}' > data.json""")
    result = client.execute("jq '.data | add' data.json")
    print(result["stdout"], end="")  # 6

    for file in client.list_files().files:
        print(file.name, file.size_bytes, file.modified)
