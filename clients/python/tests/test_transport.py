"""Run without a service: a transport in memory answers."""

import asyncio
import email.message
import http.client
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
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "src"))

from leasehold import Client, Lost, Unavailable, aio

BOUND = 60  # a test fails after it only if something hangs
PROBLEMS = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#"


class Answer(io.BytesIO):
    def __init__(self, status, body):
        super().__init__(body if isinstance(body, bytes) else json.dumps(body).encode())
        self.status = status
        self.headers = email.message.Message()


VERBS = {
    ("POST", "/v1/locks"): "acquire",
    ("PUT", "/v1/leases"): "renew",
    ("POST", "/v1/leases:release"): "release",
    ("GET", "/v1/locks:inspect"): "look",
}


class Service:
    """Grants every lock that nobody has, and notes the requests by verb and name. answer may answer in its place: with
    a tuple of status and body, an exception, or None."""

    def __init__(self, answer=lambda verb, name, body: None):
        self.answer = answer
        self.asked = []
        self.holders = {}

    def open(self, request, data=None, timeout=None):
        body = json.loads(data) if data else {}
        url = urllib.parse.urlsplit(request.full_url)
        verb = VERBS[request.get_method(), url.path]
        name = body["key"] if data else dict(urllib.parse.parse_qsl(url.query))["name"]
        self.asked.append((verb, name))
        got = self.answer(verb, name, body)
        if got is None:
            got = self.grant(verb, name, body)
        if isinstance(got, BaseException):
            raise got
        status, text = got
        if status >= 300:
            raise urllib.error.HTTPError(request.full_url, status, "", email.message.Message(), Answer(status, text))
        return Answer(status, text)

    def grant(self, verb, name, body):
        if verb == "look":
            return 200, {"key": name, "holders": []}
        lease = body["leaseId"]
        about = {"key": name, "leaseId": lease}
        if verb == "release":
            if self.holders.get(name) == lease:
                del self.holders[name]
            return 200, about
        if verb == "acquire" and self.holders.setdefault(name, lease) != lease:
            return 409, dict(about, type=PROBLEMS + "held", retryAfterMs=1)
        return 200 if verb == "renew" else 201, dict(about, token=7)

    def client(self, **options):
        client = Client("http://service", **options)
        client._opener = self
        return client

    def aio(self, **options):
        client = aio.Client("http://service", **options)
        client._client._opener = self
        return client

    def count(self, verb):
        return sum(1 for v, _ in self.asked if v == verb)


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
            return service.count("release")

        with service.client().lock("k") as lease:
            self.assertEqual(in_a_child(lambda: child(lease)), "0")
            self.assertTrue(lease.held())
        self.assertEqual(service.count("release"), 1)

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
            lease = lock.acquire()
            return f"{lease.held()} {client.owner} {lease._terms['owner']}"

        held, owner, shown = in_a_child(child).split()
        self.assertEqual(held, "True")
        self.assertNotEqual(owner, client.owner)  # one identity would enter again where the other is inside
        self.assertEqual(owner, shown)

    def test_a_child_that_ends_while_its_parent_waits_leaves_no_queue(self):
        parent, service = os.getpid(), Service()

        def answer(verb, name, body):
            if verb == "acquire" and os.getpid() == parent:
                said.append(in_a_child(lambda: self.unwound(lock, service)))
            return None

        said = []
        service.answer = answer
        lock = service.client().lock("k")._lease(None)
        lock._acquire().release()
        self.assertEqual(said, ["0"])

    def unwound(self, lock, service):
        lock._leave()
        lock._give_back()
        return service.count("release")

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
                    return f"{service.count('release')} {lease.held()} {lease.remaining()}"

                self.assertEqual(in_a_child(child), "0 False 0.0")
                self.assertTrue(lease.held())
        self.assertEqual(service.count("release"), 1)


class Waits(unittest.TestCase):
    def test_waits_keep_nobody_from_a_try_or_a_nested_lock(self):
        enough = threading.Event()
        self.addCleanup(enough.set)
        many = 80
        waiting = threading.Semaphore(0)

        def answer(verb, name, body):
            if verb == "acquire" and name == "hot":
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

        def answer(verb, name, body):
            if verb == "acquire":
                asked.set()
                enough.wait(BOUND)
            if verb == "release" and enough.is_set():
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


