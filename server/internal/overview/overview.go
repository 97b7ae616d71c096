// Package overview looks at the locks of a store for the pages of a service. All pages
// share the store's answers, and their requests are bounded by [RequestsPerSecond] for any
// number of pages and locks. While no page is open no requests are sent.
package overview

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
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
}

// New returns the overview of a store. Each request to the store ends after timeout. A panic
// in the store's code is logged.
func New(store driver.Driver, timeout time.Duration, log *slog.Logger) *Overview {
	p := &pace{log: log}
	return &Overview{
		locks: newShared(p, timeout, time.Second, func(ctx context.Context, key string) (Row, error) {
			return look(ctx, store, key)
		}),
		lists: newShared(p, timeout, 2*time.Second, func(ctx context.Context, of listing) (names, error) {
			return list(ctx, store, of)
		}),
		trips: newShared(p, timeout, 5*time.Second, func(ctx context.Context, key string) (time.Duration, error) {
			sent := time.Now()
			_, err := driver.Glance(ctx, store, key)
			return time.Since(sent), err
		}),
		reports: newShared(p, timeout, time.Minute, func(ctx context.Context, _ string) (driver.Report, error) {
			return check(ctx, store)
		}),
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
	Failed bool        `json:"failed"` // the last look
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

// Lock returns one lock, asking the store if its last answer is not fresh. The row is not
// Looked if the store has not answered before ctx ended.
func (o *Overview) Lock(ctx context.Context, key string) Row {
	return rowOf(key, o.locks.get(ctx, key))
}

func rowOf(key string, a answer[Row]) Row {
	r := a.v
	if !r.Looked {
		r.Lock = wire.LockOf(driver.Snapshot{Key: key})
	}
	r.Ago, r.Failed = wire.Floor(time.Since(a.at)), a.err != nil
	return r
}

// Locks returns the locks after a cursor for which may returns true, without free locks.
// When ctx ends, rows may be old, or not Looked.
func (o *Overview) Locks(ctx context.Context, prefix, cursor string, may func(key string) bool) (View, error) {
	keys, next, err := o.names(ctx, prefix, cursor, may)
	if err != nil {
		return View{}, err
	}
	// The oldest answer is renewed first, so that each lock has its turn if the pages show more
	// locks than the bound of requests allows.
	order := slices.Clone(keys)
	sort.SliceStable(order, func(i, j int) bool {
		return o.locks.last(order[i]).asked.Before(o.locks.last(order[j]).asked)
	})
	for _, key := range order {
		if ctx.Err() != nil || o.locks.get(ctx, key).err != nil { // a failure may have taken all the time
			break
		}
	}
	v := View{Rows: []Row{}, Cursor: next}
	for _, key := range keys {
		r := rowOf(key, o.locks.last(key))
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

// names returns at most MaxRows names. A cursor of a view contains the cursor of a page of the
// store's list, and the last name on that page that was shown.
func (o *Overview) names(ctx context.Context, prefix, cursor string, may func(key string) bool) (keys []string, next string, err error) {
	q, err := url.ParseQuery(cursor)
	if err != nil {
		return nil, "", driver.ErrInvalid
	}
	at, after := q.Get("at"), q.Get("after")
	for range maxLists {
		a := o.lists.get(ctx, listing{prefix, at})
		if a.err != nil {
			return nil, "", a.err
		}
		if a.at.IsZero() {
			return nil, "", driver.ErrUnavailable
		}
		for _, key := range a.v.keys {
			if key <= after || !may(key) || slices.Contains(keys, key) {
				continue
			}
			if len(keys) == MaxRows {
				return keys, cursorOf(at, after), nil
			}
			keys, after = append(keys, key), key
		}
		if at, after = a.v.next, ""; at == "" {
			return keys, "", nil
		}
	}
	return keys, cursorOf(at, after), nil
}

func cursorOf(at, after string) string { return url.Values{"at": {at}, "after": {after}}.Encode() }
