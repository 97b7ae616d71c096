package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// lockFlags are the flags that name a lock, bound the wait and describe the holder.
type lockFlags struct {
	*global
	nonblock  bool
	wait      duration
	maxOutage duration // below 0: without bound
	exclusive bool
	shared    bool
	limited   bool
	limit     int
	permits   int
	conflict  int
	ttl       duration
	owner     string // the readable name
	reentrant string // the identity that --reentrant-owner states
	labels    []string
	quiet     bool
	verbose   bool
	passStore bool
	election  bool // each term has its own owner, and never re-enters
}

func newLockFlags(g *global) lockFlags {
	return lockFlags{global: g, ttl: duration(30 * time.Second), wait: -1, maxOutage: duration(30 * time.Second)}
}

// registerLock registers the flags that name the lock and bound the wait.
func (f *lockFlags) registerLock(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait: if the lock is held, exit with 75")
	flags.VarP(&f.wait, "wait", "w", "longest wait, such as 90s, 5m or plain seconds; then exit with 75")
	flags.Var(&f.wait, "timeout", "the same as --wait")
	f.registerOutage(flags)
	flags.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold the lock alone, as is the default")
	flags.BoolVarP(&f.shared, "shared", "s", false, "share the lock with other holders that use -s")
	flags.IntVar(&f.limit, "limit", 0, "hold one of `N` places; all users of the name give the same N")
	flags.IntVar(&f.permits, "permits", 1, "hold `N` of the places of --limit")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", codeBusy, "exit code if the lock is held, `N`")
	cmd.MarkFlagsMutuallyExclusive("wait", "timeout")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "wait")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "timeout")
	cmd.MarkFlagsMutuallyExclusive("exclusive", "shared", "limit")
}

// registerOutage registers the flag that bounds the wait for the store.
func (f *lockFlags) registerOutage(flags *pflag.FlagSet) {
	flags.Var(&f.maxOutage, "max-outage", "longest wait for a store that is away, then exit with 69; 0 is no wait")
}

// registerHolder registers the flags that describe the holder, and how much is printed.
func (f *lockFlags) registerHolder(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.ttl, "ttl", "time to live of the lease: how long a dead machine blocks the lock, and how long the store may be away")
	flags.StringVar(&f.owner, "owner", "", "shown as the holder, `NAME` and a random part (default host and process)")
	flags.StringVar(&f.reentrant, "reentrant-owner", "", "enter a lock that this `OWNER` holds already, with the same token; two processes of one OWNER run together")
	flags.StringArrayVar(&f.labels, "label", nil, "shown by inspect, `KEY=VALUE`; may be repeated")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print only errors and losses")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print each change of the lock")
	cmd.MarkFlagsMutuallyExclusive("quiet", "verbose")
	cmd.MarkFlagsMutuallyExclusive("owner", "reentrant-owner")
}

func (f *lockFlags) check(cmd *cobra.Command) error {
	f.limited = cmd.Flags().Changed("limit")
	switch {
	case slices.ContainsFunc(f.labels, func(pair string) bool { return strings.Index(pair, "=") < 1 }):
		return usage("--label %q is not of the form KEY=VALUE", f.labels)
	case cmd.Flags().Changed("permits") && !f.limited:
		return usage("--permits counts places of --limit, which is missing")
	case cmd.Flags().Changed("reentrant-owner") && f.election:
		return usage("elect takes no --reentrant-owner: each term has a token of its own, and a re-entry has none; --owner names a candidate")
	case cmd.Flags().Changed("reentrant-owner") && f.reentrant == "":
		return usage("--reentrant-owner is empty")
	case cmd.Flags().Changed("owner"):
		if err := checkOwner(f.owner); err != nil {
			return usage("--owner: %w", err)
		}
	}
	return f.checkConflict()
}

func (f *lockFlags) checkConflict() error {
	if f.conflict < 0 || f.conflict > 255 {
		return usage("--conflict-exit-code %d is not between 0 and 255", f.conflict)
	}
	return nil
}

func (f *lockFlags) level() int {
	switch {
	case f.quiet:
		return levelQuiet
	case f.verbose:
		return levelVerbose
	}
	return levelNormal
}

// mode is the mode that a nested run reads from its environment.
func (f *lockFlags) mode() string {
	switch {
	case f.limited:
		return modeLimited
	case f.shared:
		return modeShared
	}
	return modeExclusive
}

// lockSpec describes the locks that a verb takes.
type lockSpec struct {
	flags  *lockFlags
	names  []string // NAME, then the names of --also
	store  string
	named  string              // the readable owner name, if it has one
	owner  string              // the identity, by which nested runs re-enter
	argv   []string            // the command that will run; empty for acquire
	opts   []leasehold.Option  // in addition to the options from flags
	outer  map[string]heldLock // surrounding runs of the same names
	stderr io.Writer
	report reporter
}