class Keeper(unittest.TestCase):
    def test_no_answer_to_a_renewal_ends_the_renewals(self):
        spoilt = [
            b'{"leaseId": "', b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b'"text"', (410, b"[]"), (410, {"type": 5}), (500, b""),
            http.client.IncompleteRead(b"{"), http.client.BadStatusLine("x"), ConnectionResetError(), ssl.SSLError("eof"),
            RuntimeError("of the interpreter"), MemoryError(),
        ]  # fmt: skip
        rest, well = list(spoilt), threading.Event()

        def answer(verb, name, body):
            if verb == "renew":
                if rest:
                    bad = rest.pop()
                    return (200, bad) if isinstance(bad, bytes) else bad
                well.set()

        client = Service(answer).client()
        with mock_pauses(), client.lock("k", ttl=600) as lease:
            self.assertTrue(well.wait(BOUND))
            self.assertTrue(lease._keeper.is_alive())
            lease.check()

    def test_on_lost_is_called_while_a_renewal_hangs(self):
        told, enough = threading.Event(), threading.Event()
        self.addCleanup(enough.set)

        def answer(verb, name, body):
            if verb == "renew":
                enough.wait(BOUND)

        lease = Service(answer).client().lock("k", ttl=0.6, on_lost=told.set).acquire()
        self.assertTrue(told.wait(BOUND / 2))  # and the renewal has not been answered
        with self.assertRaisesRegex(Lost, "not renewed in time"):
            lease.check()

    def test_a_failure_of_on_lost_reaches_nobody_who_looks(self):
        told = threading.Event()

        def on_lost():
            told.set()
            raise ZeroDivisionError

        with unittest.mock.patch("threading.excepthook") as hook:
            lease = Service().client().lock("k", on_lost=on_lost).acquire()
            lease._deadline = 0.0
            self.assertFalse(lease.held())
            self.assertFalse(lease.held())
            with self.assertRaises(Lost):
                lease.release()
            self.assertTrue(told.wait(BOUND))
            lease._watcher.join(BOUND)
            self.assertIs(hook.call_args.args[0].exc_type, ZeroDivisionError)

    def test_the_file_to_copy_goes_on_renewing_and_sets_lost_in_time(self):
        lock = single_file()
        failures, well, enough = [RuntimeError("x"), (200, b"[]"), (200, b"null"), (410, b"[]")], threading.Event(), threading.Event()
        self.addCleanup(enough.set)

        def answer(verb, name, body):
            if verb == "renew":
                if failures:
                    return failures.pop()
                well.set()
                enough.wait(BOUND)

        with unittest.mock.patch("urllib.request.urlopen", Service(answer).open):
            with self.assertRaises(lock.Lost):
                with lock.Lock("http://service", "k", ttl=3) as lease:
                    self.assertTrue(well.wait(BOUND))
                    self.assertTrue(lease.lost.wait(BOUND / 2))  # and the renewal has not been answered
                    enough.set()

    def test_the_file_to_copy_holds_nothing_before_and_after(self):
        lock = single_file()
        with unittest.mock.patch("urllib.request.urlopen", Service().open):
            lease = lock.Lock("http://service", "k")
            self.assertFalse(lease.held())
            self.assertEqual(lease.remaining(), 0.0)
            with lease:
                self.assertTrue(lease.held())
            self.assertFalse(lease.held())
            self.assertEqual(lease.remaining(), 0.0)
            self.assertFalse(lease.lost.is_set())


class Names(unittest.TestCase):
    """A program in between that changes names: what is asked of ./data arrives as data."""

    def setUp(self):
        self.service = Service()
        self.service.answer = lambda verb, name, body: self.service.grant(verb, name.replace("./", ""), body)

    def test_an_answer_for_another_name_is_an_error_and_undone(self):
        client = self.service.client()
        for wait in (0, 5, None):
            with self.assertRaisesRegex(Unavailable, "http://service .*answers for lock 'data'"):
                client.lock("./data", wait=wait).acquire()
            self.assertEqual(self.service.holders, {})
        with self.assertRaisesRegex(Unavailable, "answers for lock 'data'"):
            client.inspect("./data")
        with client.lock("data"), self.assertRaisesRegex(Unavailable, "answers for lock 'data'"):
            client.try_lock("./data")

    def test_the_file_to_copy_reports_and_undoes_it(self):
        lock = single_file()
        with unittest.mock.patch("urllib.request.urlopen", self.service.open):
            with self.assertRaisesRegex(lock.Unavailable, "answers for lock 'data'"):
                lock.Lock("http://service", "./data").__enter__()
        self.assertEqual(self.service.holders, {})


