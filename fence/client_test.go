package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/leasehold-go/leasehold/fence"
)

// Some clients, such as redigo, return strings as bytes.
func TestRedis_KnowsARefusalByWhateverClient(t *testing.T) {
	for what, reply := range map[string]any{
		"text":  []any{int64(0), "42", "worker-7"},
		"bytes": []any{int64(0), []byte("42"), []byte("worker-7")},
	} {
		r := fence.Redis{Eval: func(context.Context, string, []string, ...any) (any, error) { return reply, nil }}
		_, err := r.Do(t.Context(), "fence", fence.Claim{Token: 41, Owner: "worker-6"}, "return 1", nil)
		var stale *fence.StaleError
		if !errors.As(err, &stale) || stale.Greatest != (fence.Claim{Token: 42, Owner: "worker-7"}) {
			t.Errorf("%s: %v, want the refusal by 42 of worker-7", what, err)
		}
	}
}
