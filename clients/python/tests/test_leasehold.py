"""Run against a service: LEASEHOLD_URL is its address, LEASEHOLD_PID its process."""

import asyncio
import contextlib
import http.server
import os
import signal
import sys
import threading
import time
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))

import leasehold
from leasehold import Client, Held, Lost, Refused, Unavailable, aio

URL = os.environ["LEASEHOLD_URL"]
PID = int(os.environ["LEASEHOLD_PID"])


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
        status, _ = self.client._ask("POST", self.client._path(self.name) + ":break", {"leaseId": holder, "reason": reason}, 10, holder)
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
        again = self.client.try_lock(self.name)
        self.assertGreater(again.token, lease.token)
        again.release()
        again.release()  # of no effect

    def test_wait_ends_in_time_and_leaves_the_queue(self):
        with self.client.lock(self.name):
            with self.assertRaises(Held):
                self.client.lock(self.name, wait=0.3).acquire()
            self.waiting(0)

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

    def test_readers_and_places(self):
        with self.client.lock(self.name, shared=True), self.client.lock(self.name, shared=True):
            with self.assertRaises(Held):
                self.client.try_lock(self.name)
        places = self.name + "/places"
        with self.client.lock(places, limit=3, permits=2), self.client.lock(places, limit=3):
            with self.assertRaises(Held):
                self.client.try_lock(places, limit=3)
            with self.assertRaises(Refused) as refused:
                self.client.try_lock(places, limit=4)
            self.assertTrue(refused.exception.type.endswith("#mismatch"))

    def test_reentrant_by_owner(self):
        with self.client.lock(self.name, reentrant=True) as outer, self.client.lock(self.name, reentrant=True) as inner:
            self.assertEqual(outer.token, inner.token)

    def test_renewal_keeps_it(self):
        with self.client.lock(self.name, ttl=5) as lease:
            time.sleep(7)
            lease.check()

    def test_break_is_a_loss(self):
        told = threading.Event()
        with self.assertRaises(Lost) as lost:
            with self.client.lock(self.name, ttl=9, on_lost=told.set):
                self.break_it("maintenance")
                self.assertTrue(told.wait(30))
        self.assertIn("maintenance", str(lost.exception))

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
            with self.assertRaises(Lost):
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
            with self.assertRaises(Unavailable):
                client.lock("x", wait=wait).acquire()


class Proxy(Base):
    """A proxy that loses the first answer of each request, or answers in the service's place."""

    def serve(self, spoil):
        url, spoilt = URL, set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def relay(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer, kind = relay(url + self.path, self.command, body)
                key = (self.command, self.path)
                if key not in spoilt:
                    spoilt.add(key)
                    return spoil(self)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = relay

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

        self.run_async(main)

    def test_many_take_turns(self):
        inside = most = turns = 0

        async def one(client):
            nonlocal inside, most, turns
            async with client.lock(self.name):
                inside += 1
                most = max(most, inside)
                turns += 1
                await asyncio.sleep(0.01)
                inside -= 1

        async def main(client):
            await asyncio.gather(*(one(client) for _ in range(20)))

        self.run_async(main)
        self.assertEqual((most, turns), (1, 20))

    def test_loss_cancels_the_body(self):
        async def main(client):
            with self.assertRaises(Lost) as lost:
                async with client.lock(self.name, ttl=9):
                    await asyncio.to_thread(self.break_it, "maintenance")
                    await asyncio.sleep(60)
            self.assertIn("maintenance", str(lost.exception))
            await asyncio.sleep(0)  # is not cancelled any more

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
