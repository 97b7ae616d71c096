package leaseholdprom_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/leaseholdprom"
)

func Example() {
	metrics := leaseholdprom.New()
	registry := prometheus.NewRegistry() // or prometheus.MustRegister(metrics)
	registry.MustRegister(metrics)
	client, err := leasehold.New(memdriver.New(),
		leasehold.WithObserver(metrics.Observer()),
		leasehold.WithClass(func(key string) string {
			class, _, _ := strings.Cut(key, "/")
			return class
		}))
	if err != nil {
		panic(err)
	}
	defer client.Close()

	_, _ = client.Mutex("orders/42").Lock(context.Background())
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == "leasehold_acquisitions_total" {
			for _, label := range f.Metric[0].Label {
				fmt.Println(label.GetName(), label.GetValue())
			}
			fmt.Println(f.Metric[0].Counter.GetValue())
		}
	}
	// Output:
	// class orders
	// kind mutex
	// outcome granted
	// 1
}
