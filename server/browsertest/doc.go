// Package browsertest tests the page of the service in a real browser, headless
// Chromium. It is a module of its own, so that what drives the browser never reaches the
// library's users.
package browsertest
