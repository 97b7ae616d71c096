package httpdriver

// ErrRepeated is an answer that the service had to ask its store for twice.
var ErrRepeated = errRepeated

// WithFresh has a driver use clients that a function makes, as for an https URL.
var WithFresh = withFresh

// NewClient returns a client as drivers have it by default.
var NewClient = newClient
