//go:build !small

package stores

import (
	"github.com/leasehold-go/leasehold/driver/etcddriver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver"
	"github.com/leasehold-go/leasehold/driver/natsdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver"
)

// optional lists the stores with large client libraries. The build tag small leaves them out.
var optional = []kind{
	{[]string{"mysql", "mariadb"}, []string{"mysql://user:password@host:3306/database"}, opened(mysqldriver.Open)},
	{[]string{"nats", "tls"}, []string{"nats://user:password@n1,n2,n3/bucket"}, opened(natsdriver.Open)},
	{[]string{quorumPrefix + "mysql", quorumPrefix + "mariadb", quorumPrefix + "nats", quorumPrefix + "tls"}, nil, nil},
	{[]string{"etcd", "etcds"}, []string{"etcd://user:password@h1,h2,h3"}, opened(etcddriver.Open)},
	{[]string{"s3"}, []string{"s3://bucket/prefix?region=eu-central-1"}, opened(s3driver.Open)},
}
