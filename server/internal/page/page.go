// Package page is the page for people that the service answers at /: a few plain files,
// as they are served, embedded in the program.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed static
var static embed.FS

// policy allows the page only to load its own files and to ask its own service. Pages have no
// inline scripts or styles, and text cannot become a script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// File is a file of the page.
type File struct {
	Path, Operation, Summary, Media string

	text []byte
	etag string
}

var media = map[string]string{
	".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
}

// Files returns all files.
func Files() (all []*File) {
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
		sum := sha256.Sum256(text)
		f := &File{
			Path: "/ui/" + name, Operation: "page." + name, Summary: "A file of the page for people", Media: media[path.Ext(name)],
			text: text, etag: `"` + hex.EncodeToString(sum[:8]) + `"`,
		}
		if name == "index.html" {
			f.Path, f.Operation, f.Summary = "/", "page", "The page for people"
		}
		all = append(all, f)
	}
	return all
}

// ServeHTTP implements [http.Handler].
func (f *File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.Media+"; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(f.text)))
	_, _ = w.Write(f.text) // an error means that the browser has gone
}
