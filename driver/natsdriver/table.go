package natsdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// bucket is a [roomdriver.Swapper], and the table over it. The version of a record is its revision,
// which is the number of its message in the stream, and the clock in ms.
type bucket struct {
	*link
	cfg options
}

// Update implements [roomdriver.Table].
func (b *bucket) Update(ctx context.Context, key string, f func(record []byte, now time.Time) (next []byte, err error)) error {
	return roomdriver.FromSwapper(b).Update(ctx, key, f)
}

const (
	// spare is how long a record stays beyond its end: each server removes it by its own clock.
	spare = 10 * time.Minute
	// marked is how long the mark of a removed record stays. Its revision is the version of the
	// missing record. After it the version is 0, as before the first record. A request that is
	// delayed for that long finds no record, as it expects, and writes one that is over.
	marked = time.Hour
)

// stream returns the name of the stream that holds the bucket.
func (b *bucket) stream() string { return "KV_" + b.cfg.bucket }

func (b *bucket) subject(key string) string { return "$KV." + b.cfg.bucket + "." + key }

// call sends a request to JetStream and decodes the answer. The error is of the table, unchanged.
func (b *bucket) call(ctx context.Context, what string, request any, answer interface{ err() error }) error {
	data, err := json.Marshal(request)
	if err != nil {
		return unavailable(err)
	}
	msg, err := b.ask(ctx, &nats.Msg{Subject: "$JS.API.STREAM." + what + "." + b.stream(), Data: data})
	if err != nil {
		return unavailable(err)
	}
	return unavailable(unpack(msg.Data, answer))
}

// unpack decodes an answer.
func unpack(data []byte, answer interface{ err() error }) error {
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the answer is not of JetStream: %w", err)
	}
	return answer.err()
}

// failure is the error in an answer.
type failure struct{ Error *jetstream.APIError }

func (f failure) err() error {
	if f.Error == nil {
		return nil
	}
	if advice := settings[f.Error.ErrorCode] + limits[f.Error.ErrorCode]; advice != "" {
		return fmt.Errorf("%w (%s)", f.Error, advice)
	}
	return f.Error
}

// state is a part of the stream's information.
type state struct {
	failure
	Now     time.Time `json:"ts"`
	Cluster *struct{ Leader string }
	Config  struct {
		Mirror *struct{ Name string }
		TTLs   bool `json:"allow_msg_ttl"`
		Keeps  int  `json:"max_msgs_per_subject"`
	}
}

// clock returns the clock of the stream's leader. It refuses a bucket that cannot hold locks.
func (b *bucket) clock(ctx context.Context) (time.Time, error) {
	var s state
	switch err := b.call(ctx, "INFO", struct{}{}, &s); {
	case err != nil:
		return time.Time{}, err
	case s.Cluster != nil && s.Cluster.Leader == "": // another server has answered
		return time.Time{}, unavailable(errSilent)
	case s.Config.Mirror != nil:
		return time.Time{}, permanent(fmt.Errorf("the bucket is a mirror of %s: connect to the origin", s.Config.Mirror.Name))
	case !s.Config.TTLs:
		return time.Time{}, permanent(errors.New(settings[noTTL]))
	case s.Config.Keeps != 1: // when the last record of a key ends, an older one with a longer life would be back
		return time.Time{}, permanent(fmt.Errorf("the bucket keeps old revisions: `nats stream edit %s --max-msgs-per-subject=1`", b.stream()))
	}
	return s.Now, nil
}

// message is a stored message.
type message struct {
	Subject string
	Seq     uint64
	Data    []byte
	Time    time.Time
}

// get asks the leader for a message. It returns a zero message if there is no such message.
func (b *bucket) get(ctx context.Context, request any) (m message, err error) {
	var answer struct {
		failure
		Message message
	}
	if err := b.call(ctx, "MSG.GET", request, &answer); err != nil && code(err) != noMessage {
		return m, err
	}
	return answer.Message, nil
}

// Load implements [roomdriver.Swapper].
func (b *bucket) Load(ctx context.Context, key string) (record []byte, version string, now time.Time, err error) {
	m, now, err := b.load(ctx, map[string]any{"last_by_subj": b.subject(encode(key))})
	if len(m.Data) > 0 { // otherwise it is the mark of a removed record
		record = m.Data
	}
	return record, fmt.Sprint(m.Seq, " ", now.UnixMilli()), now, err
}

// load gets a message and the clock, both after the call began. It may create the bucket.
func (b *bucket) load(ctx context.Context, request any) (m message, now time.Time, err error) {
	if m, now, err = b.both(ctx, request); code(err) == noStream {
		if err = b.create(ctx, err); err == nil {
			return b.both(ctx, request)
		}
	}
	return m, now, err
}