// newLockSpec checks the flags and names, including the checks of the library. It does not
// use the store.
func newLockSpec(cmd *cobra.Command, f *lockFlags, names []string, opts ...leasehold.Option) (lockSpec, error) {
	if err := f.check(cmd); err != nil {
		return lockSpec{}, err
	}
	store, err := f.storeURL()
	if err != nil {
		return lockSpec{}, err
	}
	spec := lockSpec{
		flags: f, names: names, store: store, named: f.owner, owner: f.reentrant, opts: opts, stderr: cmd.ErrOrStderr(),
		report: newReporter(cmd.ErrOrStderr(), f.json, f.level()),
	}
	if err := spec.findOuter(outerLocks()); err != nil {
		return lockSpec{}, err
	}
	return spec, spec.checkLocks()
}

// checkLocks tries the locks on an empty store in memory, so that invalid names and
// options are refused by the same code and in the same words as later.
func (spec *lockSpec) checkLocks() error {
	client, err := leasehold.New(memdriver.New())
	if err != nil {
		return err
	}
	defer client.Close()
	for _, name := range spec.order() {
		if _, err := spec.lock(client, name, time.Duration(spec.flags.wait)).TryLock(noContext); err != nil {
			return err
		}
	}
	return nil
}

// order returns the names sorted and without duplicates. All programs take several locks
// in this order, so no circle of waiters can form.
func (spec *lockSpec) order() []string {
	names := slices.Clone(spec.names)
	slices.Sort(names)
	return slices.Compact(names)
}

// lock returns the lock of a name, which waits for at most wait, or without an end if
// wait is negative.
func (spec *lockSpec) lock(client *leasehold.Client, name string, wait time.Duration) leasehold.Locker {
	opts := spec.options(name, wait)
	outer, nested := spec.outer[name]
	switch {
	case nested && outer.Mode != modeShared:
		return client.Mutex(name, opts...) // re-enters an exclusive lock, which includes a shared one
	case spec.flags.limited:
		return client.Semaphore(name, spec.flags.limit, opts...).Places(spec.flags.permits)
	case nested:
		// Barging: a writer that waits for the outer reader must not block this one.
		return client.RWMutex(name, append(opts, leasehold.WithPolicy(leasehold.Barging))...).RLocker()
	case spec.flags.shared:
		return client.RWMutex(name, opts...).RLocker()
	}
	return client.Mutex(name, opts...)
}

// options returns the options of one lock. The limit on a command's time is not among
// them: with it the library would release the lock while the command is still ending.
func (spec *lockSpec) options(name string, wait time.Duration) []leasehold.Option {
	owner := spec.owner
	if outer, nested := spec.outer[name]; nested && outer.Mode != modeShared {
		owner = outer.Owner
	}
	opts := append([]leasehold.Option{leasehold.WithTTL(spec.ttl()), leasehold.WithReentrantOwner(owner), leasehold.WithMaxOutage(time.Duration(spec.flags.maxOutage))}, spec.opts...)
	if wait >= 0 {
		opts = append(opts, leasehold.WithMaxWait(wait))
	}
	return append(opts, leasehold.WithLabels(spec.labels()))
}

// labels returns the labels from the flags, and also the labels of the process if all fit.
func (spec *lockSpec) labels() map[string]string {
	given := make(map[string]string)
	for _, pair := range spec.flags.labels {
		k, v, _ := strings.Cut(pair, "=")
		given[k] = v
	}
	all := processOf(spec.argv)
	maps.Copy(all, given)
	if text, err := json.Marshal(all); err == nil && len(text) > leasehold.MaxLabels {
		return given
	}
	return all
}

func (spec *lockSpec) ttl() time.Duration { return time.Duration(spec.flags.ttl) }

// acquire waits for the locks, one after the other. It renews the leases that it already has;
// the loss of one ends the wait.
func (spec *lockSpec) acquire(ctx context.Context, client *leasehold.Client) (*leaseSet, error) {
	began := time.Now()
	g := new(leaseSet)
	ctx, g.abort = context.WithCancelCause(ctx) // parent of the leases' contexts
	for _, name := range spec.order() {
		l, err := spec.acquireOne(ctx, client, name, began)
		if err != nil {
			err = g.failed(err)
			g.unlink()
			return nil, errors.Join(err, g.release(nil))
		}
		g.add(l, name == spec.names[0])
	}
	if !g.unlink() {
		return nil, errors.Join(g.failed(leasehold.ErrLost), g.release(nil))
	}
	return g, nil
}

