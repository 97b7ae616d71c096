module github.com/leasehold-go/leasehold/driver/mysqldriver

go 1.25.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/leasehold-go/leasehold v0.1.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/anishathalye/porcupine v1.3.1 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
