package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fence"
)

func ExampleSQL_Do() {
	var (
		ctx   context.Context
		db    *sql.DB
		lease *leasehold.Lease
	)
	fences := fence.SQL{Placeholder: fence.Dollar} // PostgreSQL
	charge := func() error {
		return fences.Do(ctx, db, "orders/42", fence.Of(lease), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE orders SET charged = true WHERE id = 42`)
			return err
		})
	}
	_ = charge
}

func ExampleRedis_Do() {
	var (
		ctx   context.Context
		rdb   redis.UniversalClient
		lease *leasehold.Lease
	)
	fences := fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		return rdb.Eval(ctx, script, keys, args...).Result()
	}}
	save := func(report string) error {
		_, err := fences.Do(ctx, "{report}:fence", fence.Of(lease),
			`return redis.call('SET', KEYS[1], ARGV[1])`, []string{"{report}"}, report)
		return err
	}
	_ = save
}

func ExampleStaleError() {
	err := error(&fence.StaleError{
		Resource: "orders/42",
		Claim:    fence.Claim{Token: 5, Owner: "alpha"},
		Greatest: fence.Claim{Token: 7, Owner: "beta"},
	})
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		fmt.Println(stale.Greatest.Token, err)
	}
	// Output: 7 fence: "orders/42": stale token: 5 of alpha, after 7 of beta
}