// acquireOne waits for one lock, and then until its lease has the full TTL: after a hand-over
// a lease begins with a shorter time.
func (spec *lockSpec) acquireOne(ctx context.Context, client *leasehold.Client, name string, began time.Time) (*leasehold.Lease, error) {
	wait := time.Duration(spec.flags.wait)
	if wait > 0 && len(spec.names) > 1 {
		wait = max(wait-time.Since(began), 0).Truncate(time.Millisecond)
	}
	lock := spec.lock(client, name, wait)
	take := lock.Lock
	if _, nested := spec.outer[name]; nested || spec.flags.nonblock {
		take = lock.TryLock
	}
	view := newQueueView(&spec.report, client, spec.stderr)
	lease, err := take(leasehold.ObserveWait(ctx, func(e leasehold.WaitEvent) { view.event(ctx, e) }))
	view.end()
	if err != nil {
		return nil, err
	}
	if lease.Remaining() < spec.ttl()/2 {
		err = lease.Extend(ctx, spec.ttl())
	}
	if err == nil {
		err = spec.reentered(ctx, lease)
	}
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	spec.report.acquired(lease, spec.owner, time.Since(began))
	return lease, nil
}

// refused returns the error of a failed acquisition, with its exit code.
func (spec *lockSpec) refused(ctx context.Context, err error) error {
	var sig *signalError
	var busy *leasehold.HeldError
	held := errors.As(err, &busy) && !errors.Is(err, leasehold.ErrLost)
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return interrupted(sig.signal, err)
	case held && spec.nested(busy.Key):
		return outerLost(spec.outer[busy.Key])
	case held && spec.report.level < levelNormal && !spec.report.json:
		return &exitError{code: spec.flags.conflict} // -q prints nothing
	case held:
		return &exitError{code: spec.flags.conflict, err: err}
	}
	return err
}

// findOuter finds the surrounding runs of the same locks, and sets the owner. A run re-enters
// an exclusive outer lock with the outer owner, and takes a shared lock a second time. A
// candidate never re-enters: the next term must have a greater token.
func (spec *lockSpec) findOuter(around []heldLock) error {
	spec.outer = make(map[string]heldLock)
	for _, h := range around {
		switch {
		case h.Store != spec.identity() || !slices.Contains(spec.names, h.Key) || spec.nested(h.Key):
			continue
		case h.Mode == modeShared || h.Mode == modeLimited:
			if spec.flags.mode() == modeExclusive {
				return usage("this runs under lock %q already, %s, and would wait for itself", h.Key, h.Mode)
			}
			if h.Mode == modeLimited || spec.flags.limited {
				continue // another place, if the store has one
			}
		case spec.flags.election:
			return usage("this runs under lock %q already, held by %q, and would wait for itself", h.Key, h.Owner)
		case spec.flags.reentrant != "" && spec.flags.reentrant != h.Owner:
			return usage("--reentrant-owner %q: this runs under lock %q already, held by %q, and would wait for itself", spec.flags.reentrant, h.Key, h.Owner)
		case h.Key == spec.names[0]:
			spec.owner = h.Owner
		}
		spec.outer[h.Key] = h
	}
	if spec.owner != "" {
		return nil
	}
	c, err := spec.flags.configured()
	if err != nil {
		return err
	}
	spec.named = cmp.Or(spec.named, c.owner)
	spec.owner = newOwner(spec.named)
	return nil
}

func (spec *lockSpec) nested(name string) bool {
	_, nested := spec.outer[name]
	return nested
}

// reentered refuses a nested run whose outer lease is over, because its command must not
// begin under a lost lease. An exclusive outer lease is usually recognized by its token,
// because re-entry returns the same token. If the token differs, or the outer lease is shared,
// reentered asks the store. On a quorum, a node that did not answer the outer run may have a
// different token; if another node does not answer now, no majority can confirm the outer
// lease or its loss. The nested run then starts: the outer run watches its lease, and ends
// all its descendants after a loss.
func (spec *lockSpec) reentered(ctx context.Context, lease *leasehold.Lease) error {
	outer, nested := spec.outer[lease.Key()]
	if !nested || outer.Mode != modeShared && lease.Token() == outer.Token {
		return nil
	}
	store, err := stores.Open(spec.store)
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var reply driver.Reply
	ref := driver.Ref{Key: outer.Key, ID: outer.Lease, TTL: spec.ttl()} // never shortens a lease
	store.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
	switch {
	case errors.Is(err, leasehold.ErrNoQuorum), err == nil && reply.State == driver.Granted:
		return nil
	case err != nil:
		return failedRef(ref, err, false)
	}
	return outerLost(outer)
}

func outerLost(outer heldLock) error {
	return &exitError{code: codeLost, err: fmt.Errorf("lock %q: %w: the run around this one held it with token %d, and does not any more", outer.Key, leasehold.ErrLost, outer.Token)}
}
