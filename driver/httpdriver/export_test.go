package httpdriver

// WithFresh has a driver use clients that a function makes, as for an https URL.
var WithFresh = withFresh

// NewClient returns a client as drivers have it by default.
var NewClient = newClient
