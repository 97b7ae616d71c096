package redisroom

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// stalled stands before a script and has the server held up before each command
// that tells a key's expiry, as it is when the machine is busy.
const stalled = `
local redis = setmetatable({ call = function(name, ...)
  if name == 'PTTL' or name == 'PEXPIRETIME' then
    local t = redis.call('TIME')
    local ms = t[1] * 1000 + t[2] / 1000
    repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > ms + 100
  end
  return redis.call(name, ...)
end }, { __index = redis })
`

// TestScripts_StallOfTheServerEndsNoLeaseEarly queues behind a holder of the
// first form while the server is held up within the script.
func TestScripts_StallOfTheServerEndsNoLeaseEarly(t *testing.T) {
	s := redistest.Start(t)
	run := func(prologue, id string, wait time.Duration) {
		t.Helper()
		req := driver.Request{Key: "k", ID: id, TTL: 10 * time.Second, ConfirmWindow: time.Second, TicketTTL: wait, HintAddress: "ears"}
		cmd := acquireCommand(acquireScript.plain(), "", &req, anyAge, plainly).take()
		cmd[0], cmd[1] = eval, prologue+acquireScript.plain().text
		args := make([]any, len(cmd))
		for i, word := range cmd {
			args[i] = word
		}
		if err := s.Client().Do(context.Background(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	run("", "holder", 0)
	ends := s.Client().PExpireTime(context.Background(), "k").Val().Milliseconds()
	run(stalled, "waiter", time.Second)
	const band = 1 << 45 // see lua/room/1_state.lua
	score := s.Client().ZScore(context.Background(), string(appendSide(nil, []byte("k"), sortedKey)), "iholder").Val()
	if got := int64(score) + band; got < ends {
		t.Errorf("the holder's lease ends %d ms before its time", ends-got)
	}
	if got := s.Client().PExpireTime(context.Background(), "k").Val().Milliseconds(); got < ends {
		t.Errorf("its key ends %d ms before its time", ends-got)
	}
}
