package proc

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

const chain = `
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
for _ in range(5): os.fork() # chains of which the machine has too few processors
while True:
    if os.fork(): os._exit(0)
`

// TestStop_HR_F8_EndsAChainOfProcessesThatForkAndExit: each process lives for less time than
// a scan of the process table takes, and their leader has ended.
func TestStop_HR_F8_EndsAChainOfProcessesThatForkAndExit(t *testing.T) {
	live.Test(t)
	for range 3 {
		p, out := start(t, Command{Args: []string{"python3", "-c", chain}})
		out.want("up")
		p.Stop(400 * time.Millisecond) // by then the leader has been reaped
		began := time.Now()
		out.wantEnd(bound)
		if took := time.Since(began); took > 15*time.Second {
			live.Late(t, "the chain outlived KILL by %v", took-400*time.Millisecond)
		}
		wait(t, p)
	}
	noChildren(t)
}
