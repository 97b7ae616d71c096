// Package overview looks at the locks of a store for the pages of a service. All pages
// share the store's answers, and their requests are bounded by [RequestsPerSecond] for any
// number of pages and locks. While no page is open no requests are sent.
package overview

import (
	"cmp"
	"context"
	"crypto/cipher"
	"errors"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

const (
	// MaxRows bounds the locks of one view.
	MaxRows = 50
	// rowHolders bounds the holders that a row names.
	rowHolders = 3
	// maxShown bounds the holders and waiters of a lock that are kept.
	maxShown = 200
	// maxLists bounds the pages of the store's list that are read for one view.
	maxLists = 20
)

// Overview holds the answers that the pages of a service share. It is safe for concurrent
// use.
type Overview struct {
	locks   *shared[string, Row]
	lists   *shared[listing, names]
	trips   *shared[string, time.Duration]
	reports *shared[string, driver.Report]
	seals   cipher.AEAD // of cursors
}

// New returns the overview of a store. Each request to the store ends after timeout, and
// is made in a goroutine by start, which reports false if the service is about to end. A
// panic in the store's code is logged.
func New(store driver.Driver, timeout time.Duration, log *slog.Logger, start func(func()) bool) *Overview {
	p := &pace{log: log, turn: make(chan struct{}, 1)}
	return &Overview{
		locks: &shared[string, Row]{pace: p, start: start, limit: timeout, fresh: time.Second, most: 2000, all: make(map[string]*answer[Row]),
			ask: func(ctx context.Context, key string) (Row, error) { return look(ctx, store, key) }},
		lists: &shared[listing, names]{pace: p, start: start, limit: timeout, fresh: 2 * time.Second, most: 200, all: make(map[listing]*answer[names]),
			ask: func(ctx context.Context, of listing) (names, error) { return list(ctx, store, of) }},
		trips: &shared[string, time.Duration]{pace: p, start: start, limit: timeout, fresh: 5 * time.Second, most: 1, all: make(map[string]*answer[time.Duration]),
			ask: func(ctx context.Context, key string) (time.Duration, error) {
				sent := time.Now()
				_, err := driver.Glance(ctx, store, key)
				return time.Since(sent), err
			}},
		reports: &shared[string, driver.Report]{pace: p, start: start, limit: timeout, fresh: time.Minute, most: 1, all: make(map[string]*answer[driver.Report]),
			ask: func(ctx context.Context, _ string) (driver.Report, error) { return check(ctx, store) }},
		seals: newSeals(),
	}
}

// Row is one lock for a page, as it was AgoMs ago.
type Row struct {
	wire.Lock

	// Held, Used and Queue count all holders, places and waiters; Lock may have fewer.
	Held  int `json:"held"`
	Used  int `json:"used"`
	Queue int `json:"queue"`

	Ago    wire.Millis `json:"agoMs"`
	Looked bool        `json:"looked"` // false if only the name is known
	Failed bool        `json:"failed"` // the store did not answer the last look
	// Problem is why the store's record of the lock cannot be read.
	Problem string `json:"problem,omitempty"`
}

// View is some locks for a page.
type View struct {
	Rows []Row `json:"rows"`
	// Cursor is the cursor of the next view, empty in the last view.
	Cursor string `json:"cursor,omitempty"`
	// Principal is empty without authentication. Mode is read or full.
	Principal string `json:"principal"`
	Mode      string `json:"mode"`
}

// look asks the store about one lock.
func look(ctx context.Context, store driver.Driver, key string) (Row, error) {
	in, _ := driver.As[driver.Inspector](store)
	snap, err := in.Inspect(ctx, key)
	if err != nil {
		return Row{}, err
	}
	snap.Key = key
	sort.Slice(snap.Holders, func(i, j int) bool { // an instance of slices.SortFunc would be 12 kB
		a, b := &snap.Holders[i], &snap.Holders[j]
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) < 0
	})
	r := Row{Held: len(snap.Holders), Queue: len(snap.Waiters), Looked: true}
	for _, h := range snap.Holders {
		r.Used += max(h.Weight, 1)
	}
	snap.Holders, snap.Waiters = snap.Holders[:min(r.Held, maxShown)], snap.Waiters[:min(r.Queue, maxShown)]
	r.Lock = wire.LockOf(snap)
	return r, nil
}

