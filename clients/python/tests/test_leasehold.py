"""Run against a service: LEASEHOLD_URL is its address, LEASEHOLD_PID its process."""

import asyncio
import contextlib
import http.server
import inspect
import os
import posixpath
import signal
import sys
import threading
import time
import unittest
import unittest.mock
import urllib.parse
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))

import leasehold
from leasehold import Client, Held, Lost, Refused, Unavailable, aio

if not os.environ.get("LEASEHOLD_URL") or not os.environ.get("LEASEHOLD_PID"):
    sys.exit("the tests need a service that they may stop: set LEASEHOLD_URL to its address and LEASEHOLD_PID to its process")
URL = os.environ["LEASEHOLD_URL"]
PID = int(os.environ["LEASEHOLD_PID"])


class Signatures(unittest.TestCase):
    def parameters(self, function, *left_out):
        found = inspect.signature(function).parameters
        self.assertNotIn(inspect.Parameter.VAR_KEYWORD, [p.kind for p in found.values()])
        return [p for name, p in found.items() if name not in left_out]

    def test_type_checkers_see_the_same_options_everywhere(self):
        self.assertEqual(self.parameters(aio.Client), self.parameters(Client))
        self.assertEqual(self.parameters(aio.Client.lock), self.parameters(Client.lock))
        for client in (Client, aio.Client):
            self.assertEqual(self.parameters(client.try_lock), self.parameters(Client.lock, "wait"))


def eventually(ok, what):
    end = time.monotonic() + 30
    while not ok():
        if time.monotonic() > end:
            raise AssertionError("not within 30 s: " + what)
        time.sleep(0.02)


