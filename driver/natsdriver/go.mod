module github.com/leasehold-go/leasehold/driver/natsdriver

go 1.25.0

require (
	github.com/leasehold-go/leasehold v0.1.0
	github.com/nats-io/nats.go v1.53.1
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/klauspost/compress v1.18.5 // indirect
	github.com/nats-io/nkeys v0.4.15 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.49.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
