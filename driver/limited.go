package driver

// Limited is implemented by stores that cannot serve every kind of request,
// and by wrappers around drivers that may be such stores.
type Limited interface {
	// Supports returns nil if a request of this shape is supported, and otherwise an
	// error that names the missing feature and matches [errors.ErrUnsupported]. The shape
	// is Mode, Policy, Ordered, Limit, Resize, Weight, Reenter, Guard and TTL, and
	// whether LockDelay and MinToken are above zero. Supports sends no request and its
	// answer never changes, so that an unsupported lock is refused when it is made.
	Supports(req Request) error
}

// Supports reports whether d serves requests of the shape of req. A driver
// that is not [Limited] serves all.
func Supports(d Driver, req Request) error {
	if s, ok := As[Limited](d); ok {
		return s.Supports(req)
	}
	return nil
}
