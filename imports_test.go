package leasehold_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/leasehold-go/leasehold"
	core   = module + "/driver"
	inner  = module + "/internal/..."
)

// stores are the packages that implement a driver. They are adapters around
// the library and know neither it nor one another.
var stores = []string{
	module + "/filedriver",
	module + "/httpdriver",
	module + "/memdriver",
	module + "/postgresdriver",
	module + "/quorumdriver",
	module + "/redisdriver",
	module + "/rueidisdriver",
}

// direction is what a package may reach.
type direction struct {
	pkg string
	// imports are the packages outside the standard library that it may name
	// itself. Nil allows all that reaches does.
	imports []string
	// reaches are the packages outside the standard library on which it may
	// depend in the end. Nil allows all but the library and the stores.
	reaches []string
	why     string
}

func directions() []direction {
	all := []direction{
		{
			pkg:     module,
			imports: []string{core, inner},
			reaches: []string{core, inner, "golang.org/x/sys/..."},
			why:     "users of the library get no store, and no dependency, that they did not ask for",
		},
		{
			pkg:     core,
			reaches: []string{},
			why:     "the contract is for everybody to implement",
		},
		{
			pkg:     module + "/internal/room",
			reaches: []string{core},
			why:     "the rule is pure, so that every store and the reference model can share it",
		},
		{
			pkg:     module + "/internal/timing",
			reaches: []string{core},
			why:     "what lasts how long is the same for all who speak to a store",
		},
		{
			pkg:     module + "/internal/session",
			imports: []string{core, module + "/internal/clock", module + "/internal/oneline", module + "/internal/timing"},
			why:     "the engine serves the library and the service alike, and knows neither",
		},
		{
			pkg:     module + "/server/auth",
			imports: []string{core, module + "/internal/oneline", module + "/server/internal/check"},
			why:     "who asks is found out without a look at what is asked",
		},
		{
			pkg:     module + "/fence",
			reaches: []string{},
			why:     "a resource that checks tokens needs nothing of the locks",
		},
		{
			pkg:     core + "/roomdriver",
			reaches: []string{core, module + "/internal/room", module + "/internal/hints"},
			why:     "a store over a table brings nothing along but its table",
		},
		{
			pkg: module + "/driver/drivertest",
			why: "the conformance suite belongs to implementors and favours no store",
		},
	}
	for _, store := range stores {
		all = append(all, direction{pkg: store, why: "a store is an adapter around the library"})
	}
	return all
}

// TestImports_PointOneWay holds the arrows of docs/design.md on every system
// for which the library is built. A package that does not exist breaks no rule.
func TestImports_PointOneWay(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			pkgs := load(t, system)
			for _, d := range directions() {
				if pkg, ok := pkgs[d.pkg]; ok {
					d.check(t, pkg)
				}
			}
		})
	}
}

// listing is what `go list` says about a package, its tests excepted.
type listing struct {
	ImportPath    string
	Imports, Deps []string
}

func (d direction) check(t *testing.T, pkg listing) {
	t.Helper()
	for _, path := range pkg.Imports {
		if !standard(path) && d.imports != nil && !within(d.imports, path) {
			t.Errorf("%s imports %s: %s", d.pkg, path, d.why)
		}
	}
	for _, path := range pkg.Deps {
		if !d.mayReach(path) {
			t.Errorf("%s depends on %s: %s", d.pkg, path, d.why)
		}
	}
}

func (d direction) mayReach(path string) bool {
	switch {
	case standard(path):
		return true
	case d.reaches != nil:
		return within(d.reaches, path)
	case path == module:
		return false
	default:
		owner := slices.IndexFunc(stores, func(store string) bool { return within([]string{store + "/..."}, path) })
		return owner < 0 || stores[owner] == d.pkg
	}
}

// standard reports whether the path is the standard library's: no domain.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// within reports whether the path is one of the patterns, or below one that
// ends in "/...".
func within(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, ok := strings.CutSuffix(pattern, "/...")
		return path == tree || ok && strings.HasPrefix(path, tree+"/")
	})
}

// load lists the packages that have a direction as they are built for a system, but for
// those that do not exist, and fails the test if one cannot be read.
func load(t *testing.T, system string) map[string]listing {
	t.Helper()
	args := []string{"list", "-json=ImportPath,Imports,Deps"}
	for _, d := range directions() {
		if dir := "./" + strings.TrimPrefix(strings.TrimPrefix(d.pkg, module), "/"); hasSource(t, dir) {
			args = append(args, dir)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s for %s: %v\n%s", strings.Join(args, " "), system, err, &problem)
	}
	pkgs := make(map[string]listing)
	for in := json.NewDecoder(bytes.NewReader(out)); in.More(); {
		var pkg listing
		if err := in.Decode(&pkg); err != nil {
			t.Fatalf("go list for %s: %v", system, err)
		}
		pkgs[pkg.ImportPath] = pkg
	}
	if len(pkgs) != len(args)-2 {
		t.Fatalf("go list for %s: %d packages of %d", system, len(pkgs), len(args)-2)
	}
	return pkgs
}

// hasSource reports whether the directory has Go files that are not tests.
func hasSource(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool { return !strings.HasSuffix(file, "_test.go") })
}

func TestImports_TheRulesCanBeBroken(t *testing.T) {
	for _, d := range directions() {
		if d.mayReach(module) || d.imports != nil && within(d.imports, stores[0]) {
			t.Errorf("%s may import the library or a store", d.pkg)
		}
		for _, store := range stores {
			if below := store + "/internal/x"; d.mayReach(below) != (store == d.pkg) {
				t.Errorf("%s reaching %s: %t", d.pkg, below, d.mayReach(below))
			}
		}
	}
}

// TestModule_RequiresNothingThatOnlyTheCommandNeeds reads go.mod, tests' and
// indirect requirements included, because they bind the versions of those who
// require this module.
func TestModule_RequiresNothingThatOnlyTheCommandNeeds(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct{ Require, Replace []struct{ Path string } }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	ofTheCommand := []string{
		"github.com/spf13/...", "golang.org/x/term", "google.golang.org/grpc",
		"go.opentelemetry.io/otel/sdk/...", "go.opentelemetry.io/otel/exporters/...",
	}
	for _, required := range mod.Require {
		if within(ofTheCommand, required.Path) {
			t.Errorf("go.mod requires %s, which belongs into cmd/leasehold/go.mod", required.Path)
		}
	}
	if len(mod.Require) == 0 || len(mod.Replace) > 0 {
		t.Errorf("go.mod has %d requirements and %d replacements, want some and none", len(mod.Require), len(mod.Replace))
	}
}
