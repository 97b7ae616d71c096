package server

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server/auth"
)

// PageMode selects the functions of the page for people at /.
type PageMode uint8

const (
	// PageOff serves neither the page nor /v1/overview.
	PageOff PageMode = iota
	// PageRead shows each principal the locks that it may read.
	PageRead
	// PageFull also offers to break leases, if the principal has that right.
	PageFull
)

// WithPage serves a page for people at /, and its data under /v1/overview. The page shows
// each principal the locks that it may read. All open pages together cause at most 200
// requests to the store per second, besides those of event streams. Default PageOff.
func WithPage(mode PageMode) Option {
	return func(c *config) error {
		if mode > PageFull {
			return fmt.Errorf("page mode %d: %w", mode, driver.ErrInvalid)
		}
		c.page = mode
		return nil
	}
}

// WithStoreName sets the name of the store on the page: its address, without secrets.
func WithStoreName(name string) Option {
	return func(c *config) error {
		c.storeName = name
		return nil
	}
}

// static holds the page: a few plain files, as they are served.
//
//go:embed static
var static embed.FS

// policy allows the page only to load its own files and to ask its own service. Pages have no
// inline scripts or styles, and text cannot become a script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var media = map[string]string{
	".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
}

// pageRoutes returns the routes of the page's files. The files contain no secrets, and are
// served without authentication: the page asks for a token if it needs one.
func pageRoutes() (all []route) {
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		name := e.Name()
		text, err := static.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		rt := Route{
			Method: http.MethodGet, Path: "/ui/" + name, Operation: "page." + name, Probe: true, Verb: auth.Anyone,
			Summary: "A file of the page for people", Media: media[path.Ext(name)],
			Success: []int{http.StatusOK, http.StatusNotModified},
		}
		if name == "index.html" {
			rt.Path, rt.Operation, rt.Summary = "/", "page", "The page for people"
		}
		all = append(all, route{rt, pageFile(rt.Media, text)})
	}
	return all
}

// pageFile returns the handler of a file of the page.
func pageFile(media string, text []byte) handler {
	sum := sha256.Sum256(text)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return func(_ *Server, w *answer, r *http.Request) error {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		if strings.Contains(r.Header.Get("If-None-Match"), etag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		w.send(http.StatusOK, media+"; charset=utf-8", text)
		return nil
	}
}
