package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/memdriver"
)

// lockFlags say which lock is meant, how long it is waited for, and as whom.
type lockFlags struct {
	*global
	nonblock  bool
	wait      duration
	exclusive bool
	shared    bool
	limited   bool
	limit     int
	permits   int
	conflict  int
	ttl       duration
	owner     string
	labels    []string
	quiet     bool
	verbose   bool
}

func newLockFlags(g *global) lockFlags {
	return lockFlags{global: g, ttl: duration(30 * time.Second), wait: -1}
}

// registerLock registers what says which lock is meant.
func (f *lockFlags) registerLock(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait: if the lock is held, exit with 75")
	flags.VarP(&f.wait, "wait", "w", "wait at most so long, as 90s, 5m or plain seconds, then exit with 75")
	flags.Var(&f.wait, "timeout", "the same as --wait")
	flags.BoolVarP(&f.exclusive, "exclusive", "x", false, "hold the lock alone, as is the default")
	flags.BoolVarP(&f.shared, "shared", "s", false, "hold the lock beside others that hold it with -s")
	flags.IntVar(&f.limit, "limit", 0, "hold one of `N` places; all who use the name give the same N")
	flags.IntVar(&f.permits, "permits", 1, "hold `N` of the places of --limit")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", codeBusy, "exit code if the lock is held, `N`")
	cmd.MarkFlagsMutuallyExclusive("wait", "timeout")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "wait")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "timeout")
	cmd.MarkFlagsMutuallyExclusive("exclusive", "shared", "limit")
}

// registerHolder registers what says who holds it, and what is told of it.
func (f *lockFlags) registerHolder(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.ttl, "ttl", "time to live of the lease: how long a machine that dies blocks the others, and how long the store may be away")
	flags.StringVar(&f.owner, "owner", "", "who is shown as the holder, `NAME` (default host, process and a random part)")
	flags.StringArrayVar(&f.labels, "label", nil, "shown by inspect, `KEY=VALUE`; may be repeated")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing but errors and losses")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say what happens to the lock")
	cmd.MarkFlagsMutuallyExclusive("quiet", "verbose")
}

func (f *lockFlags) check(cmd *cobra.Command) error {
	f.limited = cmd.Flags().Changed("limit")
	switch {
	case f.conflict < 0 || f.conflict > 255:
		return usage("--conflict-exit-code %d is not between 0 and 255", f.conflict)
	case slices.ContainsFunc(f.labels, func(pair string) bool { return strings.Index(pair, "=") < 1 }):
		return usage("--label %q is not of the form KEY=VALUE", f.labels)
	case f.wait < -1:
		return usage("--wait %v is negative", time.Duration(f.wait))
	case cmd.Flags().Changed("permits") && !f.limited:
		return usage("--permits counts places of --limit, which is missing")
	}
	return nil
}

func (f *lockFlags) level() int {
	switch {
	case f.quiet:
		return always
	case f.verbose:
		return chatty
	}
	return normal
}

// mode is what a nested run is told of the lock around it.
func (f *lockFlags) mode() string {
	switch {
	case f.limited:
		return modeLimited
	case f.shared:
		return modeShared
	}
	return modeExclusive
}

// want is one lock, or several, that a verb is to take.
type want struct {
	how    *lockFlags
	names  []string // NAME, then those of --also
	store  string
	owner  string
	opts   []leasehold.Option // beside those that the flags give
	outer  map[string]held    // those of names under which this runs already
	stderr io.Writer
	say    teller
}

// newWant checks what was asked, down to what the library would refuse, before
// anything is asked of the store.
func newWant(cmd *cobra.Command, f *lockFlags, names []string, opts ...leasehold.Option) (want, error) {
	if err := f.check(cmd); err != nil {
		return want{}, err
	}
	store, err := f.storeURL()
	if err != nil {
		return want{}, err
	}
	w := want{
		how: f, names: names, store: store, owner: f.owner, opts: opts, stderr: cmd.ErrOrStderr(),
		say: teller{w: cmd.ErrOrStderr(), json: f.json, level: f.level()},
	}
	if err := w.nest(surrounding()); err != nil {
		return want{}, err
	}
	return w, w.checkLocks()
}

