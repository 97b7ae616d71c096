package postgresdriver

import (
	"os"
	"path/filepath"
	"testing"
)

// A password is rotated while the store is in use.
func TestOpen_PassfileIsReadForEachConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pgpass")
	write := func(password string) {
		if err := os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	d, err := Open("postgres://app@localhost:1/db?sslmode=disable&passfile=" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	write("two")
	cfg := d.table.pool.conns.Config()
	if err := cfg.BeforeConnect(t.Context(), cfg.ConnConfig); err != nil || cfg.ConnConfig.Password != "two" {
		t.Errorf("password %q, %v, want two", cfg.ConnConfig.Password, err)
	}
}
