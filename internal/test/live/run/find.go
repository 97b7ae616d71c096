package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// suite is a package with its live tests.
type suite struct {
	dir   string
	tests []string
}

// find returns the packages below root that have live tests: tests whose first statement
// calls [live.Test]. It leaves out testdata and modules that have a workspace of their own.
func find(root string) (suites []suite, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"testdata", ".git", "bench", "examples", "integrations", "packaging"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		tests, err := liveTests(path)
		if err != nil || len(tests) == 0 {
			return err
		}
		dir := "./" + filepath.ToSlash(filepath.Dir(path))
		if n := len(suites); n > 0 && suites[n-1].dir == dir {
			suites[n-1].tests = append(suites[n-1].tests, tests...)
			return nil
		}
		suites = append(suites, suite{dir, tests})
		return nil
	})
	return suites, err
}

// liveTests returns the names of the live tests in a file.
func liveTests(path string) (names []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && strings.HasPrefix(f.Name.Name, "Test") && f.Recv == nil && len(f.Body.List) > 0 && marks(f.Body.List[0]) {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}

// marks reports whether a statement calls live.Test.
func marks(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := e.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	return ok && pkg.Name == "live" && f.Sel.Name == "Test"
}