// checkLocks asks a store in memory, where it costs nothing, so that what is
// refused is refused by the same code and in the same words as later.
func (w *want) checkLocks() error {
	client, err := leasehold.New(memdriver.New())
	if err != nil {
		return err
	}
	defer client.Close()
	for _, name := range w.order() {
		if _, err := w.lock(client, name, time.Duration(w.how.wait)).TryLock(noContext); err != nil {
			return err
		}
	}
	return nil
}

// order is that in which all who want several locks take them, so that nobody
// waits in a circle. A name that is given twice is taken once.
func (w *want) order() []string {
	names := slices.Clone(w.names)
	slices.Sort(names)
	return slices.Compact(names)
}

// lock is any kind of it.
type lock interface {
	Lock(ctx context.Context) (*leasehold.Lease, error)
	TryLock(ctx context.Context) (*leasehold.Lease, error)
}

// lock returns the lock of a name, for which it waits at most so long; a
// negative wait has no end.
func (w *want) lock(client *leasehold.Client, name string, wait time.Duration) lock {
	opts := w.options(name, wait)
	outer, nested := w.outer[name]
	switch {
	case nested && outer.Mode != modeShared:
		return client.Mutex(name, opts...) // re-enters, and holds more than was asked
	case w.how.limited:
		return places{client.Semaphore(name, w.how.limit, opts...), w.how.permits}
	case nested:
		// A writer that waits for the reader around us must not stop us.
		return reader{client.RWMutex(name, append(opts, leasehold.WithBarging())...)}
	case w.how.shared:
		return reader{client.RWMutex(name, opts...)}
	}
	return client.Mutex(name, opts...)
}

// reader is the read side of a lock.
type reader struct{ m *leasehold.RWMutex }

func (r reader) Lock(ctx context.Context) (*leasehold.Lease, error)    { return r.m.RLock(ctx) }
func (r reader) TryLock(ctx context.Context) (*leasehold.Lease, error) { return r.m.TryRLock(ctx) }

// places are n of those of a semaphore.
type places struct {
	s *leasehold.Semaphore
	n int
}

func (p places) Lock(ctx context.Context) (*leasehold.Lease, error) { return p.s.LockN(ctx, p.n) }
func (p places) TryLock(ctx context.Context) (*leasehold.Lease, error) {
	return p.s.TryLockN(ctx, p.n)
}

// options are those of one lock. What bounds a command's time is not among
// them: the library would give the lock back while the command still ends.
func (w *want) options(name string, wait time.Duration) []leasehold.Option {
	owner := w.owner
	if outer, nested := w.outer[name]; nested && outer.Mode != modeShared {
		owner = outer.Owner
	}
	opts := append([]leasehold.Option{leasehold.WithTTL(w.ttl()), leasehold.WithOwner(owner)}, w.opts...)
	if wait >= 0 {
		opts = append(opts, leasehold.WithMaxWait(wait))
	}
	if len(w.how.labels) > 0 {
		labels := make(map[string]string)
		for _, pair := range w.how.labels {
			k, v, _ := strings.Cut(pair, "=")
			labels[k] = v
		}
		opts = append(opts, leasehold.WithLabels(labels))
	}
	return opts
}

func (w *want) ttl() time.Duration { return time.Duration(w.how.ttl) }

// acquire waits for the locks, one after the other, as the flags say. Those
// already taken are renewed meanwhile; the loss of one ends the wait.
func (w *want) acquire(ctx context.Context, client *leasehold.Client) (*grip, error) {
	began := time.Now()
	g := new(grip)
	ctx, g.abort = context.WithCancelCause(ctx) // the leases derive from it
	for _, name := range w.order() {
		l, err := w.acquireOne(ctx, client, name, began)
		if err != nil {
			err = g.failed(err)
			g.settle()
			return nil, errors.Join(err, g.release(nil))
		}
		g.add(l, name == w.names[0])
	}
	if !g.settle() {
		return nil, errors.Join(g.failed(leasehold.ErrLost), g.release(nil))
	}
	return g, nil
}

