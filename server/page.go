package server

import (
	"fmt"
	"net/http"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/page"
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

// pageRoutes returns the routes of the page's files. The files contain no secrets, and are
// served without authentication: the page asks for a token if it needs one.
func pageRoutes() (all []route) {
	for _, f := range page.Files() {
		all = append(all, route{Route: Route{
			Method: http.MethodGet, Path: f.Path, Operation: f.Operation, Probe: true, Verb: auth.Anyone,
			Summary: f.Summary, Media: f.Media, Success: []int{http.StatusOK, http.StatusNotModified},
		}, Handle: func(_ *Server, w *answer, r *http.Request) error {
			f.ServeHTTP(w, r)
			return nil
		}})
	}
	return all
}