// Lock returns one lock, asking the store if its last answer is not fresh. If the store has
// not answered before ctx ended, the row is old, or there is an error.
func (o *Overview) Lock(ctx context.Context, key string) (Row, error) {
	a := o.locks.get(ctx, key)
	if r := rowOf(key, a); r.Looked {
		return r, nil
	}
	return Row{}, a.err
}

func rowOf(key string, a answer[Row]) Row {
	r := a.v
	if ofRecord(a.err) {
		r = Row{Problem: a.err.Error()}
	}
	if r.Looked {
		r.Ago = wire.Floor(time.Since(a.at))
	} else {
		r.Lock = wire.LockOf(driver.Snapshot{Key: key})
	}
	r.Failed = a.err != nil && r.Problem == "" && !errors.Is(a.err, ErrBusy)
	return r
}

// ofRecord reports whether an error is about the record of one lock, and not about the store.
func ofRecord(err error) bool {
	return errors.Is(err, driver.ErrMismatch) || errors.Is(err, driver.ErrInvalid) || errors.Is(err, ErrDefect)
}

// Locks returns the locks after a cursor for which may returns true, without free locks. When
// ctx ends, rows may be old, or not Looked. A cursor is bound to the principal and the prefix; a
// cursor of another one begins at the first lock.
func (o *Overview) Locks(ctx context.Context, principal, prefix, cursor string, may func(key string) bool) (View, error) {
	keys, next, err := o.names(ctx, prefix, o.unseal(cursor, principal, prefix), may)
	if err != nil {
		return View{}, err
	}
	// The oldest answer is renewed first, so that each lock has its turn if the pages show more
	// locks than the bound of requests allows.
	order := slices.Clone(keys)
	sort.SliceStable(order, func(i, j int) bool {
		return o.locks.last(order[i]).asked.Before(o.locks.last(order[j]).asked)
	})
	answers := make(map[string]answer[Row], len(keys))
	var failed error
	for _, key := range order {
		if failed != nil { // it may have taken all the time
			answers[key] = o.locks.last(key)
			continue
		}
		a := o.locks.get(ctx, key)
		if answers[key] = a; !ofRecord(a.err) {
			failed = a.err
		}
	}
	v := View{Rows: []Row{}, Cursor: o.seal(next, principal, prefix)}
	for _, key := range keys {
		r := rowOf(key, answers[key])
		if r.Looked && r.State == "free" && r.Queue == 0 {
			continue
		}
		r.Holders, r.Waiters = slices.Clone(r.Holders[:min(len(r.Holders), rowHolders)]), r.Waiters[:min(len(r.Waiters), 1)]
		v.Rows = append(v.Rows, r)
	}
	return v, nil
}

// listing names a page of the store's list.
type listing struct{ prefix, cursor string }

// names is a page of the store's list, in order.
type names struct {
	keys []string
	next string
}

func list(ctx context.Context, store driver.Driver, of listing) (names, error) {
	in, _ := driver.As[driver.Inspector](store)
	keys, next, err := in.List(ctx, of.prefix, of.cursor)
	slices.Sort(keys)
	return names{slices.Compact(keys), next}, err
}

// place is where a view begins: the cursor of a page of the store's list, and the last name on
// it that was shown. It is zero at the beginning, and after the end.
type place struct{ at, after string }

// names returns at most MaxRows names, and where the next are. It takes half of the time if it
// needs more than one page of the store's list, and then returns the names so far.
func (o *Overview) names(ctx context.Context, prefix string, from place, may func(key string) bool) (keys []string, _ place, _ error) {
	for i := range maxLists {
		a := o.lists.get(ctx, listing{prefix, from.at})
		switch {
		case a.err == nil, errors.Is(a.err, ErrBusy) && !a.at.IsZero():
		case i > 0 && ctx.Err() != nil:
			return keys, from, nil
		default:
			return nil, place{}, a.err
		}
		for _, key := range a.v.keys {
			if key <= from.after || !may(key) || slices.Contains(keys, key) {
				continue
			}
			if len(keys) == MaxRows {
				return keys, from, nil
			}
			keys, from.after = append(keys, key), key
		}
		if from = (place{at: a.v.next}); from.at == "" {
			break
		}
		if end, ok := ctx.Deadline(); i == 0 && ok {
			half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
			defer cancel()
			ctx = half
		}
	}
	return keys, from, nil
}