// both gets a message and the clock at the same time. The message may have been written since the
// clock was read, so the later of the two times is the clock.
func (b *bucket) both(ctx context.Context, request any) (m message, now time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		if now, err = b.clock(ctx); err != nil {
			cancel(err)
		}
	}()
	if m, err = b.get(ctx, request); err != nil {
		cancel(err)
	}
	<-done
	if now.Before(m.Time) {
		now = m.Time
	}
	return m, now, context.Cause(ctx)
}

// Swap implements [roomdriver.Swapper]. The revision also decides about a request that arrives late,
// was buffered, or reaches another leader. The outcome is certain only if the leader answers: a
// leader that has lost its office, or its connection, may have replicated the write.
func (b *bucket) Swap(ctx context.Context, key, version string, next []byte) (ok bool, err error) {
	msg := nats.NewMsg(b.subject(encode(key)))
	msg.Data = next
	revision, read, _ := strings.Cut(version, " ")
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, revision)
	if next == nil {
		msg.Header.Set("KV-Operation", "DEL") // for other readers of the bucket
	}
	// A message with a reason is removed by its number when it ends. For others the leader adds a
	// mark, without a look at its revision: in a cluster that mark may replace the next record.
	msg.Header.Set(jetstream.MarkerReasonHeader, "lock")
	if seconds, err := life(next, read); err != nil {
		return false, unavailable(err)
	} else if seconds > 0 {
		msg.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(seconds, 10))
	}
	answer, err := b.ask(ctx, msg)
	if err != nil {
		return false, err
	}
	var ack struct {
		failure
		Stream string
	}
	switch err = unpack(answer.Data, &ack); {
	case err == nil && ack.Stream != b.stream():
		return false, fmt.Errorf("stream %q has answered", ack.Stream)
	case code(err) == otherRevision, code(err) == changesNow:
		return false, nil
	case refused(err):
		return false, unavailable(err)
	}
	return err == nil, err
}

// life returns for how many seconds a record stays in the bucket, or 0 if it has no end. read is the
// clock of the bucket, in ms.
func life(record []byte, read string) (seconds int64, err error) {
	if record == nil {
		return int64(marked / time.Second), nil
	}
	end, forever, err := roomdriver.End(record)
	if forever || err != nil {
		return 0, err
	}
	ms, err := strconv.ParseInt(read, 10, 64)
	return int64((max(end.Sub(time.UnixMilli(ms)), 0) + spare) / time.Second), err
}

// pageSize is the number of records that a page looks at. Each takes a round trip.
const pageSize = 100

// List implements [roomdriver.Table]. The cursor is the number of a message. A record that is
// replaced during the listing gets a greater number.
func (b *bucket) List(ctx context.Context, prefix, cursor string) (page roomdriver.Page, err error) {
	from := uint64(1)
	if cursor != "" {
		if from, err = strconv.ParseUint(cursor, 10, 64); err != nil {
			return page, fmt.Errorf("cursor %q: %w", cursor, driver.ErrInvalid)
		}
	}
	first := b.subject("")
	request := map[string]any{"seq": from, "next_by_subj": first + filter(prefix)}
	m, now, err := b.load(ctx, request)
	page.Now = now
	for n := 1; err == nil && m.Seq > 0; n++ {
		key, ok := decode(strings.TrimPrefix(m.Subject, first))
		if ok && len(m.Data) > 0 && strings.HasPrefix(key, prefix) {
			page.Entries = append(page.Entries, roomdriver.Entry{Key: key, Record: m.Data})
		}
		if n == pageSize {
			page.Next = strconv.FormatUint(m.Seq+1, 10)
			break
		}
		request["seq"] = m.Seq + 1
		m, err = b.get(ctx, request)
	}
	return page, err
}

// create creates the bucket if the options allow it. Otherwise it returns the reason, with advice.
func (b *bucket) create(ctx context.Context, reason error) error {
	if b.cfg.replicas == 0 {
		return permanent(fmt.Errorf("there is no bucket %q: create it by `nats kv add %[1]s --replicas=3 --marker-ttl=1h`, "+
			"or open the store with create=true: %w", b.cfg.bucket, reason))
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	nc, err := b.conn(ctx)
	if err != nil {
		return unavailable(err)
	}
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: b.cfg.bucket, Description: "locks of leasehold", History: 1, Replicas: b.cfg.replicas, LimitMarkerTTL: marked,
		})
	}
	if code(err) == otherConfig || errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
		return nil
	}
	if advice := settings[code(err)]; advice != "" {
		err = fmt.Errorf("%w (%s)", err, advice)
	}
	return unavailable(err)
}

// Close implements [roomdriver.Table].
func (b *bucket) Close() error {
	b.close()
	return nil
}
