package server

import (
	"fmt"
	"net/http"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/page"
)

// PageMode says what the page for people at / can do.
type PageMode uint8

const (
	// PageOff serves no page, and nothing under /v1/overview.
	PageOff PageMode = iota
	// PageRead shows locks to those who may read them.
	PageRead
	// PageFull also offers to break a lease, to those who may break it.
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

// WithStoreName sets what the page calls the store: its address, without secrets.
func WithStoreName(name string) Option {
	return func(c *config) error {
		c.storeName = name
		return nil
	}
}

// pageRoutes are the files of the page. They hold nothing that is secret, so that they
// are served to everybody: the page asks for a token if it needs one.
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
