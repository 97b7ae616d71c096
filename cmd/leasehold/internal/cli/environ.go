package cli

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
)

// heldLock is a lock under which this process runs, read from its environment. The
// innermost lock has variables of its own, for scripts. The locks around it are in
// LEASEHOLD_OUTER, so that a run of A in a run of B in a run of A re-enters A instead of
// waiting for itself.
type heldLock struct {
	Store string `json:"store"`
	Key   string `json:"key"`
	Lease string `json:"leaseId"`
	Token int64  `json:"token"`
	Owner string `json:"owner"`
	Mode  string `json:"mode"`
	// Places are the numbers of the places of a semaphore.
	Places []int `json:"places,omitempty"`
}

// Modes of a lock under which a command runs.
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
	envPlace    = "LEASEHOLD_PLACE"
	envPlaces   = "LEASEHOLD_PLACES"
	envOuter    = "LEASEHOLD_OUTER"
	// envUnprotected is 1 for a command that runs without the lock.
	envUnprotected = "LEASEHOLD_UNPROTECTED"
)

// outerLocks returns the locks under which this process runs, the innermost first. It
// ignores variables that it cannot read.
func outerLocks() []heldLock {
	token, err := strconv.ParseInt(os.Getenv(envToken), 10, 64)
	inner := heldLock{
		Store: storeAround(), Key: os.Getenv(envKey), Lease: os.Getenv(envLease),
		Token: token, Owner: os.Getenv(envOwner), Mode: os.Getenv(envMode), Places: driver.Places(os.Getenv(envPlaces)).Numbers(),
	}
	if err != nil || inner.Key == "" || inner.Owner == "" {
		return nil
	}
	var outer []heldLock
	if json.Unmarshal([]byte(os.Getenv(envOuter)), &outer) != nil {
		outer = nil
	}
	return append([]heldLock{inner}, outer...)
}

// storeAround identifies the store of the run around this process.
func storeAround() string {
	public, _ := stores.Public(os.Getenv(envStore))
	return cmp.Or(public, os.Getenv(envHidden))
}

// passedOn returns the environment of this process for a command that uses a store. It has
// the URL of the store if that has no password, or if pass is set, and the URL without its
// password otherwise. It omits the variable of an unprotected run around this one. If store is
// empty, the result has the store of this process's environment.
func passedOn(store string, pass bool) []string {
	if store == "" {
		if store = os.Getenv(envStore); store == "" {
			return os.Environ()
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains([]string{envStore, envHidden, envUnprotected, envPlace, envPlaces}, name)
	})
	public, secret := stores.Public(store)
	if secret && !pass {
		return append(env, envHidden+"="+public)
	}
	return append(env, envStore+"="+store)
}

// environ returns the environment of a command that runs under leases: the environment of this
// process, and the variables that describe the lock of NAME. The list of outer locks includes
// the locks of --also.
func environ(spec *lockSpec, lease *leaseSet) []string {
	inner := spec.describe(lease.main)
	env := append(passedOn(spec.store, spec.flags.passStore),
		envKey+"="+inner.Key,
		envLease+"="+inner.Lease,
		envToken+"="+strconv.FormatInt(inner.Token, 10),
		envOwner+"="+inner.Owner,
		envMode+"="+inner.Mode,
		envDeadline+"="+lease.deadline().Format(time.RFC3339Nano),
	)
	if places := inner.Places; len(places) > 0 {
		env = append(env, envPlace+"="+strconv.Itoa(places[0]), envPlaces+"="+string(driver.PlacesOf(places)))
	}
	var outer []heldLock
	for _, l := range lease.leases {
		if l != lease.main {
			outer = append(outer, spec.describe(l))
		}
	}
	if outer = append(outer, outerLocks()...); len(outer) > 0 {
		text, err := json.Marshal(outer)
		if err == nil {
			env = append(env, envOuter+"="+string(text))
		}
	}
	return env
}

// identity returns the name of the store for nested runs: its URL without secrets.
func (spec *lockSpec) identity() string {
	public, _ := stores.Public(spec.store)
	return public
}

// describe describes a lease for the command and for nested runs. A re-entry has the token
// of the outer lease.
func (spec *lockSpec) describe(l *leasehold.Lease) heldLock {
	h := heldLock{Store: spec.identity(), Key: l.Key(), Lease: l.ID(), Token: l.Token(), Owner: spec.owner, Mode: spec.flags.mode(), Places: l.Places()}
	if outer, nested := spec.outer[h.Key]; nested {
		h.Owner, h.Mode = outer.Owner, outer.Mode
		if outer.Mode != modeShared {
			h.Token = outer.Token
		}
	}
	return h
}

// newOwner returns a readable owner name that is unique to this run or term, because nested
// runs re-enter by it. It begins with name, or with host and process.
func newOwner(name string) string {
	if name != "" {
		return name + "/" + rand.Text()[:8]
	}
	host, err := os.Hostname()
	if err != nil || len(host) > 200 {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// Labels with which run, elect and acquire describe the process that holds or waits, in
// addition to its owner name.
const (
	labelHost    = "leasehold.host"
	labelPID     = "leasehold.pid"
	labelCommand = "leasehold.command"
)

var processLabels = []string{labelHost, labelPID, labelCommand}

// processOf returns the labels that describe this process and the command that it runs,
// by its name only: arguments may be secrets.
func processOf(argv []string) map[string]string {
	labels := map[string]string{labelPID: strconv.Itoa(os.Getpid())}
	if host, err := os.Hostname(); err == nil {
		labels[labelHost] = shortened(host)
	}
	if len(argv) > 0 {
		labels[labelCommand] = shortened(filepath.Base(argv[0]))
	}
	return labels
}

// shortened cuts a text, to leave room for the labels of the user, and replaces characters that
// a label may not have.
func shortened(text string) string {
	const most = 64
	return printable(strings.ToValidUTF8(text[:min(len(text), most)], "?"))
}
