"""Go through a program line by line, stop at a breakpoint, and look around there."""

from sandboxd_client import Breakpoint, Sandbox

PROGRAM = """\
def discount(price, percent):
    saved = price * percent / 100
    return price - saved

total = 0
for price in (100, 250, 40):
    total += discount(price, 10)
print(total)
"""

with Sandbox.create() as sandbox:
    with sandbox.code.step_through(PROGRAM) as steps:
        for step in steps:
            changed = {variable.name: variable.value for variable in step.changed}
            print(f"{step.line:3} {step.source:35} {changed}")

    stop = Breakpoint(3, condition="price > 200")
    with sandbox.code.debug(PROGRAM, breakpoints=[stop], stop_at_entry=False) as debugger:
        debugger.wait()
        print([f"{frame.function}:{frame.line}" for frame in debugger.stack()])
        print(debugger.evaluate("saved").value, debugger.variables()["price"].value)
        debugger.continue_()
    assert debugger.result is not None
    print(debugger.result.status, debugger.result.stdout.strip())
