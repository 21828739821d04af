"""Run Python with state: variables stay, results come back as data, errors as results."""

from sandboxd_client import Sandbox

with Sandbox.create() as sandbox:
    sandbox.code.run("import statistics\nsales = [120, 80, 95, 150]")
    run = sandbox.code.run(
        "print('computing')\n"
        "debug(f'{len(sales)} sales', 'INFO')\n"
        "__result__ = {'mean': statistics.mean(sales), 'best': max(sales)}"
    )
    print(run.status, run.result["mean"], run.stdout.strip(), run.logs[0].message)

    failed = sandbox.code.run("sales[10]")
    assert failed.error is not None
    print(failed.status, failed.error.type, "in line", failed.error.frames[-1].line)

    # A time-out interrupts the code; the variables are still there.
    late = sandbox.code.run("while True: pass", timeout=0.5)
    print(late.status, late.is_state_kept, sandbox.code.run("len(sales)").result)

    for variable in sandbox.code.state():
        print(variable.name, variable.type, variable.value)
