package httpdriver

// WithFresh sets the function that makes the clients of a driver, as for an https URL.
var WithFresh = withFresh

// NewClient returns the default client of a driver.
var NewClient = newClient
