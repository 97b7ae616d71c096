package main

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// plainStores are the ways to a store without a prefix.
func plainStores() map[string]func(*redistest.Server) (driver.Driver, error) {
	return map[string]func(*redistest.Server) (driver.Driver, error){
		"redisdriver.New": func(srv *redistest.Server) (driver.Driver, error) {
			client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			defer client.Close() // the driver takes over how it connects, not the client
			return redisdriver.New(client, redisdriver.WithPrefix(""))
		},
		"redisdriver.Open": func(srv *redistest.Server) (driver.Driver, error) {
			return redisdriver.Open(srv.URL() + "?prefix=")
		},
		"rueidisdriver.New": func(srv *redistest.Server) (driver.Driver, error) {
			return rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{srv.Addr()}}, rueidisdriver.WithPrefix(""))
		},
		"rueidisdriver.Open": func(srv *redistest.Server) (driver.Driver, error) {
			return rueidisdriver.Open(srv.URL() + "?prefix=")
		},
	}
}
