package source

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// Files returns the files of a pattern that are built on this system, without tests.
func Files(pattern string) (files []string, err error) {
	all, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	for _, file := range all {
		built, err := build.Default.MatchFile(filepath.Split(file))
		if err != nil {
			return nil, err
		}
		if built && !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	return files, nil
}

// Go returns the changes of a Go file.
func Go(file, text string) (all []Mutant, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, text, 0)
	if err != nil {
		return nil, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	change := func(at token.Pos, before, after string) {
		all = append(all, Mutant{File: file, text: text, at: offset(at), before: before, after: after})
	}
	instead := func(at token.Pos, before string) {
		for _, after := range others[before] {
			change(at, before, after)
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			return false
		case *ast.BinaryExpr:
			op := n.Op.String()
			if n.Op == token.EQL {
				change(n.OpPos, op, "!=")
				break
			}
			instead(n.OpPos, op)
		case *ast.UnaryExpr:
			if n.Op == token.NOT || n.Op == token.SUB {
				change(n.OpPos, n.Op.String(), "")
			}
		case *ast.BasicLit:
			if n.Kind == token.INT || n.Kind == token.FLOAT {
				change(n.Pos(), n.Value, "("+n.Value+" + 1)")
			}
		case *ast.Ident:
			switch n.Name {
			case "true", "false":
				instead(n.Pos(), n.Name)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "min" || f.Name == "max") {
				instead(f.Pos(), f.Name)
			}
		case *ast.IfStmt:
			switch n.Cond.(type) {
			case *ast.CallExpr, *ast.Ident, *ast.SelectorExpr:
				before := text[offset(n.Cond.Pos()):offset(n.Cond.End())]
				change(n.Cond.Pos(), before, "!"+before)
			}
		}
		return true
	})
	return all, nil
}
