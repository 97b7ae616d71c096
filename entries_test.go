package leasehold_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parsed returns the files of this directory, or its tests.
func parsed(t *testing.T, tests bool) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// entries are the exported functions, as "Do", and methods, as "Mutex.Lock", that a
// program calls. What package fmt and errors call needs no example.
func entries(files []*ast.File) (all []string) {
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || slices.Contains([]string{"Error", "Unwrap", "String", "Is"}, fn.Name.Name) {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				of := fn.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				id, ok := of.(*ast.Ident)
				if !ok || !id.IsExported() {
					continue
				}
				name = id.Name + "." + name
			}
			all = append(all, name)
		}
	}
	return all
}

// called are the names after a dot in the code of an example.
func called(code ast.Node) map[string]bool {
	names := make(map[string]bool)
	ast.Inspect(code, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			names[s.Sel.Name] = true
		}
		return true
	})
	return names
}

// named have examples of their own, under which the documentation shows their methods.
var named = []string{"Mutex", "RWMutex", "RLocker", "Semaphore", "Places", "Multi", "Election", "Lease", "MultiLease"}

// Every function and method is called by an example that is run, and those of a lock
// and of a lease by one that is named after its type.
func TestExamples_ShowEveryEntry(t *testing.T) {
	calls := make(map[string]bool)
	for _, x := range doc.Examples(parsed(t, true)...) {
		if x.Output == "" && !x.EmptyOutput {
			t.Errorf("Example%s has no output", x.Name)
		}
		of, _, _ := strings.Cut(x.Name, "_")
		for name := range called(x.Code) {
			calls[name], calls[of+"."+name] = true, true
		}
	}
	all := entries(parsed(t, false))
	if len(all) < 80 {
		t.Fatalf("%d entries were found", len(all))
	}
	for _, name := range all {
		of, method, ok := strings.Cut(name, ".")
		if ok && !slices.Contains(named, of) {
			name = method
		}
		if !calls[name] {
			t.Errorf("no example calls %s of %s", name, of)
		}
	}
}
