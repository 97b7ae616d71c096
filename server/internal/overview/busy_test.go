package overview

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// crowd has n questions wait for their turn, until ctx ends.
func (o *Overview) crowd(ctx context.Context, n int) {
	for i := range n {
		go o.locks.get(ctx, fmt.Sprint("x", i))
	}
	synctest.Wait()
}

func TestOverview_APageThatLeavesFailsNoOther(t *testing.T) {
	stage(t, 3, func(t *testing.T, o *Overview, store *counted) {
		o.crowd(t.Context(), 200)
		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = o.Locks(ctx, "", "", "", everything) }()
		synctest.Wait()
		time.AfterFunc(time.Millisecond, leave) // while the other page waits
		if rows := o.shows(t, 3); !rows[2].Looked {
			t.Errorf("%+v", rows)
		}
	})
}

func TestOverview_QuestionsOfPagesThatHaveLeftAreNotAsked(t *testing.T) {
	stage(t, 3, func(t *testing.T, o *Overview, store *counted) {
		ctx, leave := context.WithCancel(t.Context())
		o.crowd(ctx, 1500)
		leave()
		synctest.Wait()
		if n := store.total(); n > burst+1 || len(o.locks.all) != n {
			t.Errorf("%d requests, %d answers", n, len(o.locks.all))
		}
		begin := time.Now()
		if o.shows(t, 3); time.Since(begin) > 100*time.Millisecond {
			t.Errorf("shown after %v", time.Since(begin))
		}
	})
}

func TestOverview_KeepsABoundedNumberOfAnswers(t *testing.T) {
	stage(t, 0, func(t *testing.T, o *Overview, store *counted) {
		ended, end := context.WithCancel(t.Context())
		end()
		for i := range 1000 {
			if _, err := o.Locks(ended, "", fmt.Sprint(i), "", everything); !errors.Is(err, ErrBusy) {
				t.Fatal(err)
			}
		}
		if n := len(o.lists.all) + store.total(); n != 0 {
			t.Errorf("%d answers to questions that were not asked", n)
		}
		for i := range 1000 {
			if _, err := o.Locks(t.Context(), "", fmt.Sprint(i), "", everything); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(o.lists.all); n > o.lists.most {
			t.Errorf("%d answers", n)
		}
	})
}

func TestOverview_TooManyQuestionsAreNoFailureOfTheStore(t *testing.T) {
	stage(t, 3, func(t *testing.T, o *Overview, store *counted) {
		o.crowd(t.Context(), 1000)
		if _, err := o.view(t, ""); !errors.Is(err, ErrBusy) || errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
		ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
		defer end()
		if _, err := o.Lock(ctx, "k0000"); !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		if v := o.Vitals(ctx); !v.Failing || !v.Busy || v.Problem != ErrBusy.Error() {
			t.Errorf("%+v", v)
		}
	})
}

func TestOverview_NobodyIsHeldLongerThanTheirTime(t *testing.T) {
	stage(t, 3, func(t *testing.T, o *Overview, store *counted) {
		store.fails(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for range 2 { // who asks, and who waits with it
			begin := time.Now()
			if _, err := o.view(t, ""); err == nil || errors.Is(err, ErrBusy) {
				t.Error(err)
			}
			ctx, end := context.WithTimeout(t.Context(), time.Second)
			if v := o.Vitals(ctx); !v.Failing || v.Busy || v.Problem == "" {
				t.Errorf("%+v", v)
			}
			end()
			if took := time.Since(begin); took > 3*time.Second {
				t.Error(took)
			}
		}
	})
}

func TestLocks_ASlowListIsShownBitByBit(t *testing.T) {
	stage(t, 6000, func(t *testing.T, o *Overview, store *counted) {
		quick := o.lists.ask
		o.lists.ask = func(ctx context.Context, of listing) (names, error) {
			time.Sleep(110 * time.Millisecond)
			return quick(ctx, of)
		}
		ends := func(key string) bool { return key < "k0010" || key >= "k5990" }
		seen, cursor := 0, ""
		for range 20 {
			ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
			v, err := o.Locks(ctx, "", "", cursor, ends)
			end()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range v.Rows {
				if r.Looked {
					seen++
				}
			}
			if cursor = v.Cursor; cursor == "" {
				break
			}
		}
		if seen != 20 || cursor != "" {
			t.Errorf("%d locks, and the cursor %q", seen, cursor)
		}
	})
}

func TestLocks_ARecordThatCannotBeReadIsOneRow(t *testing.T) {
	stage(t, 30, func(t *testing.T, o *Overview, store *counted) {
		quick := o.locks.ask
		o.locks.ask = func(ctx context.Context, key string) (Row, error) {
			switch {
			case key < "k0005":
				panic("defect")
			case key < "k0010":
				return Row{}, fmt.Errorf("%w: no lock", driver.ErrMismatch)
			}
			return quick(ctx, key)
		}
		for range 20 {
			for _, r := range o.shows(t, 30) {
				if bad := r.Key < "k0010"; r.Looked == bad || (r.Problem != "") != bad || r.Failed || r.Ago.Duration() > 2*time.Second {
					t.Fatalf("%+v", r)
				}
			}
			time.Sleep(time.Second)
		}
		if _, err := o.Lock(t.Context(), "k0007"); !errors.Is(err, driver.ErrMismatch) {
			t.Error(err)
		}
	})
}

func TestLocks_ACursorIsGoodForOneReader(t *testing.T) {
	stage(t, 120, func(t *testing.T, o *Overview, store *counted) {
		first := func(principal, prefix, cursor string) (string, string) {
			v, err := o.Locks(t.Context(), principal, prefix, cursor, everything)
			if err != nil || len(v.Rows) == 0 {
				t.Fatal(v, err)
			}
			return v.Rows[0].Key, v.Cursor
		}
		_, cursor := first("desk", "k", "")
		if key, _ := first("desk", "k", cursor); key != "k0050" {
			t.Error(key)
		}
		for _, row := range [][3]string{
			{"shop", "k", cursor}, {"desk", "", cursor}, {"desk", "k", cursor[1:]}, {"desk", "k", "at=k0100"}, {"desk", "k", "%"}, {"desk", "k", strings.Repeat("A", 50)},
		} {
			if key, _ := first(row[0], row[1], row[2]); key != "k0000" {
				t.Error(row, key)
			}
		}
		replica := New(store, time.Second, o.locks.pace.log, start)
		if p := replica.unseal(cursor, "desk", "k"); p != (place{}) {
			t.Error(p)
		}
	})
}
