package matrix_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// wire is a proxy between a client and a PostgreSQL server that applies the weather to requests.
// A request is all that the client sends before it waits for an answer, by Sync or as a simple
// query. Requests that name the table count as messages; preparation and clean-up meet only
// lasting faults.
type wire struct {
	*weather
	table    shelf
	listener net.Listener
	upstream string
	kill     func(pid uint32) // ends the session of a process of the server
	gate     *gate            // for a restart of the server
	early    bool             // a request is on its way when the server is killed, not sent after it

	arrives sync.Once // at the gate

	mu      sync.Mutex
	conns   map[net.Conn]bool
	closed  bool
	running sync.WaitGroup
}

func (w *wire) serve() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.connect(client) })
	}
}

// stop cuts all connections, and returns when no request is under way.
func (w *wire) stop() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	for c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// has adds a connection, and reports false if the wire has been stopped.
func (w *wire) has(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = c.Close()
		return false
	}
	w.conns[c] = true
	return true
}

func (w *wire) drop(c net.Conn) {
	_ = c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

// page is the answer of a gateway that does not speak PostgreSQL. Next come the errors of a
// server that accepts no connections, or no more.
var page = []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>the gateway says so</html>")

func fatal(code, text string) []byte {
	body := []byte("SFATAL\x00VFATAL\x00C" + code + "\x00M" + text + "\x00\x00")
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(body)+4)), body...) //nolint:gosec // it is short
}

// connect serves one connection.
func (w *wire) connect(client net.Conn) {
	if !w.has(client) {
		return
	}
	defer w.drop(client)
	startup, err := packet(client, nil)
	if err != nil {
		return
	}
	switch w.still() {
	case refused:
		_, _ = client.Write(fatal("57P03", "the database system is starting up"))
		return
	case noDial:
		_, _ = client.Write(fatal("53300", "sorry, too many clients already"))
		return
	case gateway, gatewayAfter:
		_, _ = client.Write(page)
		return
	case frozen:
		time.Sleep(w.thaw())
	}
	server, err := net.Dial("tcp", w.upstream)
	if err != nil || !w.has(server) {
		return
	}
	l := &line{wire: w, client: client, server: server, texts: make(map[string]string)}
	defer func() {
		if !l.left {
			w.drop(server)
		}
	}()
	if _, err := server.Write(startup); err != nil || binary.BigEndian.Uint32(startup[4:]) == 80877102 { // it cancels
		_, _ = io.Copy(client, server)
		return
	}
	if !l.give(l.answer()) {
		return
	}
	for {
		req, err := l.request()
		if err != nil || !l.meet(req) {
			return
		}
	}
}

// line is one connection to the server.
type line struct {
	*wire
	client, server net.Conn
	texts          map[string]string // of prepared statements, by their names
	pid            uint32
	left           bool // the server's side goes on without the client
}

// packet reads a message that begins with its length, or with its kind if kind is not empty.
func packet(from io.Reader, kind []byte) ([]byte, error) {
	head := make([]byte, len(kind)+4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[len(kind):])
	if n < 4 || n > 1<<26 {
		return nil, io.ErrUnexpectedEOF
	}
	all := make([]byte, len(kind)+int(n))
	copy(all, head)
	_, err := io.ReadFull(from, all[len(head):])
	return all, err
}

// request is a list of messages of the client.
type request struct {
	frames  [][]byte
	message bool // it names the table
}

