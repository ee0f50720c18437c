"""Random operations of several processes on a shared cache, beside a model of it."""

import ast
import contextlib
import itertools
import os
import random
import signal
import threading
import time

from cache_model import EXPIRED, SETTINGS, STEPS, Model, apply
from processes import in_process
from test_shared import KILL_SECONDS, PROCESSES, SECONDS, server_of

import cabinet
from cabinet import _cache_storage

#: First seed of the histories that are run for `SECONDS`.
SEED = int(os.environ.get("SHARED_SEED", 1))

#: Operations of a history, and processes that do them.
OPERATIONS = 120
WORKERS = 3

#: Seconds after the beginning of an operation in which something is killed.
KILL_WITHIN = 0.003

#: Changes in one transaction each.
WHOLE = ["set", "add", "incr", "touch", "pop", "delete", "push", "evict", "expire", "transact"]

KEYS = [f"k{number}" for number in range(8)]
NUMBERS = ["n1", "n2"]
TAGS = ["red", "blue", None]


def random_value(chance):
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(1000 + chance.randrange(2000))
    return [chance.randrange(1000), chance.randbytes(10), None][kind - 1]


def random_operation(chance, is_within=False):
    """Returns an operation, with few keys, so that many meet."""
    lifetime = {"expire": chance.choice([None, 1e6, EXPIRED]), "tag": chance.choice(TAGS)}
    ends = {"prefix": chance.choice(["q", "r"]), "side": chance.choice(["front", "back"])}
    key = chance.choice(KEYS)
    operations = [
        (12, ("set", (key, random_value(chance)), lifetime)),
        (6, ("add", (key, random_value(chance)), lifetime)),
        (10, ("incr", (chance.choice(NUMBERS), chance.randrange(-5, 10)), {})),
        (6, ("touch", (key, lifetime["expire"]), {})),
        (8, ("get", (key,), {"tag": True})),
        (5, ("pop", (key,), {})),
        (5, ("delete", (key,), {})),
        (8, ("push", (random_value(chance),), {**lifetime, **ends})),
        (6, ("pull", (), ends)),
        (3, ("peek", (), ends)),
        (3, ("peekitem", (chance.choice([True, False]),), {})),
        (3, ("evict", (chance.choice(TAGS[:2]),), {})),
        (2, ("expire", (), {})),
        (2, ("cull", (), {})),
        (2, ("__len__", (), {})),
        (2, ("iterkeys", (chance.choice([True, False]),), {})),
    ]
    if not is_within:
        inner = [random_operation(chance, True) for _ in range(chance.randrange(1, 6))]
        operations += [
            (1, ("clear", (), {})),
            (2, ("close", (), {})),
            (4, ("check", (), {})),
            (10, ("transact", (inner, chance.random() < 0.8), {})),
        ]
    weights, operations = zip(*operations)
    return chance.choices(operations, weights)[0]


class Worker:
    """A process that does operations."""

    def __init__(self):
        self.process = in_process("import cache_model; cache_model.work()")

    def begin(self, folder, operation, step=None):
        self.process.stdin.write(repr((str(folder), operation, step)) + "\n")
        self.process.stdin.flush()

    def result(self):
        """Returns what an operation does; None if the process was killed within it."""
        line = self.process.stdout.readline()
        return (ast.literal_eval(line),) if line.endswith("\n") else None

    def end(self):
        self.process.communicate()


def kill(process):
    # It may have ended by itself.
    with contextlib.suppress(ProcessLookupError):
        if process is not None:
            os.kill(process, signal.SIGKILL)


class Killer(threading.Thread):
    """Kills a process after a while."""

    def __init__(self, seconds, process):
        super().__init__()
        self.seconds, self.process = seconds, process
        self.start()

    def run(self):
        time.sleep(self.seconds)
        kill(self.process)


def run_history(chance, folder, workers):
    """Runs operations one after the other, by processes in turn, and compares each with a model."""
    model = Model()
    tree = folder / _cache_storage.TREE_NAME

    def state_by(worker):
        worker.begin(folder, ("all", (), {}))
        return worker.result()[0]

    for _ in range(OPERATIONS):
        place = chance.randrange(len(workers))
        operation = random_operation(chance)
        killed = chance.choices(["none", "server", "worker"], [50, 2, 8])[0]
        if killed == "worker" and operation[0] not in WHOLE:
            killed = "none"
        moment = chance.uniform(0, KILL_WITHIN) if chance.random() < 0.8 else 0
        before = apply(model, ("all", (), {}))
        old = dict(model.rows)
        killer = None
        if killed == "server" and tree.exists():
            killer = Killer(moment, server_of(tree))
        step = chance.choice([*STEPS, None]) if killed == "worker" else None
        workers[place].begin(folder, operation, step)
        if killed == "worker" and step is None:
            killer = Killer(moment, workers[place].process.pid)
        found = workers[place].result()
        if killer is not None:
            killer.join()
        expected = apply(model, operation)
        if found is None:
            assert killed == "worker", operation
        else:
            assert found[0] == expected, operation
        if killed == "worker":
            workers[place].end()
            workers[place] = Worker()
            # What is not acknowledged is done as a whole or not at all.
            state = state_by(workers[place - 1])
            if found is None and state == before:
                model.rows = old
            assert state == apply(model, ("all", (), {})), operation
    for worker in workers:
        assert state_by(worker) == apply(model, ("all", (), {}))
        worker.begin(folder, ("check", (), {}))
        assert worker.result()[0] == []


def test_processes_do_what_a_model_does(tmp_path):
    """The server and the processes are killed now and then."""
    workers = [Worker() for _ in range(WORKERS)]
    try:
        end = time.monotonic() + SECONDS
        for seed in itertools.count(SEED):
            try:
                run_history(random.Random(seed), tmp_path / str(seed), workers)
            except BaseException as error:
                raise AssertionError(f"with SHARED_SEED={seed}") from error
            if end < time.monotonic():
                break
    finally:
        for worker in workers:
            worker.end()


RACER = "import cache_model, sys; cache_model.race(*sys.argv[1:])"


def test_processes_at_the_same_time_keep_what_holds(tmp_path):
    """The server and one of the processes are killed now and then."""
    folder = tmp_path / "cache"
    tree = folder / _cache_storage.TREE_NAME
    with cabinet.Cache(folder, shared=True, **SETTINGS) as cache:
        cache.set("accounts", [100, 0, 0])
    chance = random.Random(SEED)
    racers = [in_process(RACER, folder, number, SECONDS) for number in range(PROCESSES)]
    victim, kills = None, 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if victim is None:
            victim = in_process(RACER, folder, "victim", 2 * SECONDS)
            assert victim.stdout.readline() == "open\n"
        time.sleep(chance.uniform(0, KILL_SECONDS))
        if chance.random() < 0.5:
            kill(server_of(tree))
        else:
            victim.kill()
            victim.communicate()
            victim = None
        kills += 1
    if victim is not None:
        victim.kill()
        victim.communicate()
    results = [ast.literal_eval(racer.communicate()[0].partition("\n")[2]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * PROCESSES and kills > 0
    with cabinet.Cache(folder, shared=True, **SETTINGS) as cache:
        assert sum(cache["accounts"]) == 100
        assert cache.get("n", 0) == sum(result["n"] for result in results)
        pulled = [item for result in results for item in result["pulled"]]
        while (item := cache.pull("q")[1]) is not None:
            pulled.append(item)
        assert sorted(pulled) == sorted(item for result in results for item in result["pushed"])
        assert apply(cache, ("check", (), {})) == []
