package etcddriver

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// Check implements [driver.Checker]. It asks each member of the cluster at its advertised address,
// and needs no more rights than locks do.
func (d *Driver) Check(ctx context.Context) (driver.Report, error) {
	var c doctor.Checkup
	ctx, cancel := context.WithTimeout(ctx, d.table.timeout)
	defer cancel()
	client, err := d.table.connect(ctx)
	if err != nil {
		return c.Report, unavailable(explain(err))
	}
	list, err := client.MemberList(ctx)
	if err != nil {
		return c.Report, unavailable(explain(err))
	}
	voters := 0
	for _, m := range list.Members {
		c.Subject = m.Name
		if m.IsLearner {
			c.Found(driver.Notice, "role", "is a learner", "it serves no locks", "")
			continue
		}
		voters++
		checkMember(ctx, &c, client, m.ClientURLs)
	}
	c.Subject = ""
	c.Judge("members",
		doctor.If(voters < 3, driver.Notice, fmt.Sprintf("%d voting members", voters),
			"while one is away no lock can be had", "run three or five members"),
		doctor.If(voters%2 == 0, driver.Notice, fmt.Sprintf("%d voting members", voters),
			"an even number survives no more failures than one member less", ""),
		doctor.Good(fmt.Sprintf("%d voting members", voters)))
	c.Judge("endpoints",
		doctor.If(len(client.Endpoints()) < min(voters, 2), driver.Warning, "one member is named, of "+fmt.Sprint(voters),
			"while it is away no lock can be had", "name all members in the URL"),
		doctor.Good(fmt.Sprintf("%d are named", len(client.Endpoints()))))
	if alarms, err := client.AlarmList(ctx); err == nil { // with authentication only root may ask
		var raised []string
		for _, a := range alarms.Alarms {
			raised = append(raised, a.Alarm.String())
		}
		c.Judge("alarms",
			doctor.If(len(raised) > 0, driver.Unsafe, "alarms: "+strings.Join(raised, ", "), "etcd refuses writes, so leases cannot be kept",
				"NOSPACE: compact, defragment, disarm (etcdctl); CORRUPT: replace the member"),
			doctor.Good("there are none"))
	}
	_, err = d.table.look(ctx, "")
	return c.Report, unavailable(explain(err))
}

// checkMember adds findings about one member, by its own status.
func checkMember(ctx context.Context, c *doctor.Checkup, client *clientv3.Client, urls []string) {
	if len(urls) == 0 {
		c.Found(driver.Warning, "status", "has not started", "one failure more stops the locks", "start it, or remove it from the cluster")
		return
	}
	s, err := client.Status(ctx, urls[0])
	if err != nil {
		c.Found(driver.Warning, "status", "does not answer: "+err.Error(), "one failure more stops the locks", "look at this member")
		return
	}
	c.Judge("version",
		doctor.If(old(s.Version), driver.Unsafe, "etcd "+s.Version, "it lacks calls that the store makes", "take etcd 3.4 or later"),
		doctor.Good("etcd "+s.Version))
	const quota = 2 << 30 // the default of etcd
	c.Judge("space",
		doctor.If(s.DbSizeInUse > quota*3/4, driver.Warning, fmt.Sprintf("%d MB are in use", s.DbSizeInUse>>20),
			"above its quota, 2 GB by default, etcd refuses all writes",
			"compact old revisions (--auto-compaction-retention), or raise --quota-backend-bytes"),
		doctor.Good(fmt.Sprintf("%d MB are in use", s.DbSizeInUse>>20)))
}

// old reports whether a version is before 3.4.
func old(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err != nil || major < 3 || major == 3 && minor < 4
}
