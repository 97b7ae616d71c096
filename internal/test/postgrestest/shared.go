package postgrestest

import (
	"io"
	"strconv"
	"sync"
	"testing"
)

var shared struct {
	mu          sync.Mutex
	server      *Server
	untilTheEnd io.Closer // never closed; kept so that it is not garbage collected
}

// Shared returns a server with a database that only this test uses. The first test of a
// binary that calls it starts the server, which ends after the binary, even if that is killed.
// The test must not stop or kill the server, make roles, or read other databases:
// such a test uses [Start].
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		s := &Server{bin: binaries(tb), dir: lastingDirectory(tb), lasting: true}
		s.copyTemplate(tb)
		s.launchAnywhere(tb)
		var err error
		shared.untilTheEnd, err = atTheEnd(`kill -QUIT "$2"; while kill -0 "$2" 2>/dev/null; do sleep 0.1; done; rm -rf "$1"`,
			s.dir, strconv.Itoa(s.process.Cmd.Process.Pid))
		if err != nil {
			s.stop(tb)
			tb.Fatalf("postgrestest: %v", err)
		}
		shared.server = s
	}
	s := shared.server
	return &Server{bin: s.bin, dir: s.dir, host: s.host, port: s.port, database: s.create(tb)}
}
