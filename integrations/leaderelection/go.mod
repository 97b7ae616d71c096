module github.com/leasehold-go/leasehold/integrations/leaderelection

go 1.25.0

require github.com/leasehold-go/leasehold v0.1.0

require golang.org/x/sys v0.47.0 // indirect

// In a clone the library is the one beside it. Whoever requires this module gets the
// version above.
replace github.com/leasehold-go/leasehold => ../../
