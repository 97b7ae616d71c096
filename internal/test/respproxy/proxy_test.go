package respproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/leaktest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

func TestRules_LoseRequestsAndReplies(t *testing.T) {
	for name, row := range map[string]struct {
		action  respproxy.Action
		send    string
		replies string // before the connection ends or falls silent
		ends    bool
		keys    string // on the server
	}{
		// The reply to GET would be taken for the reply to SET.
		"drop the reply":        {respproxy.DropReply, "SET a 1|SET b 2|GET a", "+OK", false, "[a b]"},
		"drop the request":      {respproxy.DropRequest, "SET a 1|SET b 2|SET c 3", "+OK", false, "[a]"},
		"cut before":            {respproxy.Cut, "SET b 2", "", true, "[]"},
		"cut after the request": {respproxy.CutAfterForward, "PING|SET b 2", "+PONG", true, "[b]"},
	} {
		t.Run(name, func(t *testing.T) {
			server, proxy := start(t)
			rule := proxy.Add(row.action, 1, respproxy.Command("SET", "b"))
			conn := dial(t, proxy)
			conn.send(row.send)
			conn.expect(strings.Fields(row.replies)...)
			rule.WaitFired(t, 1)
			if row.ends {
				conn.expectEnd()
			} else {
				conn.expectSilence()
			}
			if keys := fmt.Sprint(server.Keys(t)); keys != row.keys {
				t.Errorf("keys %s, want %s", keys, row.keys)
			}
		})
	}
}

// A held request arrives late even if its client has gone.
func TestHold_KeepsTheRequestAndThoseBehindIt(t *testing.T) {
	server, proxy := start(t)
	held := proxy.Add(respproxy.Hold, 0, respproxy.Command("SET", "b"))
	conn, other := dial(t, proxy), dial(t, proxy)

	conn.send("SET a 1|SET b 2|LPUSH k v")
	conn.expect("+OK")
	<-held.Fired()
	other.send("SET d 4")
	other.expect("+OK")
	if keys := server.Keys(t); fmt.Sprint(keys) != "[a d]" {
		t.Errorf("keys %q while b is held, want a and d", keys)
	}
	conn.Close()
	held.Release()
	if _, err := server.Client().BLPop(t.Context(), 10*time.Second, "k").Result(); err != nil {
		t.Errorf("the request behind the held one did not arrive: %v", err)
	}
}

func TestRules_FirstThatMatchesAndIsNotUsedUp(t *testing.T) {
	_, proxy := start(t)
	first := proxy.Add(respproxy.Delay(0), 1, respproxy.Command("PING"))
	second := proxy.Add(respproxy.Delay(0), 0, respproxy.Command("PING"))
	echo := proxy.Add(respproxy.Delay(0), 0, respproxy.Mentions("needle"))
	conn := dial(t, proxy)

	for range 3 {
		conn.send("PING")
		conn.expect("+PONG")
	}
	second.WaitFired(t, 2)
	second.Release()
	conn.send("PING|ECHO a-needle-b")
	conn.expect("+PONG", "$10")
	echo.WaitFired(t, 1)
	if first.Count() != 1 || second.Count() != 2 {
		t.Errorf("fired %d and %d times, want 1 and 2", first.Count(), second.Count())
	}
}

func TestMute_HidesTheEndOfTheServer(t *testing.T) {
	server, proxy := start(t)
	conn := dial(t, proxy)
	conn.send("PING")
	conn.expect("+PONG")
	proxy.Mute()
	server.Kill()
	conn.expectSilence()
	proxy.Unmute()
	conn.expectEnd()
}

func TestSubscriber_ReceivesWhatIsNoReplyAndMayBeLost(t *testing.T) {
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		server, proxy := start(t)
		publish := func(channel, text string) {
			if n := server.Client().Publish(t.Context(), channel, text).Val(); n == 0 {
				t.Errorf("%s: no subscriber receives %q", hello, text)
			}
		}
		ping := proxy.Add(respproxy.CutAfterForward, 1, respproxy.Command("PING", "last"))
		conn := dial(t, proxy)
		conn.send(hello + "|SUBSCRIBE a b|PSUBSCRIBE a*|PING first")
		conn.until("first")
		proxy.DropPubSub(true)
		publish("a", "lost") // to the channel and to the pattern
		conn.send("UNSUBSCRIBE a|PING second")
		if text := conn.until("second"); strings.Contains(text, "lost") || !strings.Contains(text, "unsubscribe") {
			t.Errorf("%s: received %q while messages are lost", hello, text)
		}
		proxy.DropPubSub(false)
		publish("b", "heard")
		conn.until("heard")
		conn.send("PING last")
		ping.WaitFired(t, 1)
		conn.expectEnd()
	}
}

func start(t *testing.T) (*redistest.Server, *respproxy.Proxy) {
	t.Helper()
	server := redistest.Start(t)
	return server, respproxy.Start(t, server.Addr())
}

// rawConn speaks to the proxy in bytes.
type rawConn struct {
	net.Conn
	t     *testing.T
	lines *bufio.Reader
}

func dial(t *testing.T, proxy *respproxy.Proxy) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rawConn{Conn: conn, t: t, lines: bufio.NewReader(conn)}
}

// send writes commands, separated by bars, at once.
func (c *rawConn) send(commands string) {
	c.t.Helper()
	var text strings.Builder
	for command := range strings.SplitSeq(commands, "|") {
		words := strings.Fields(command)
		fmt.Fprintf(&text, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	if _, err := io.WriteString(c, text.String()); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads lines.
func (c *rawConn) expect(lines ...string) {
	c.t.Helper()
	for _, want := range lines {
		line, err := c.read(10 * time.Second)
		if err != nil || strings.TrimSpace(line) != want {
			c.t.Fatalf("received %q, %v, want %q", line, err, want)
		}
	}
}

// until reads until a line is the text, and returns all that it has read.
func (c *rawConn) until(text string) string {
	c.t.Helper()
	for all := ""; ; {
		line, err := c.read(10 * time.Second)
		all += line
		if err != nil {
			c.t.Fatalf("received %q, %v, want %q", all, err, text)
		}
		if strings.TrimSpace(line) == text {
			return all
		}
	}
}

// expectSilence waits for a moment and expects no answer in it.
func (c *rawConn) expectSilence() {
	c.t.Helper()
	line, err := c.read(50 * time.Millisecond)
	if line != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("received %q, %v, want silence", line, err)
	}
}

// expectEnd waits for the end of the connection.
func (c *rawConn) expectEnd() {
	c.t.Helper()
	line, err := c.read(10 * time.Second)
	if line != "" || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("received %q, %v, want the end", line, err)
	}
}

func (c *rawConn) read(within time.Duration) (string, error) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		c.t.Fatal(err)
	}
	return c.lines.ReadString('\n')
}