// acquireOne waits for one lock, and until its lease has its full time: one
// that was handed over begins with a short one.
func (w *want) acquireOne(ctx context.Context, client *leasehold.Client, name string, began time.Time) (*leasehold.Lease, error) {
	wait := time.Duration(w.how.wait)
	if wait > 0 && len(w.names) > 1 {
		wait = max(wait-time.Since(began), 0).Truncate(time.Millisecond)
	}
	lock := w.lock(client, name, wait)
	take := lock.Lock
	if _, nested := w.outer[name]; nested || w.how.nonblock {
		take = lock.TryLock
	}
	view := newQueueView(&w.say, client, w.stderr)
	lease, err := take(leasehold.ObserveWait(ctx, func(e leasehold.WaitEvent) { view.event(ctx, e) }))
	view.end()
	if err != nil {
		return nil, err
	}
	if lease.Remaining() < w.ttl()/2 {
		err = lease.Extend(ctx, w.ttl())
	}
	if err == nil {
		err = w.reentered(ctx, client, lease)
	}
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	w.say.acquired(lease, w.owner, time.Since(began))
	return lease, nil
}

// refused gives an acquisition that failed its exit code.
func (w *want) refused(ctx context.Context, err error) error {
	var sig *signalError
	var busy *leasehold.HeldError
	held := errors.As(err, &busy) && !errors.Is(err, leasehold.ErrLost)
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return interrupted(sig.signal, err)
	case held && w.nested(busy.Key):
		return outerLost(w.outer[busy.Key])
	case held && w.say.level < normal && !w.say.json:
		return &exitError{code: w.how.conflict} // -q: the code says it
	case held:
		return &exitError{code: w.how.conflict, err: err}
	}
	return err
}

// nest finds the surrounding runs of the same locks. An exclusive one is
// re-entered by its owner; beside a shared one another is taken.
func (w *want) nest(around []held) error {
	w.outer = make(map[string]held)
	for _, h := range around {
		switch {
		case h.Store != w.store || !slices.Contains(w.names, h.Key) || w.nested(h.Key):
			continue
		case h.Mode == modeShared || h.Mode == modeLimited:
			if w.how.mode() == modeExclusive {
				return usage("this runs under lock %q already, %s, and would wait for itself", h.Key, h.Mode)
			}
			if h.Mode == modeLimited || w.how.limited {
				continue // another place, or none at all: the store says it
			}
		case w.how.owner != "" && w.how.owner != h.Owner:
			return usage("--owner %q: this runs under lock %q already, held by %q, and would wait for itself", w.how.owner, h.Key, h.Owner)
		case h.Key == w.names[0]:
			w.owner = h.Owner
		}
		w.outer[h.Key] = h
	}
	if w.owner == "" {
		w.owner = newOwner()
	}
	return nil
}

func (w *want) nested(name string) bool {
	_, nested := w.outer[name]
	return nested
}

// reentered refuses a nested run whose outer lease is not there any more: what
// runs under a lost lease must not begin afresh. The token tells of an
// exclusive one, for it is the same then.
func (w *want) reentered(ctx context.Context, client *leasehold.Client, lease *leasehold.Lease) error {
	outer, nested := w.outer[lease.Key()]
	if !nested || outer.Mode != modeShared && lease.Token() == outer.Token {
		return nil
	}
	if outer.Mode == modeShared {
		s, err := client.Inspect(ctx, outer.Key)
		if err != nil {
			return err
		}
		for _, h := range s.Holders {
			if h.ID == outer.Lease {
				return nil
			}
		}
	}
	return outerLost(outer)
}

func outerLost(outer held) error {
	return &exitError{code: codeLost, err: fmt.Errorf("lock %q: %w: the run around this one held it with token %d, and does not any more", outer.Key, leasehold.ErrLost, outer.Token)}
}
