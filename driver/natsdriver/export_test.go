package natsdriver

// Server returns the URL of the server that the tests share.
func Server() string { return shared().url() }
