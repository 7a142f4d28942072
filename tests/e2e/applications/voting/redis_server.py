"""A queue of votes: PUSH VALUE, and POP, whose answer is empty when the queue is."""

from queue import Empty, SimpleQueue

from lines import serve

QUEUE: SimpleQueue[str] = SimpleQueue()


def respond(line: str, authenticated: bool) -> tuple[str, bool]:
    """Carry out a command."""
    command, _, value = line.partition(" ")
    if command == "PUSH":
        QUEUE.put(value)
        return "OK", authenticated
    try:
        return QUEUE.get(timeout=1), authenticated
    except Empty:
        return "", authenticated


if __name__ == "__main__":
    serve(6379, respond)