def mock_pauses():
    """Renewals follow one another without a pause."""
    return unittest.mock.patch("leasehold._client._pause", lambda ttl, confirmed: 0.001)


class Causes(unittest.TestCase):
    def failure(self, error, wait=20):
        """What is raised, after how many requests, when each fails with the error."""
        service = Service(lambda *_: error)
        with self.assertRaises(Unavailable) as raised:
            service.client(max_outage=0.2).lock("k", wait=wait).acquire()
        return raised.exception, service

    def test_what_time_does_not_heal_is_raised_at_once(self):
        untrusted = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")
        for error in (
            urllib.error.URLError(untrusted),
            untrusted,
            urllib.error.URLError(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")),
            http.client.InvalidURL("nonnumeric port"),
            (400, b"Client sent an HTTP request to an HTTPS server."),
        ):
            with self.subTest(error=error):
                raised, service = self.failure(error)
                self.assertEqual(service.asked, [("acquire", "k")])
                self.assertIn("http://service", str(raised))

    def test_the_cause_is_in_the_message(self):
        for error, text in (
            (urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")), "Connection refused"),
            (http.client.RemoteDisconnected("closed"), "closed"),
            ((404, b"<html>"), "404.*path of a proxy"),
            ((301, b""), "301"),
            ((200, b"<html>"), "not that of a leasehold service"),
            ((503, {"type": PROBLEMS + "unavailable", "detail": "the store is down"}), "the store is down"),
        ):
            for wait in (0, 20):
                with self.subTest(error=error, wait=wait):
                    raised, _ = self.failure(error, wait)
                    self.assertRegex(str(raised), f"lock 'k': http://service.*{text}")

    def test_a_cause_is_chained(self):
        error = ConnectionRefusedError(111, "Connection refused")
        self.assertIs(self.failure(urllib.error.URLError(error))[0].__cause__, error)

    def test_a_token_that_no_header_can_have_is_refused_and_not_shown(self):
        for bearer in ("secret\n", "sec\u20acret", "secret\r\nX: y"):
            with self.assertRaises(ValueError) as wrong:
                Client("http://service", bearer=bearer)
            self.assertNotIn("secret", str(wrong.exception))

    def test_a_request_waits_no_longer_than_an_outage_may_last(self):
        service, limits = Service(lambda *_: TimeoutError("timed out")), []
        opened = service.open

        def open(request, data=None, timeout=None):
            limits.append(timeout)
            return opened(request, data, timeout)

        service.open = open
        with self.assertRaises(Unavailable), unittest.mock.patch("leasehold._client._from_a_signal", lambda *_: False):
            service.client(max_outage=0.2).lock("k").acquire()
        self.assertLess(max(limits), 6)

    @unittest.skipUnless(hasattr(signal, "setitimer"), "there are no alarms here")
    def test_an_alarm_of_the_program_ends_the_wait(self):
        service = Service()

        def ring(*_):
            raise TimeoutError("alarm of the program")

        def answer(verb, name, body):
            if verb == "acquire":
                signal.raise_signal(signal.SIGALRM)

        for wrap in (lambda call: call, wrapped):
            service.answer = wrap(answer)
            self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, ring))
            with self.assertRaisesRegex(TimeoutError, "alarm of the program"):
                service.client().lock("k", wait=8).acquire()
            self.assertEqual(service.holders, {})
        self.assertEqual(service.count("release"), 2)


def wrapped(call):
    """As urllib does with what is raised while it connects."""

    def outer(*args):
        try:
            return call(*args)
        except OSError as error:
            raise urllib.error.URLError(error) from error

    return outer


def single_file():
    """examples/clients/lock.py, as a module."""
    path = os.path.join(HERE, "..", "..", "..", "examples", "clients", "lock.py")
    spec = importlib.util.spec_from_file_location("lock", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    unittest.main()