class Base(unittest.TestCase):
    def setUp(self):
        self.client = Client(URL)
        self.name = f"{self.id()}/{uuid.uuid4().hex}"

    def waiting(self, n):
        eventually(lambda: len(self.client.inspect(self.name)["waiters"]) == n, f"{n} waiters")

    def break_it(self, reason):
        holder = self.client.inspect(self.name)["holders"][0]["leaseId"]
        body = {"key": self.name, "leaseId": holder, "reason": reason}
        status, _ = self.client._ask("POST", "/v1/locks:break", body, 10, self.name, holder)
        self.assertEqual(status, 200)

    @contextlib.contextmanager
    def frozen(self):
        os.kill(PID, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(PID, signal.SIGCONT)


class Sync(Base):
    def test_lock_holds_and_releases(self):
        with self.client.lock(self.name) as lease:
            self.assertGreater(lease.token, 0)
            self.assertTrue(lease.held())
            lease.check()
            with self.assertRaises(Held) as held:
                self.client.try_lock(self.name)
            self.assertEqual(held.exception.holders[0]["owner"], self.client.owner)
        self.assertFalse(lease.held())
        self.assertEqual(lease.remaining(), 0)
        with self.assertRaises(Lost):
            lease.check()
        again = self.client.try_lock(self.name)
        self.assertGreater(again.token, lease.token)
        again.release()
        again.release()  # of no effect

    def test_a_with_statement_gives_back_what_was_taken_before(self):
        with self.client.try_lock(self.name) as lease:
            self.assertTrue(lease.held())
            with self.assertRaises(RuntimeError), lease:  # the inner one would release it
                pass
            lease.check()
        self.assertEqual(self.client.inspect(self.name)["holders"], [])

    def test_a_with_statement_does_not_begin_after_a_release_or_a_loss(self):
        released = self.client.try_lock(self.name)
        released.release()
        lost = self.client.lock(self.name, ttl=9).acquire()
        self.break_it("maintenance")
        eventually(lambda: not lost.held(), "the loss")
        for lease in (released, lost):
            with self.assertRaises(Lost), lease:
                self.fail("the body began")

    def test_a_lock_can_be_used_again(self):
        lock = self.client.lock(self.name, ttl=9)
        with lock as first:
            pass
        with self.assertRaises(Lost), lock:
            self.break_it("maintenance")
            self.client.lock(self.name).acquire().release()  # waits for the end of the broken lease
        with lock as second, self.assertRaises(Held):
            self.client.try_lock(self.name)
        self.assertGreater(second.token, first.token)
        third = lock.acquire()
        self.assertNotIn(third.id, (first.id, second.id))
        third.release()

    def test_threads_share_a_lock(self):
        lock, inside, most = self.client.lock(self.name), 0, 0

        def turns():
            nonlocal inside, most
            for _ in range(3):
                with lock:
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.01)
                    inside -= 1

        threads = [threading.Thread(target=turns) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual((most, inside), (1, 0))
        self.assertEqual(self.client.inspect(self.name)["holders"], [])

    def test_repr_shows_name_and_state_and_no_secret(self):
        lock = Client(URL, bearer="secret").lock(self.name)
        self.assertEqual(repr(lock), f"<leasehold.Lock {self.name!r} of {URL}>")
        self.assertNotIn("secret", repr(lock._client))
        with self.client.lock(self.name) as lease:
            self.assertRegex(repr(lease), f"<leasehold.Lease '{self.name}', token {lease.token}: held for another [0-9.]+ s>")
        self.assertIn(": it was released>", repr(lease))

    def test_wait_ends_in_time_and_leaves_the_queue(self):
        with self.client.lock(self.name):
            with self.assertRaises(Held) as held:
                self.client.lock(self.name, wait=0.3).acquire()
            self.waiting(0)
        self.assertEqual([h["owner"] for h in held.exception.holders], [self.client.owner])
        self.assertIn("held by " + self.client.owner, str(held.exception))

    def test_waiter_gets_the_lock(self):
        first = self.client.try_lock(self.name)
        tokens = []

        def wait():
            with self.client.lock(self.name) as lease:
                tokens.append(lease.token)

        waiter = threading.Thread(target=wait)
        waiter.start()
        self.waiting(1)
        first.release()
        waiter.join(30)
        self.assertGreater(tokens[0], first.token)

    def test_every_option_reaches_the_service(self):
        terms = {"ttl": 40, "shared": True, "limit": 5, "permits": 2, "reentrant": True, "labels": {"of": "a test"}}
        lock = self.client.lock(self.name, **terms)
        self.assertEqual(aio.Client(URL).lock(self.name, **terms)._inner._terms, lock._terms)
        expected = {**lock._terms, "owner": self.client.owner}
        with self.client.try_lock(self.name, **terms) as lease:
            self.assertEqual(lease._terms, expected)

        async def main(client):
            async with await client.try_lock(self.name, **terms) as lease:
                self.assertEqual(lease._inner._terms, expected)

        asyncio.run(main(aio.Client(URL)))

    def test_readers_and_places(self):
        with self.client.lock(self.name, shared=True), self.client.lock(self.name, shared=True):
            with self.assertRaises(Held):
                self.client.try_lock(self.name)
        places = self.name + "/places"
        with self.client.lock(places, limit=3, permits=2) as two, self.client.lock(places, limit=3) as one:
            self.assertEqual((two.places, one.places), ([0, 1], [2]))
            with self.assertRaises(Held):
                self.client.try_lock(places, limit=3)
            with self.assertRaises(Refused) as refused:
                self.client.try_lock(places, limit=4)
            self.assertTrue(refused.exception.type.endswith("#mismatch"))

    def test_reentrant_by_owner(self):
        with self.client.lock(self.name, reentrant=True) as outer, self.client.lock(self.name, reentrant=True) as inner:
            self.assertEqual(outer.token, inner.token)

    def test_renewal_keeps_it(self):
        with self.client.lock(self.name, ttl=12) as lease:
            time.sleep(13)
            lease.check()

    def test_a_holder_learns_that_others_wait(self):
        with self.client.lock(self.name, ttl=3) as lease:
            self.assertFalse(lease.wanted)
            waiter = threading.Thread(target=lambda: self.client.lock(self.name).acquire().release())
            waiter.start()
            eventually(lambda: lease.wanted, "the holder knows of the waiter")
        waiter.join()

    def test_break_is_a_loss(self):
        told = threading.Event()
        with self.assertRaises(Lost) as lost:
            with self.client.lock(self.name, ttl=9, on_lost=told.set):
                self.break_it("maintenance")
                self.assertTrue(told.wait(30))
        self.assertIn("the lease was broken: maintenance", str(lost.exception))

    def test_a_lease_that_was_released_by_somebody_else_was_lost(self):
        with self.assertRaisesRegex(Lost, "the lease was lost: .*released"):
            with self.client.lock(self.name, ttl=6) as lease:
                self.client._ask("POST", "/v1/leases:release", {"key": self.name, "leaseId": lease.id}, 10, self.name, lease.id)
                eventually(lambda: not lease.held(), "the loss")

    def test_a_loss_before_the_lock_was_handed_out_is_told_by_acquire_alone(self):
        test, told = self, []

        class Slow(Client):
            def _ask(self, method, path, *request):
                answer = super()._ask(method, path, *request)
                if path == "/v1/locks":
                    test.break_it("maintenance")
                    time.sleep(1)
                return answer

        with self.assertRaises(Unavailable):
            Slow(URL).lock(self.name, ttl=2, on_lost=lambda: told.append(True)).acquire()
        self.assertEqual(told, [])

    def test_a_loss_may_be_answered_by_a_release(self):
        released = []

        def release():
            try:
                lease.release()
            except Lost as end:
                released.append(end)

        with self.assertRaises(Lost):
            with self.client.lock(self.name, ttl=9, on_lost=release) as lease:
                self.break_it("maintenance")
                eventually(lambda: released, "the release")

    def test_error_of_the_work_is_not_hidden_by_a_loss(self):
        with self.assertRaises(ZeroDivisionError):
            with self.client.lock(self.name, ttl=9) as lease:
                self.break_it("maintenance")
                eventually(lambda: not lease.held(), "the loss")
                1 / 0

    def test_service_that_hangs_is_a_loss_by_the_clock(self):
        lease = self.client.lock(self.name, ttl=2).acquire()
        with self.frozen():
            eventually(lambda: not lease.held(), "the end of the lease")
            with self.assertRaisesRegex(Lost, "the lease was lost: .*not renewed in time"):
                lease.check()
        with self.assertRaises(Lost):
            lease.release()

    def test_waits_through_an_outage(self):
        os.kill(PID, signal.SIGSTOP)
        back = threading.Timer(1.0, os.kill, (PID, signal.SIGCONT))
        back.start()
        with self.client.lock(self.name, wait=60) as lease:
            self.assertTrue(lease.held())
        back.join()

    def test_unavailable(self):
        client = Client("http://127.0.0.1:1", max_outage=0.3)
        for wait in (0, 5, None):
            with self.assertRaisesRegex(Unavailable, "http://127.0.0.1:1 does not answer: .*refused"):
                client.lock("x", wait=wait).acquire()

    def test_what_is_wrong_with_a_call_is_said_at_once(self):
        for url in ("", "127.0.0.1:8080", "redis://h", "http://", "http://h?token=secret", "http://:secret@h"):
            with self.assertRaises(ValueError) as wrong:
                Client(url)
            self.assertNotIn("secret", str(wrong.exception))
        with self.assertRaisesRegex(TypeError, "needs the URL of a service, .* and not None"):
            Client(os.environ.get("LEASEHOLD_URL_OF_NOTHING"))
        for wrong in ({"permits": 2}, {"ttl": 0}, {"wait": -1}):
            with self.assertRaisesRegex(ValueError, f"^lock '{self.name}': "):
                self.client.lock(self.name, **wrong)


class Proxy(Base):
    """A proxy that loses the first answer of each request, or answers in the service's place."""

    def serve(self, spoil, paths=("/v1/locks:inspect", "/v1/locks", "/v1/leases", "/v1/leases:release")):
        url, spoilt = URL, set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def relay(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path, mark, query = self.path.partition("?")
                cleaned = posixpath.normpath(urllib.parse.unquote(path))  # as many proxies do
                status, answer, kind = relay(url + cleaned + mark + query, self.command, body)
                key = (self.command, self.path)
                if path in paths and key not in spoilt:
                    spoilt.add(key)
                    return spoil(self)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = relay

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return Client(f"http://127.0.0.1:{server.server_port}")

    def test_lost_answers_are_asked_for_again(self):
        client = self.serve(lambda handler: handler.connection.close())
        with client.lock(self.name) as lease:
            self.assertTrue(lease.held())
        self.assertEqual(self.client.inspect(self.name)["holders"], [])

    def test_no_name_meets_another_one(self):
        client = self.serve(lambda handler: None, paths=())
        names = [".", "..", "./data", "data", "a/../b", "b", "a//b", "a/b", "a/b/", "a%2Fb", "/", "x:break", "?", "#", "é"]
        leases = [client.try_lock(name) for name in names]
        for name, lease in zip(names, leases):
            self.assertEqual(client.inspect(name)["holders"][0]["leaseId"], lease.id)
            self.assertTrue(lease._renew())
            lease.release()
            self.assertEqual(client.inspect(name)["holders"], [])

    def test_answers_that_are_cut_off_or_garbage_are_asked_for_again(self):
        def cut(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"leaseId": "')

        for spoil in (cut, lambda handler: handler.wfile.write(b"no HTTP\r\n\r\n")):
            client = self.serve(spoil)
            with client.lock(self.name, ttl=12) as lease:
                first = lease._deadline
                eventually(lambda: lease._deadline > first, "a renewal whose first answer was spoilt")
                lease.check()
            self.assertEqual(self.client.inspect(self.name)["holders"], [])

    def test_a_renewal_that_hangs_does_not_delay_the_loss(self):
        told, enough = threading.Event(), threading.Event()

        def drip(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "1000000")
            handler.end_headers()
            with contextlib.suppress(OSError):
                while not enough.wait(0.05):
                    handler.wfile.write(b" ")

        self.addCleanup(enough.set)
        lease = self.serve(drip, paths=("/v1/leases",)).lock(self.name, ttl=6, on_lost=told.set).acquire()
        self.assertTrue(told.wait(60))
        with self.assertRaises(Lost):
            lease.release()

    def test_an_interrupted_acquire_gives_back_what_it_asked_for(self):
        class Interrupted(BaseException):
            pass

        def interrupt(*_):
            raise Interrupted

        def granted(handler):  # and the answer does not arrive
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            enough.wait(60)
            handler.close_connection = True

        enough = threading.Event()
        self.addCleanup(enough.set)
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, interrupt))
        with self.assertRaises(Interrupted):
            self.serve(granted, paths=("/v1/locks",)).lock(self.name, ttl=600).acquire()
        eventually(lambda: not self.client.inspect(self.name)["holders"], "the lock is free")

    def test_a_lease_without_its_threads_is_not_held(self):
        with unittest.mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            with self.assertRaisesRegex(RuntimeError, "can't start new thread"):
                self.client.try_lock(self.name, ttl=600)
        self.assertFalse(self.client.inspect(self.name)["holders"])

    def test_a_look_that_hangs_does_not_delay_the_end_of_a_wait(self):
        enough = threading.Event()
        self.addCleanup(enough.set)
        client = self.serve(lambda _: enough.wait(60), paths=("/v1/locks:inspect",))
        with self.client.lock(self.name):
            began = time.monotonic()
            with self.assertRaisesRegex(Held, "held by others"):
                client.lock(self.name, wait=0.3).acquire()
            self.assertLess(time.monotonic() - began, 20)

    def test_a_refusal_after_a_lost_answer_leaves_nothing_on_its_way(self):
        client = self.serve(lambda handler: handler.connection.close())
        with self.client.lock(self.name):
            lease = client.lock(self.name, wait=0)._lease(None)
            with self.assertRaises(Held):
                lease._acquire()
        body = {"key": self.name, "leaseId": lease.id}
        status, _ = self.client._ask("POST", "/v1/locks", body, 10, self.name, lease.id)
        self.assertEqual(status, 410)  # if the request arrives late

    def test_a_break_is_a_loss_also_if_its_first_answer_is_lost(self):
        client = self.serve(lambda handler: handler.connection.close())
        with self.assertRaisesRegex(Lost, "the lease was broken: maintenance"):
            with client.lock(self.name):
                self.break_it("maintenance")

    def test_a_proxys_own_answer_says_nothing(self):
        def page(handler):
            handler.send_response(404)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        client = self.serve(page)
        with client.lock(self.name) as lease:
            self.assertTrue(lease.held())
        self.assertEqual(self.client.inspect(self.name)["holders"], [])


def relay(url, method, body):
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, method=method, data=body or None)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read(), response.headers.get("Content-Type", "")
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code, problem.read(), problem.headers.get("Content-Type", "")


