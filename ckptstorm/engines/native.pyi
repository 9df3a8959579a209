from collections.abc import Callable

from ckptstorm.engines.contract import Notes, Setup
from ckptstorm.payload import Payload
from ckptstorm.program import Program
from ckptstorm.sinks import Sink

def probe(mode: str) -> int: ...
def buffer_bytes(program: Program, queue_depth: int) -> int: ...

class NativeProgram:
    def __init__(self, setup: Setup, program: Program, payload: Payload | None) -> None: ...
    def run(self, sink: Sink, first: int, stop: int) -> int: ...
    def repeat(
        self,
        sink: Sink,
        first: int,
        stop: int,
        deadline_ns: int,
        op_limit: int | None = None,
        refill: Callable[[], None] | None = None,
    ) -> int: ...
    def schedule(self, origin_ns: int, lap_ns: int = 0) -> None: ...
    def finish(self) -> Notes: ...
