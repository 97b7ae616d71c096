"""Run without a service: a transport in memory answers."""

import asyncio
import email.message
import importlib.util
import io
import json
import os
import signal
import ssl
import sys
import threading
import unittest
import unittest.mock
import urllib.error

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "src"))

from leasehold import Client, Held, Lost, Unavailable, aio

BOUND = 60  # a test fails after it only if something hangs
PROBLEMS = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#"


class Answer(io.BytesIO):
    def __init__(self, status, body):
        super().__init__(body if isinstance(body, bytes) else json.dumps(body).encode())
        self.status = status
        self.headers = email.message.Message()


class Service:
    """Grants every lock that nobody has, and notes the requests. answer may answer in its place: with a tuple of status
    and body, an exception, or None."""

    def __init__(self, answer=lambda method, path, body: None):
        self.answer = answer
        self.asked = []
        self.holders = {}

    def open(self, request, data=None, timeout=None):
        body = json.loads(data) if data else {}
        method, path = request.get_method(), request.full_url.removeprefix("http://service")
        self.asked.append((method, path))
        got = self.answer(method, path, body)
        if got is None:
            got = self.grant(method, path, body)
        if isinstance(got, BaseException):
            raise got
        status, text = got
        if status >= 300:
            raise urllib.error.HTTPError(request.full_url, status, "", email.message.Message(), Answer(status, text))
        return Answer(status, text)

    def grant(self, method, path, body):
        name = path.split("/")[3].partition("?")[0]
        lease = body.get("leaseId") or path.rpartition("/")[2]
        about = {"key": name, "leaseId": lease}
        if method == "GET":
            return 200, {"key": name, "holders": []}
        if method == "DELETE":
            if self.holders.get(name) == lease:
                del self.holders[name]
            return 204, b""
        if method == "POST" and self.holders.setdefault(name, lease) != lease:
            return 409, dict(about, type=PROBLEMS + "held", retryAfterMs=1)
        return 200 if method == "PUT" else 201, dict(about, token=7)

    def client(self, **options):
        client = Client("http://service", **options)
        client._opener = self
        return client

    def aio(self, **options):
        client = aio.Client("http://service", **options)
        client._client._opener = self
        return client

    def count(self, method):
        return sum(1 for m, _ in self.asked if m == method)


def in_a_child(work):
    """Runs work in a forked process, and returns what it writes."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with os.fdopen(read) as said:
        return said.read()


@unittest.skipUnless(hasattr(os, "fork"), "there are no forks here")
class Fork(unittest.TestCase):
    def test_exit_of_a_child_releases_nothing(self):
        service = Service()

        def child(lease):
            lease.__exit__(SystemExit, SystemExit(0), None)
            lease.__exit__(None, None, None)
            lease.release()
            return service.count("DELETE")

        with service.client().lock("k") as lease:
            self.assertEqual(in_a_child(lambda: child(lease)), "0")
            self.assertTrue(lease.held())
        self.assertEqual(service.count("DELETE"), 1)

    def test_a_child_does_not_hold_the_lease_and_says_why(self):
        def child(lease):
            try:
                lease.check()
            except Lost as end:
                return f"{lease.held()} {lease.remaining()} {end}"

        with Service().client().lock("k") as lease:
            self.assertRegex(in_a_child(lambda: child(lease)), f"^False 0.0 lock 'k': .*process {os.getpid()}")

    def test_a_child_takes_a_lock_that_was_described_before_as_its_own(self):
        service = Service()
        client = service.client()
        lock = client.lock("k")

        def child():
            lock.acquire()
            return f"{lock.id} {lock.held()} {client.owner} {lock._terms['owner']}"

        ident, held, owner, shown = in_a_child(child).split()
        self.assertEqual(held, "True")
        self.assertNotEqual(ident, lock.id)  # two children with one lease id would both get the lock
        self.assertNotEqual(owner, client.owner)  # one identity would enter again where the other is inside
        self.assertEqual(owner, shown)

    def test_a_child_that_ends_while_its_parent_waits_leaves_no_queue(self):
        parent, service = os.getpid(), Service()

        def answer(method, path, body):
            if method == "POST" and os.getpid() == parent:
                said.append(in_a_child(lambda: self.unwound(lock, service)))
            return None

        said = []
        service.answer = answer
        lock = service.client().lock("k")
        lock.acquire().release()
        self.assertEqual(said, ["0"])

    def unwound(self, lock, service):
        lock._leave()
        lock._give_back()
        return service.count("DELETE")

    def test_a_client_for_asyncio_works_in_a_child(self):
        service = Service()
        client = service.aio()

        async def turn():
            async with client.lock("k") as lease:
                return lease.held()

        self.assertTrue(asyncio.run(turn()))
        self.assertEqual(in_a_child(lambda: asyncio.run(asyncio.wait_for(turn(), BOUND))), "True")

    def test_the_file_to_copy_releases_nothing_in_a_child(self):
        lock = single_file()
        service = Service()
        with unittest.mock.patch("urllib.request.urlopen", service.open):
            with lock.Lock("http://service", "k") as lease:
                def child():
                    lease.__exit__(SystemExit, SystemExit(0), None)
                    return f"{service.count('DELETE')} {lease.held()} {lease.remaining()}"

                self.assertEqual(in_a_child(child), "0 False 0.0")
                self.assertTrue(lease.held())
        self.assertEqual(service.count("DELETE"), 1)


class Waits(unittest.TestCase):
    def test_waits_keep_nobody_from_a_try_or_a_nested_lock(self):
        enough = threading.Event()
        self.addCleanup(enough.set)
        many = 80
        waiting = threading.Semaphore(0)

        def answer(method, path, body):
            if method == "POST" and path.endswith("/hot"):
                waiting.release()
                enough.wait(BOUND)

        async def main():
            client = Service(answer).aio()
            waits = [asyncio.create_task(client.lock("hot").acquire()) for _ in range(many)]
            await asyncio.to_thread(lambda: [waiting.acquire(timeout=BOUND) for _ in range(many)])
            async with client.lock("outer", wait=2):
                async with client.lock("nested", wait=2), await client.try_lock("free") as lease:
                    self.assertTrue(lease.held())
            await client.inspect("free")
            for wait in waits:
                wait.cancel()
            enough.set()
            await asyncio.gather(*waits, return_exceptions=True)

        asyncio.run(asyncio.wait_for(main(), BOUND))

    def test_a_grant_after_a_cancellation_is_given_back_without_the_loop(self):
        service, asked, enough = Service(), threading.Event(), threading.Event()
        released = threading.Event()

        def answer(method, path, body):
            if method == "POST":
                asked.set()
                enough.wait(BOUND)
            if method == "DELETE" and enough.is_set():
                released.set()

        service.answer = answer

        async def main():
            wait = asyncio.create_task(service.aio().lock("k").acquire())
            await asyncio.to_thread(asked.wait, BOUND)
            wait.cancel()
            await asyncio.gather(wait, return_exceptions=True)

        asyncio.run(asyncio.wait_for(main(), BOUND))
        enough.set()
        self.assertTrue(released.wait(BOUND))


def single_file():
    """examples/clients/lock.py, as a module."""
    path = os.path.join(HERE, "..", "..", "..", "examples", "clients", "lock.py")
    spec = importlib.util.spec_from_file_location("lock", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    unittest.main()