// request reads the next one.
func (l *line) request() (request, error) {
	var req request
	for {
		frame, err := packet(l.client, make([]byte, 1))
		if err != nil {
			return req, err
		}
		req.frames = append(req.frames, frame)
		text := ""
		switch body := frame[5:]; frame[0] {
		case 'P': // Parse: a name and a text
			name, rest, _ := bytes.Cut(body, []byte{0})
			query, _, _ := bytes.Cut(rest, []byte{0})
			l.texts[string(name)] = string(query)
		case 'B': // Bind: a portal and a name
			_, rest, _ := bytes.Cut(body, []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			text = l.texts[string(name)]
		case 'Q':
			text = string(body)
		case 'X':
			return req, io.EOF
		}
		sweeps := strings.HasPrefix(text, "WITH now AS MATERIALIZED")
		req.message = req.message || strings.Contains(text, `"leasehold"`) && !sweeps
		if frame[0] == 'S' || frame[0] == 'Q' {
			return req, nil
		}
	}
}

// send sends a request to the server.
func (l *line) send(frames [][]byte) bool {
	_, err := l.server.Write(slices.Concat(frames...))
	return err == nil
}

// answer reads the server's messages until it is ready for the next request, or has gone.
func (l *line) answer() (all []byte, ready bool) {
	return l.answers(func(kind byte) bool { return kind == 'Z' })
}

func (l *line) answers(last func(kind byte) bool) (all []byte, ok bool) {
	for {
		frame, err := packet(l.server, make([]byte, 1))
		if err != nil {
			return all, false
		}
		if frame[0] == 'K' {
			l.pid = binary.BigEndian.Uint32(frame[5:])
		}
		all = append(all, frame...)
		if last(frame[0]) {
			return all, true
		}
	}
}

// give sends an answer to the client, and reports whether the connection stays open.
func (l *line) give(all []byte, ready bool) bool {
	_, err := l.client.Write(all)
	return err == nil && ready
}

// asks sends a request, and returns the answer.
func (l *line) asks(req request) ([]byte, bool) {
	if !l.send(req.frames) {
		return nil, false
	}
	return l.answer()
}

// meet applies a fate to a request, and reports whether the connection stays open.
func (l *line) meet(req request) bool {
	f := arrives
	if req.message {
		f = l.next()
	} else if l.lasting() {
		f = l.still()
	}
	switch f {
	case lost, noDial:
		return false
	case unanswered:
		_, _ = l.asks(req)
		return false
	case refused:
		return l.give(fatal("57P01", "terminating connection due to administrator command"), false)
	case gateway:
		return l.give(page, false)
	case gatewayAfter:
		_, _ = l.asks(req)
		return l.give(page, false)
	case slow:
		all, ready := l.asks(req)
		time.Sleep(slowness)
		return l.give(all, ready)
	case stuck:
		time.Sleep(slowness)
	case starved:
		time.Sleep(l.jitter())
		all, ready := l.asks(req)
		time.Sleep(l.jitter())
		return l.give(all, ready)
	case frozen:
		time.Sleep(l.thaw())
	case late:
		l.left = true
		l.after(lateness, func() {
			defer l.drop(l.server)
			_, _ = l.asks(req)
		})
		return false
	case forgets, goesBack, failsOver:
		all, ready := l.asks(req)
		if f == forgets {
			l.table.Forget()
		} else {
			l.table.GoBack()
		}
		return f != failsOver && l.give(all, ready)
	case killed:
		return l.killed(req)
	case cutAnswer:
		return l.cutAnswer(req)
	case restarts:
		l.arrives.Do(func() { l.gate.arrived <- struct{}{} })
		<-l.gate.open
		if !l.early {
			<-l.gate.killed
		}
	}
	return l.give(l.asks(req))
}

// lasting reports whether a fault affects the whole connection and not one message.
func (w *weather) lasting() bool {
	return slices.Contains([]fate{refused, noDial, gateway, gatewayAfter, frozen}, w.still())
}

// still returns the lasting fault.
func (w *weather) still() fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.met == 0 || w.fixed || !time.Now().Before(w.until) {
		return arrives
	}
	return w.fate
}

// killed sends a request without its last statement, which is the commit if there is one, and
// makes the server end the session after the statements before it.
func (l *line) killed(req request) bool {
	last, statements := 0, 0
	for i, frame := range req.frames {
		switch frame[0] {
		case 'B':
			last = i
		case 'E':
			statements++
		}
	}
	if statements < 2 {
		l.kill(l.pid)
		return l.give(l.asks(req))
	}
	flush := []byte{'H', 0, 0, 0, 4}
	l.send(append(slices.Clone(req.frames[:last]), flush))
	done := 0
	before, ok := l.answers(func(kind byte) bool { // CommandComplete, or an error
		if kind == 'C' {
			done++
		}
		return kind == 'E' || done == statements-1
	})
	if !ok {
		return l.give(before, false)
	}
	l.kill(l.pid)
	rest, _ := l.answer()
	return l.give(append(before, rest...), false)
}

// cutAnswer gives the client the answer up to that of the last statement, which is the commit.
func (l *line) cutAnswer(req request) bool {
	all, _ := l.asks(req)
	last := 0 // where the message begins that the last statement is done
	for at := 0; at < len(all); at += 1 + int(binary.BigEndian.Uint32(all[at+1:])) {
		if all[at] == 'C' {
			last = at
		}
	}
	_, _ = l.client.Write(all[:last])
	return false
}

// gate is where requests wait for a restart of the server.
type gate struct {
	arrived chan struct{} // once for each play
	open    chan struct{} // closed when all may go on
	killed  chan struct{} // closed when the server has been killed
}

func newGate(n int) *gate {
	return &gate{arrived: make(chan struct{}, n), open: make(chan struct{}), killed: make(chan struct{})}
}
