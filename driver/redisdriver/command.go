package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// command is a go-redis command that records whether it was written. Every failure before
// that is definite: go-redis may have waited for a connection, or the server may have
// refused the greeting.
type command struct {
	redis.Cmd
	written bool
	mark    string   // the word that is marked
	short   [32]byte // holds the mark while it is written, if it fits
}

// writeMark is a word of a command. Its encoding shows that the command is being written.
type writeMark struct{ *command }

// MarshalBinary implements [encoding.BinaryMarshaler]: go-redis calls it when it
// writes the command to its connection.
func (m writeMark) MarshalBinary() ([]byte, error) {
	m.written = true
	return append(m.short[:0], m.mark...), nil
}

func newCommand(ctx context.Context, words []string) *command {
	c := new(command)
	c.init(ctx, words)
	return c
}

// init converts words, most of them without a copy. It marks the last word, since go-redis
// itself reads the earlier ones.
func (c *command) init(ctx context.Context, words []string) {
	last := len(words) - 1
	c.mark = words[last]
	args := make([]any, len(words))
	for i := range words[:last] {
		args[i] = &words[i]
	}
	args[last] = writeMark{c}
	c.Cmd = *redis.NewCmd(ctx, args...)
}

// outcome returns the error of the command, or err if go-redis returned that instead.
func (c *command) outcome(err error) error {
	if c.Err() != nil || c.written {
		return c.Err()
	}
	return err
}

// result returns the outcome of a command as [redisroom.Client] defines it.
func (c *adapter) result(try *interrupt.Call, cmd *command, err error) (any, error) {
	switch err = cmd.outcome(err); {
	case !cmd.written:
		return nil, c.unsent(try, err)
	case err == nil:
		return value(cmd.Val()), nil
	case err == redis.Nil: //nolint:errorlint // a wrapped one is not this command's
		return nil, nil
	}
	return nil, c.failure(try.Context, err)
}

// unsent returns the error of a command that was not written to any connection.
func (c *adapter) unsent(try *interrupt.Call, err error) error {
	try.Forsake()
	if err == nil {
		err = errors.New("no connection")
	}
	err = c.failure(try.Context, err)
	if named, _ := c.named.Load().(string); !errors.Is(err, driver.ErrUnavailable) {
		err = redisroom.PrimaryError(named, err)
	}
	return redisroom.ConnectError(err)
}

// value replaces the errors inside a reply.
func value(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = value(v[i])
		}
	case map[any]any:
		var pairs []any
		for name, item := range v {
			pairs = append(pairs, name, value(item))
		}
		return pairs
	case redis.Error:
		return redisroom.ReplyError(v.Error())
	}
	return v
}

// failure returns an error of go-redis as [redisroom.Client] defines it.
func (c *adapter) failure(ctx context.Context, err error) error {
	var reply redis.Error
	var op *net.OpError
	var dial *dialError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dial):
		return redisroom.ConnectError(err)
	case errors.As(err, &reply):
		return redisroom.ReplyError(reply.Error())
	case errors.Is(err, redis.ErrClosed):
		return redisroom.ErrClosed
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return fmt.Errorf("%w: no free connection: %w", driver.ErrUnavailable, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
