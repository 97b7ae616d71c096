package cli

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
)

// held is a lock under which this process runs, as the environment tells. The
// innermost has variables of its own, for scripts to read; those around it are
// in LEASEHOLD_OUTER, so that a run of A in a run of B in a run of A re-enters
// too, and does not wait for itself.
type held struct {
	Store string `json:"store"`
	Key   string `json:"key"`
	Lease string `json:"leaseId"`
	Token int64  `json:"token"`
	Owner string `json:"owner"`
	Mode  string `json:"mode"`
}

// Modes of a lock under which something runs.
const (
	modeExclusive = "exclusive"
	modeShared    = "shared"
	modeLimited   = "limited" // a place of a semaphore
)

const (
	envKey      = "LEASEHOLD_KEY"
	envLease    = "LEASEHOLD_LEASE_ID"
	envToken    = "LEASEHOLD_TOKEN"
	envOwner    = "LEASEHOLD_OWNER"
	envDeadline = "LEASEHOLD_DEADLINE"
	envMode     = "LEASEHOLD_MODE"
	envOuter    = "LEASEHOLD_OUTER"
)

// surrounding returns the locks under which this process runs, the innermost
// first. What does not read as ours is somebody else's business.
func surrounding() []held {
	token, err := strconv.ParseInt(os.Getenv(envToken), 10, 64)
	inner := held{
		Store: os.Getenv(envStore), Key: os.Getenv(envKey), Lease: os.Getenv(envLease),
		Token: token, Owner: os.Getenv(envOwner), Mode: os.Getenv(envMode),
	}
	if err != nil || inner.Key == "" || inner.Owner == "" {
		return nil
	}
	var outer []held
	if json.Unmarshal([]byte(os.Getenv(envOuter)), &outer) != nil {
		outer = nil
	}
	return append([]held{inner}, outer...)
}

// environment is what a command sees that runs while lease is held: the
// caller's own, and what it may want to know of its lock. Locks beside the one
// of NAME stand with those around it.
func environment(w *want, lease *grip) []string {
	inner := w.held(lease.main)
	env := append(os.Environ(),
		envStore+"="+inner.Store,
		envKey+"="+inner.Key,
		envLease+"="+inner.Lease,
		envToken+"="+strconv.FormatInt(inner.Token, 10),
		envOwner+"="+inner.Owner,
		envMode+"="+inner.Mode,
		envDeadline+"="+lease.deadline().Format(time.RFC3339Nano),
	)
	var outer []held
	for _, l := range lease.leases {
		if l != lease.main {
			outer = append(outer, w.held(l))
		}
	}
	if outer = append(outer, surrounding()...); len(outer) > 0 {
		text, err := json.Marshal(outer)
		if err == nil {
			env = append(env, envOuter+"="+string(text))
		}
	}
	return env
}

// held describes a lease of w to those who run under it.
func (w *want) held(l *leasehold.Lease) held {
	h := held{Store: w.store, Key: l.Key(), Lease: l.ID(), Token: l.Token(), Owner: w.owner, Mode: w.how.mode()}
	if outer, nested := w.outer[h.Key]; nested {
		h.Owner, h.Mode = outer.Owner, outer.Mode
	}
	return h
}

// newOwner names this run for people, and apart from every other: nested runs
// re-enter by it.
func newOwner() string {
	host, err := os.Hostname()
	if err != nil || len(host) > 200 {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d/%s", host, os.Getpid(), rand.Text()[:8])
}
