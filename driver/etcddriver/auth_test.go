package etcddriver

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold/driver"
)

// TestAuth_RightsAndPasswords has a user with the rights that the documentation names.
func TestAuth_RightsAndPasswords(t *testing.T) {
	c := startCluster(t, 1)
	admin := dial(t, c.url())
	defer admin.Close()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		noError(t, err)
	}
	must(admin.UserAdd(ctx, "root", "r"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "locks"))
	readwrite := clientv3.PermissionType(clientv3.PermReadWrite)
	must(admin.RoleGrantPermission(ctx, "locks", "leasehold/", clientv3.GetPrefixRangeEnd("leasehold/"), readwrite))
	must(admin.UserAdd(ctx, "app", "secret"))
	must(admin.UserGrantRole(ctx, "app", "locks"))
	must(admin.UserAdd(ctx, "stranger", "secret"))
	must(admin.AuthEnable(ctx))

	as := func(user string) string { return strings.Replace(c.url(), "://", "://"+user, 1) }
	app := openURL(t, as("app:secret@"))
	if reply := acquire(t, app, request("a", time.Minute)); reply.State != driver.Granted {
		t.Errorf("%+v", reply)
	}
	if _, err := app.Check(ctx); err != nil {
		t.Error(err)
	}
	hints := map[string]string{"app:wrong@": "wrong user name or password", "stranger:secret@": "readwrite", "": "asks for a user"}
	for user, hint := range hints {
		_, err := openURL(t, as(user)).Acquire(ctx, request("b", time.Minute))
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", user, err)
		}
	}
}
