package leaseholdcertmagic_test

import (
	"context"
	"fmt"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	leaseholdcertmagic "github.com/leasehold-go/leasehold/integrations/certmagic"
)

// Servers that share a directory have their locks in a store.
func ExampleWrap() {
	client, _ := leasehold.New(memdriver.New()) // of several hosts: a server
	defer client.Close()
	certificates := &certmagic.FileStorage{Path: os.TempDir()}
	certmagic.Default.Storage = leaseholdcertmagic.Wrap(certificates, client)

	ctx := context.Background()
	_ = certmagic.Default.Storage.Lock(ctx, "issue_cert_example.com") // as certmagic does
	again, _ := certmagic.Default.Storage.(certmagic.TryLocker).TryLock(ctx, "issue_cert_example.com")
	fmt.Println("locked twice:", again)
	_ = certmagic.Default.Storage.Unlock(ctx, "issue_cert_example.com")
	// Output: locked twice: false
}
