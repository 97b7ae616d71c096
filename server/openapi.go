package server

import (
	_ "embed"
	"encoding/json"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
)

// document is the OpenAPI document of all routes.
//
//go:embed openapi.json
var document []byte

// newDocument returns a function that returns the OpenAPI document, with the version of the
// program and without the paths that no route has. It is made at the first call.
func newDocument(routes []Route) func() []byte {
	return sync.OnceValue(func() []byte {
		var doc map[string]any
		if err := json.Unmarshal(document, &doc); err != nil {
			panic(err)
		}
		doc["info"].(map[string]any)["version"] = version()
		maps.DeleteFunc(doc["paths"].(map[string]any), func(path string, _ any) bool {
			return !slices.ContainsFunc(routes, func(rt Route) bool { return rt.Path == path })
		})
		text, err := json.MarshalIndent(doc, "", "  ")
		if err != nil {
			panic(err)
		}
		return append(text, '\n')
	})
}

// version returns the version of the module in this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == "github.com/leasehold-go/leasehold" && m.Version != "" {
				return m.Version
			}
		}
	}
	return "(devel)"
}
