package redisroom_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/room"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

var (
	historySeed = flag.Uint64("history.seed", 0, "play only the history of this seed")
	historyFrom = flag.Uint64("history.from", 0, "play the histories whose seeds are drawn from this one")
)

// historySeeds are those of the histories to play.
func historySeeds(t *testing.T) []uint64 {
	t.Helper()
	if *historySeed > 0 {
		return []uint64{*historySeed}
	}
	from := *historyFrom
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("seeds are drawn from -history.from=%d", from)
	rnd := rand.New(rand.NewPCG(from, 0))
	var seeds []uint64
	n := histories
	if testing.Short() {
		n /= 10
	}
	for range n {
		seeds = append(seeds, rnd.Uint64())
	}
	return seeds
}

// TestHistories_Soak_AgreeWithTheModel plays random histories of all kinds,
// policies, limits and weights on a server and on internal/room, and compares
// every answer, every hint and, now and then, the whole picture. The servers' clocks stand
// still during a step, so that every step is judged.
func TestHistories_Soak_AgreeWithTheModel(t *testing.T) {
	seeds := historySeeds(t)
	var wg sync.WaitGroup
	todo := make(chan uint64, len(seeds))
	for _, seed := range seeds {
		todo <- seed
	}
	close(todo)
	for range 4 {
		server, clock := redistest.StartWithClock(t)
		now := time.Now().Truncate(time.Millisecond)
		wg.Go(func() {
			for seed := range todo {
				if t.Failed() {
					break
				}
				h := newHistory(t, server, clock, now, seed)
				h.play()
				now = h.now
				if h.wrong != "" {
					t.Errorf("%s\nthe last steps:\n%s\nreplay with -history.seed=%d", h.wrong, strings.Join(h.log[max(0, len(h.log)-40):], "\n"), seed)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d histories of %d steps each", len(seeds), stepsPerHistory)
}

const stepsPerHistory = 250

// history is one random history.
type history struct {
	t      *testing.T
	seed   uint64
	rnd    *rand.Rand
	client *redis.Client
	store  *redisdriver.Driver
	prefix string

	rooms map[string]*room.Record
	ids   map[string][]string // ids that have been used, by key
	kinds map[string]int      // the limit that is mostly asked for, by key
	nid   int

	address []string // of the processes
	mu      sync.Mutex
	heard   []heard
	wanted  []heard
	log     []string
	wrong   string

	clock *redistest.Clock // of the server, held at now
	now   time.Time
	lone  map[string]int64 // when the lease of a lone holder ends, in ms, by key
}

// heard is a hint at an address.
type heard struct {
	address string
	hint    driver.Hint
}

func newHistory(t *testing.T, s *redistest.Server, clock *redistest.Clock, now time.Time, seed uint64) *history {
	h := &history{
		t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 0)), client: s.Client(),
		prefix: fmt.Sprintf("h%d:", seed), rooms: make(map[string]*room.Record),
		ids: make(map[string][]string), kinds: make(map[string]int), clock: clock, now: now, lone: make(map[string]int64),
	}
	h.clock.Hold(h.now)
	h.store = newStore(t, s, redisdriver.WithPrefix(h.prefix))
	return h
}

func (h *history) play() {
	defer h.store.Close()
	for range 3 {
		h.listen()
	}
	h.connect()
	for step := 0; step < stepsPerHistory && h.wrong == ""; step++ {
		h.step()
		if step%16 == 0 {
			h.compareHints()
		}
	}
	h.compareHints()
	h.everythingExpires()
}

// connect makes the store's connection. After a new one tokens are raised by a
// renewal, which the model knows nothing of.
func (h *history) connect() {
	if _, err := h.store.Release(context.Background(), driver.Ref{Key: "nothing", ID: "nobody"}); err != nil {
		h.errorf("connect: %v", err)
	}
}

// listen opens a subscription, as a process of its own would.
func (h *history) listen() {
	up := make(chan struct{})
	var sub driver.Subscription
	sub, err := h.store.Watch(func(hint driver.Hint) {
		if hint.Kind == driver.HintResync {
			close(up)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.heard = append(h.heard, heard{sub.Address(), hint})
	})
	if err != nil {
		h.errorf("watch: %v", err)
		return
	}
	select {
	case <-up:
	case <-time.After(time.Minute):
		h.errorf("watch: no connection within a minute")
		return
	}
	h.address = append(h.address, sub.Address())
}

// step does one random thing.
func (h *history) step() {
	key := fmt.Sprintf("k%d", h.rnd.IntN(3))
	if h.rooms[key] == nil {
		h.rooms[key] = new(room.Record)
		h.kinds[key] = h.rnd.IntN(4)
	}
	switch n := h.rnd.IntN(100); {
	case n < 42:
		h.acquire(key)
	case n < 60:
		h.renew(key)
	case n < 82:
		h.release(key)
	case n < 86:
		h.breakUp(key)
	case n < 91:
		h.inspect(key)
	case n < 95:
		h.pass(time.Duration(h.rnd.IntN(4)) * time.Millisecond)
	default:
		h.pass(time.Duration(h.rnd.IntN(25)) * time.Millisecond)
	}
}

// errorf notes the first thing that is wrong.
func (h *history) errorf(format string, args ...any) {
	if h.wrong == "" {
		h.wrong = fmt.Sprintf(format, args...)
	}
}

func (h *history) logf(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// ttl is short for those who will die, and long for the others.
func (h *history) ttl() time.Duration {
	if h.rnd.IntN(8) > 0 {
		return time.Minute
	}
	return time.Duration(3+h.rnd.IntN(30)) * time.Millisecond
}

func (h *history) request(key string) driver.Request {
	r := h.rnd
	req := driver.Request{
		Key: key, ID: h.id(key), Owner: fmt.Sprintf("o %d", r.IntN(3)), Since: time.UnixMilli(1_700_000_000_000),
		Policy: driver.Policy(r.IntN(4)), TTL: h.ttl(), ConfirmWindow: h.ttl(),
	}
	if r.IntN(2) == 0 {
		req.Policy = driver.FIFO
	}
	if r.IntN(3) == 0 {
		req.Reenter = true
	}
	if r.IntN(4) == 0 {
		req.Labels = map[string]string{"a b": "{\"n\":\"x\"}", "ü": "}"}
	}
	if r.IntN(2) == 0 {
		req.Mode = driver.Shared
		if req.Limit = h.kinds[key]; r.IntN(20) == 0 {
			req.Limit = r.IntN(4)
		}
		req.Weight = r.IntN(3)
		if req.Limit > 0 && r.IntN(15) == 0 {
			req.Resize, req.Limit = true, 1+r.IntN(4)
			h.kinds[key] = req.Limit
		}
	}
	if r.IntN(3) > 0 {
		req.TicketTTL = h.ttl()
	}
	if r.IntN(6) > 0 {
		req.HintAddress = h.address[r.IntN(len(h.address))]
	}
	if r.IntN(8) == 0 {
		req.LockDelay = time.Duration(r.IntN(20)) * time.Millisecond
	}
	req.SingleUseID, req.Visit = r.IntN(3) == 0, h.visit()
	switch r.IntN(30) {
	case 0:
		req.MinToken = h.rooms[key].Token + r.Int64N(1000)
	case 1:
		req.MinToken = h.now.Add(25 * time.Hour).UnixMicro()
	}
	return req
}

// visit returns the name of a visit, mostly none.
func (h *history) visit() string {
	names := []string{"v", "v/1", "v/1/x", "v/2", "w-_.9"}
	if i := h.rnd.IntN(3 * len(names)); i < len(names) {
		return names[i]
	}
	return ""
}

// id returns a new id, or one that was used before.
func (h *history) id(key string) string {
	if used := h.ids[key]; len(used) > 0 && h.rnd.IntN(5) == 0 {
		return used[h.rnd.IntN(len(used))]
	}
	h.nid++
	id := fmt.Sprintf("i-%d", h.nid)
	if h.nid%2 == 0 {
		id = fmt.Sprintf("i-%024d", h.nid) // as long as those of the library
	}
	h.ids[key] = append(h.ids[key], id)
	return id
}

// used returns an id of the key: mostly one of those in the room.
func (h *history) used(key string) string {
	r := h.rooms[key]
	var there []string
	for _, p := range slices.Concat(r.Inside, r.Queue) {
		there = append(there, p.ID)
	}
	if len(there) > 0 && h.rnd.IntN(6) > 0 {
		return there[h.rnd.IntN(len(there))]
	}
	return h.id(key)
}

func (h *history) acquire(key string) {
	req := h.request(key)
	got, gotErr := h.store.Acquire(context.Background(), req)
	now := h.now.UnixMicro()
	last := h.rooms[key].Token
	want, wakes, wantErr := room.Acquire(h.rooms[key], req, now)
	if alone := got.State == driver.Granted && got.Clock == 0; alone && want.State == driver.Granted && got.Token > last {
		want.Token = h.retoken(key, req.ID, got.Token)
	}
	h.logf("%d acquire %+v: %+v %v", now, req, want, wantErr)
	h.want(wakes)
	h.compare("acquire", got, want, gotErr, wantErr)
	h.adopt(key, req.ID, got)
}

func (h *history) renew(key string) {
	ref := driver.Ref{Key: key, ID: h.used(key), TTL: h.ttl(), TicketTTL: h.ttl(), Visit: h.visit()}
	if h.rnd.IntN(6) > 0 {
		ref.HintAddress = h.address[h.rnd.IntN(len(h.address))]
	}
	switch h.rnd.IntN(12) {
	case 0:
		ref.Token = max(h.rooms[key].Token+h.rnd.Int64N(1000)-500, 0)
		ref.Level = h.rnd.IntN(2) == 0
	case 1:
		ref.Token = h.now.Add(25 * time.Hour).UnixMicro()
	}
	var got driver.Reply
	var gotErr error
	h.store.Renew(context.Background(), []driver.Ref{ref}, func(_ int, r driver.Reply, err error) { got, gotErr = r, err })
	now := h.now.UnixMicro()
	want, wakes := room.Renew(h.rooms[key], ref, now)
	h.logf("%d renew %+v: %+v", now, ref, want)
	h.want(wakes)
	h.compare("renew", got, want, gotErr, nil)
	h.adopt(key, ref.ID, got)
}

func (h *history) release(key string) {
	ref := driver.Ref{Key: key, ID: h.used(key)}
	if h.rnd.IntN(8) == 0 {
		ref.KeepClosed = time.Duration(h.rnd.IntN(20)) * time.Millisecond
	}
	if h.rnd.IntN(4) == 0 {
		ref.RejectIDFor = h.ttl()
		ref.SingleUseID = h.rnd.IntN(4) > 0
	}
	ref.Uncontended = h.rnd.IntN(2) == 0
	ref.Visit = h.visit()
	got, gotErr := h.store.Release(context.Background(), ref)
	now := h.now.UnixMicro()
	want, wakes := room.Release(h.rooms[key], ref, now)
	h.logf("%d release %+v: %+v", now, ref, want)
	h.want(wakes)
	h.compare("release", got, want, gotErr, nil)
}

func (h *history) breakUp(key string) {
	id := h.used(key)
	got, gotErr := h.store.Break(context.Background(), key, id, "for a reason")
	now := h.now.UnixMicro()
	want, wakes := room.Break(h.rooms[key], key, id, "for a reason", now)
	h.logf("%d break %s %s: %+v", now, key, id, want)
	h.want(wakes)
	h.compare("break", got, want, gotErr, nil)
}

func (h *history) inspect(key string) {
	got, err := h.store.Inspect(context.Background(), key)
	now := h.now.UnixMicro()
	if err != nil {
		h.errorf("inspect %s: %v", key, err)
		return
	}
	want := room.Look(h.rooms[key], key, now)
	h.logf("%d inspect %s", now, key)
	if !h.samePicture(got, want) {
		h.errorf("inspect %s:\n got %+v\nwant %+v", key, got, want)
	}
}

// pass moves the server's clock. In the millisecond in which a key of Redis expires it is
// still there, and with it the lease of a lone holder, or the id that was used once, which
// the model has ended: no step is taken then.
func (h *history) pass(d time.Duration) {
	h.now = h.now.Add(d)
	for h.keyExpires(h.now.UnixMilli()) {
		h.now = h.now.Add(time.Millisecond)
	}
	h.clock.Hold(h.now)
	h.logf("%v pass", d)
}

// keyExpires reports whether a lone holder's lease or a used id ends in that millisecond.
func (h *history) keyExpires(ms int64) bool {
	for key, r := range h.rooms {
		if h.lone[key] == ms {
			return true
		}
		for value := range maps.Values(r.Spent) {
			if room.SpentUntil(value) == ms {
				return true
			}
		}
	}
	return false
}

// retoken gives a lone holder the token that the server gave: the next one, where
// the general rule takes the clock's, and both rise.
func (h *history) retoken(key, id string, token int64) int64 {
	r := h.rooms[key]
	r.Token = token
	if i := slices.IndexFunc(r.Inside, func(p room.Party) bool { return p.ID == id }); i >= 0 {
		r.Inside[i].Token = token
	}
	return token
}

// adopt takes over the expiry that the server gave a lone holder, whose answer
// does not tell the time.
func (h *history) adopt(key, id string, got driver.Reply) {
	if got.State != driver.Granted || got.Clock != 0 || h.wrong != "" {
		return
	}
	at, err := h.client.PExpireTime(context.Background(), h.prefix+key).Result()
	if err != nil || at < 0 {
		h.errorf("expiry of %s: %v, %v", key, at, err)
		return
	}
	in := h.rooms[key].Inside
	i := slices.IndexFunc(in, func(p room.Party) bool { return p.ID == id })
	if off := in[i].Expiry - at.Milliseconds(); off != 0 {
		h.errorf("expiry of %s is off by %d ms", key, off)
	}
	in[i].Expiry, h.lone[key] = at.Milliseconds(), at.Milliseconds()
}

func (h *history) want(wakes []room.Wake) {
	for _, w := range wakes {
		if w.Address != room.Everybody {
			h.wanted = append(h.wanted, heard{w.Address, w.Hint})
			continue
		}
		for _, address := range h.address {
			h.wanted = append(h.wanted, heard{address, w.Hint})
		}
	}
}

// compareHints waits until as many hints were heard as were sent, and compares
// them address by address.
func (h *history) compareHints() {
	deadline := time.Now().Add(time.Minute)
	for {
		h.mu.Lock()
		got := slices.Clone(h.heard)
		h.mu.Unlock()
		if len(got) >= len(h.wanted) || time.Now().After(deadline) {
			h.matchHints(got)
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (h *history) matchHints(got []heard) {
	byAddress := func(a, b heard) int { return strings.Compare(a.address, b.address) }
	slices.SortStableFunc(got, byAddress)
	slices.SortStableFunc(h.wanted, byAddress)
	same := slices.EqualFunc(got, h.wanted, func(a, b heard) bool {
		return a.address == b.address && a.hint.Kind == b.hint.Kind && a.hint.Key == b.hint.Key && a.hint.ID == b.hint.ID && a.hint.Token == b.hint.Token &&
			a.hint.Clock == b.hint.Clock && a.hint.ConfirmWindow == b.hint.ConfirmWindow && h.near(a.hint.RetryAfter, b.hint.RetryAfter) && a.hint.Reason == b.hint.Reason
	})
	if !same {
		h.errorf("hints:\n got %+v\nwant %+v", got, h.wanted)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard, h.wanted = h.heard[len(got):], nil
}

func (h *history) compare(what string, got, want driver.Reply, gotErr, wantErr error) {
	h.t.Helper()
	for _, kind := range []error{driver.ErrInvalid, driver.ErrMismatch} {
		if errors.Is(gotErr, kind) != errors.Is(wantErr, kind) {
			h.errorf("%s: error %v, want %v", what, gotErr, wantErr)
			return
		}
	}
	if wantErr != nil {
		return
	}
	if gotErr != nil {
		h.errorf("%s: %v", what, gotErr)
		return
	}
	if !h.sameReply(got, want) {
		h.errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// sameReply compares all but the clock, which the first form's answers lack.
func (h *history) sameReply(a, b driver.Reply) bool {
	if a.State == driver.Released {
		a.Token, b.Token = 0, 0
	}
	same := a.State == b.State && a.Token == b.Token && a.Holds == b.Holds && a.Position == b.Position &&
		h.near(a.RetryAfter, b.RetryAfter) && a.Broken == b.Broken && a.Reason == b.Reason && a.Replayed == b.Replayed && len(a.Holders) == len(b.Holders)
	if !same || len(a.Holders) == 0 {
		return same
	}
	// Of several that stay equally long either may be shown.
	return a.Holders[0].ID != b.Holders[0].ID && h.near(a.Holders[0].Remaining, b.Holders[0].Remaining) ||
		h.sameHolder(a.Holders[0], b.Holders[0])
}

func (h *history) samePicture(a, b driver.Snapshot) bool {
	byID := func(a, b driver.Holder) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(a.Holders, byID)
	slices.SortFunc(b.Holders, byID)
	return a.Key == b.Key && a.Token == b.Token && a.Limit == b.Limit && h.near(a.Closed, b.Closed) &&
		slices.EqualFunc(a.Holders, b.Holders, h.sameHolder) && slices.EqualFunc(a.Waiters, b.Waiters, h.sameWaiter)
}

func (h *history) sameHolder(a, b driver.Holder) bool {
	return a.ID == b.ID && a.Owner == b.Owner && a.Mode == b.Mode && a.Weight == b.Weight && a.Token == b.Token &&
		a.Since.Equal(b.Since) && h.near(a.Remaining, b.Remaining) && maps.Equal(a.Labels, b.Labels) && a.Confirmed == b.Confirmed && !a.Foreign
}

func (h *history) sameWaiter(a, b driver.Waiter) bool {
	return a.ID == b.ID && a.Owner == b.Owner && a.Mode == b.Mode && a.Weight == b.Weight && a.Position == b.Position &&
		a.Since.Equal(b.Since) && h.near(a.Remaining, b.Remaining) && maps.Equal(a.Labels, b.Labels)
}

// near reports whether two durations are equal, because no time passes during a step.
func (h *history) near(a, b time.Duration) bool { return a == b }

// everythingExpires asserts that no key of the history lives for ever.
func (h *history) everythingExpires() {
	ctx := context.Background()
	keys := h.client.Scan(ctx, 0, h.prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if ttl, err := h.client.PTTL(ctx, keys.Val()).Result(); err != nil || ttl == -1 || ttl > 26*time.Hour {
			h.errorf("key %q lives for %v, %v", keys.Val(), ttl, err)
		}
	}
	if err := keys.Err(); err != nil {
		h.errorf("scan: %v", err)
	}
}
