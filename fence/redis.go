package fence

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// Redis fences resources in Redis or Valkey. It is safe for concurrent use if
// Eval is.
type Redis struct {
	// Eval runs a script, with any client. With go-redis:
	//
	//	func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
	//		return rdb.Eval(ctx, script, keys, args...).Result()
	//	}
	Eval func(ctx context.Context, script string, keys []string, args ...any) (any, error)
}

//go:embed redis.lua
var redisScript string

// Do raises the fence of a resource to a claim and runs body, in one step. A
// claim that is stale is refused with a [*StaleError], and body is not run.
//
// fence is the key of a hash that stands for the resource and is used by this
// package alone. It must not expire, nor be evicted, while writes of old holders
// may come. In a cluster it lies in the slot of the keys: "{orders/42}:fence".
//
// body is Lua that sees the given keys and args as KEYS and ARGV and returns the
// result, such as:
//
//	return redis.call('SET', KEYS[1], ARGV[1])
//
// If body returns several values, the result is their list, up to the first nil. If body returns
// no value, or nil, the result is nil.
//
// If body fails, or returns an error as redis.error_reply and redis.pcall make them,
// Do returns that error. The fence stays raised, and the earlier effects of body remain. After
// any other error of Eval it is unknown whether the script ran.
func (r Redis) Do(ctx context.Context, fence string, by Claim, body string, keys []string, args ...any) (any, error) {
	if err := by.check(fence); err != nil {
		return nil, err
	}
	reply, err := r.Eval(ctx, strings.Replace(redisScript, "-- BODY", body, 1),
		append([]string{fence}, keys...), append([]any{by.Token, by.Owner}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("fence: %q: %w", fence, err)
	}
	list, _ := reply.([]any)
	switch {
	case len(list) == 3 && list[0] == int64(0):
		return nil, stale(fence, by, list)
	case len(list) == 1:
		return nil, nil // body returned no value
	case len(list) == 2:
		return list[1], nil
	}
	return nil, fmt.Errorf("fence: %q: unexpected reply %v", fence, reply)
}

// stale returns the refusal in a reply.
func stale(fence string, by Claim, reply []any) error {
	token, err := strconv.ParseInt(text(reply[1]), 10, 64)
	if err != nil {
		return fmt.Errorf("fence: %q: greatest token: %w", fence, err)
	}
	return &StaleError{Resource: fence, Claim: by, Greatest: Claim{Token: token, Owner: text(reply[2])}}
}

// text returns a string of a reply, which some clients return as bytes.
func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