class Async(Base):
    def run_async(self, main):
        asyncio.run(asyncio.wait_for(main(aio.Client(URL)), 60))

    def test_lock_holds_and_releases(self):
        async def main(client):
            async with client.lock(self.name) as lease:
                self.assertGreater(lease.token, 0)
                with self.assertRaises(Held):
                    await client.try_lock(self.name)
            await (await client.try_lock(self.name)).release()
            async with await client.try_lock(self.name) as lease:
                lease.check()
                with self.assertRaises(RuntimeError):
                    async with lease:  # the inner one would release it
                        pass
                lease.check()
            self.assertFalse(lease.held())
            with self.assertRaises(Lost):
                async with lease:
                    self.fail("the body began")

        self.run_async(main)

    def test_many_take_turns(self):
        inside = most = turns = 0

        async def one(lock):
            nonlocal inside, most, turns
            async with lock as lease:
                self.assertRegex(repr(lease), "^<leasehold.aio.Lease .*held")
                inside += 1
                most = max(most, inside)
                turns += 1
                await asyncio.sleep(0.01)
                inside -= 1

        async def main(client):
            lock = client.lock(self.name)
            await asyncio.gather(*(one(lock) for _ in range(20)))
            self.assertEqual(lock._entered, {})

        self.run_async(main)
        self.assertEqual((most, turns), (1, 20))

    def test_loss_cancels_the_body(self):
        async def main(client):
            with self.assertRaises(Lost) as lost:
                async with client.lock(self.name, ttl=9):
                    await asyncio.to_thread(self.break_it, "maintenance")
                    await asyncio.sleep(60)
            self.assertIn("the lease was broken: maintenance", str(lost.exception))
            await asyncio.sleep(0)  # is not cancelled any more

        self.run_async(main)

    def test_a_loss_may_be_answered_by_a_release(self):
        releases = []

        async def main(client):
            def release():
                releases.append(asyncio.ensure_future(lease.release()))

            with self.assertRaises(Lost):
                async with client.lock(self.name, ttl=9, on_lost=release) as lease:
                    await asyncio.to_thread(self.break_it, "maintenance")
                    try:
                        await asyncio.sleep(60)
                    finally:
                        await asyncio.gather(*releases, return_exceptions=True)

        self.run_async(main)

    def test_body_does_not_begin_after_a_loss(self):
        async def main(client):
            lock = client.lock(self.name, ttl=9)
            acquire = lock.acquire

            async def acquire_slowly():  # as in a loop that is busy elsewhere
                lease = await acquire()
                await asyncio.to_thread(self.break_it, "maintenance")
                await lease.lost.wait()
                return lease

            lock.acquire = acquire_slowly
            began = False
            with self.assertRaises(Lost):
                async with lock:
                    began = True
                    await asyncio.sleep(10)
            self.assertFalse(began)

        self.run_async(main)

    def test_cancelled_wait_leaves_nothing(self):
        async def main(client):
            first = await client.try_lock(self.name)
            waiter = asyncio.create_task(client.lock(self.name).acquire())
            await asyncio.to_thread(self.waiting, 1)
            waiter.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiter
            await asyncio.to_thread(self.waiting, 0)
            await first.release()
            await asyncio.to_thread(
                eventually, lambda: not self.client.inspect(self.name)["holders"], "the lock is free"
            )

        self.run_async(main)


if __name__ == "__main__":
    unittest.main()
