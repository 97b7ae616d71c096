// Package s3driver keeps locks in a bucket of Amazon S3, or of a compatible store with
// conditional writes, for programs that have a bucket and no database. It supports every kind of
// lock.
//
//	client := s3.NewFromConfig(cfg)
//	store, err := s3driver.New(client, "my-bucket")
//	…
//	locks, err := leasehold.New(store)
//
// The client is the AWS SDK for Go v2: minio-go makes a program 2.4 MB smaller, but lacks conditional
// deletion, and a driver cannot turn off the repetitions of an application's client, which hide the
// outcome of a write.
//
// # How it uses the bucket
//
// Each lock in use is one object below the prefix: its name is the lock's name in base64url. A verb
// reads the object and replaces it by a conditional write (If-None-Match for a new object, If-Match
// for a present one), so the store refuses one of two writers, which reads again. A call without a
// change, such as a try for a lock that is held, only reads. The driver sends each request once.
//
// A record stays for an hour after the last token of its lock, so that the next token is greater.
// Then a process that still uses locks deletes it by a condition, within ten minutes. In a store that
// cannot delete by a condition it remains as an empty object.
//
// Some stores ignore conditions, and would grant a lock to each caller. So the first write of a driver
// is a probe: it plays each condition on an object with a random name. If the store does not pass, all
// calls that write fail with driver.ErrPermanent.
//
// # The clock
//
// The clock is the Date header of the store's answers, read in steps of two seconds. Servers of one
// store may differ by three seconds: everything that is written lasts five seconds longer than its
// caller expects, so the clock of one server ends no lease early that another one has written.
// The lock of a dead holder is free up to seven seconds after the end of its TTL. A TTL below 15 s
// is refused with driver.ErrInvalid ([MinTTL]). If servers differ by more than three seconds, two
// clients may hold one lock for the time beyond; Check measures that. A cache that answers with an
// old Date is noticed by its Age header only.
//
// # Waiting
//
// The store sends no messages. A waiter asks twice a second, its place in the queue is kept for some
// eight seconds after it has died, and holders notice a break at a renewal.
//
// # Costs
//
// With $5 for a million writes and listings, $0.40 for a million reads, and free deletions (S3
// Standard in us-east-1, 2026; check the prices of your region):
//
//	lock and unlock, free           2 reads, 2 writes           $11 for a million
//	try of a lock that is held      1 read                      $0.40 for a million
//	held lease, TTL 30 s            1 read, 1 write per 10 s    $0.05 a day
//	process that waits for a lock   2 reads a second,           $0.29 a day
//	                                1 write per 2 s
//	first write of a driver         6 writes, 2 reads           $31 for a million
//	list                            1 listing per 200 locks, 1 read for each
//	sweep                           1 listing per 1000 records and 10 minutes, 1 read for each
//	                                record that was not written for an hour
//
// A longer TTL makes a lease cheaper. A retry with back-off instead of the queue
// ([leasehold.WithRetry]) makes waiting cheaper: it only reads. Processes that wait for one lock refuse
// each other's writes: ten of them make 25 writes a second, and forty 120. A readiness probe of
// `leasehold serve` costs as much as a lock and an unlock. A million leases, and locks that change hands
// many times a second, are not for this store.
//
// # Requirements on the store
//
// Reads, listings and conditions must be strongly consistent, as on S3. Replication to another region
// makes another store, with locks of its own. Versioning keeps, and charges for, each old record. No
// lifecycle rule may delete objects of the prefix, and the bucket must have no default retention.
// A directory bucket (S3 Express) has not been tried.
//
// # Rights
//
// The credentials need s3:GetObject, s3:PutObject and s3:DeleteObject on the objects of the prefix,
// and s3:ListBucket on the bucket: without it a missing record looks like a forbidden one.
package s3driver
