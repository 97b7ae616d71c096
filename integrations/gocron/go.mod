module github.com/leasehold-go/leasehold/integrations/gocron

go 1.25.0

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/google/uuid v1.6.0
	github.com/leasehold-go/leasehold v0.1.0
)

require (
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

// In a clone the library is the one beside it. Whoever requires this module gets the
// version above.
replace github.com/leasehold-go/leasehold => ../../
