package leaseholdaudit_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/leaseholdaudit"
)

func Example() {
	name := filepath.Join(os.TempDir(), fmt.Sprint("locks-", os.Getpid(), ".jsonl"))
	defer os.Remove(name)
	file, err := leaseholdaudit.Open(name)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	observer := leaseholdaudit.New(file, func(err error) { slog.Error("audit", "error", err) })
	client, err := leasehold.New(memdriver.New(), leasehold.WithObserver(observer))
	if err != nil {
		panic(err)
	}
	defer client.Close()

	// logrotate renames the file and sends the signal.
	rotated := make(chan os.Signal, 1)
	signal.Notify(rotated, syscall.SIGHUP)
	go func() {
		for range rotated {
			if err := file.Reopen(); err != nil {
				slog.Error("audit", "error", err)
			}
		}
	}()

	_ = leasehold.Do(context.Background(), client.Mutex("orders/42"), func(context.Context) error { return nil })

	text, _ := os.ReadFile(name)
	fmt.Println(strings.Count(string(text), "\n"), strings.Contains(string(text), `"reason":"released"`))
	// Output: 2 true
}
