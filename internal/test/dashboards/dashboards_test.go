// Package dashboards holds the Grafana dashboard and the alerts of Prometheus. Its tests
// check that every metric in them exists, and at night promtool checks their queries.
package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/leaseholdprom"
	"github.com/leasehold-go/leasehold/server"
)

var noErr = ask.NoError

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	noErr(t, err)
	return string(text)
}

func TestAlerts_EachHasItsParagraph(t *testing.T) {
	page := read(t, "../../../docs/operations.md")
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, "../../../packaging/dashboards/alerts.yml"), -1) {
		if !strings.Contains(page, "\n### "+m[1]+"\n") {
			t.Errorf("docs/operations.md does not explain %s", m[1])
		}
		if !strings.Contains(read(t, "../../../packaging/dashboards/alerts_test.yml"), m[1]) {
			t.Errorf("%s is not tried", m[1])
		}
	}
}

// panel is one of a dashboard.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

func queries(t *testing.T) (all []string) {
	t.Helper()
	var d struct{ Panels []panel }
	noErr(t, json.Unmarshal([]byte(read(t, "../../../packaging/dashboards/leasehold.json")), &d))
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 10 {
		t.Errorf("%d queries", len(all))
	}
	return all
}

// TestMetrics_AllExist checks that the library or the service has each metric of a query.
func TestMetrics_AllExist(t *testing.T) {
	s, err := server.New(memdriver.New())
	noErr(t, err)
	defer s.Close()
	var known []string
	for _, c := range []prometheus.Collector{leaseholdprom.New(), s.Metrics()} {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			known = append(known, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
		}
	}
	for _, text := range append(queries(t), read(t, "../../../packaging/dashboards/alerts.yml")) {
		for _, name := range regexp.MustCompile(`\bleasehold_\w+`).FindAllString(text, -1) {
			if !slices.Contains(known, regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")) {
				t.Errorf("there is no metric %s", name)
			}
		}
	}
}

// TestAlerts_CountersBeginAtZero checks that a service, and a program with a lease of the
// class, export as 0 each counter that alerts_test.yml lets begin at 0.
func TestAlerts_CountersBeginAtZero(t *testing.T) {
	store := memdriver.New()
	s, err := server.New(store)
	noErr(t, err)
	defer s.Close()
	metrics := leaseholdprom.New()
	client, err := leasehold.New(store, leasehold.WithObserver(metrics.Observer()),
		leasehold.WithClass(func(string) string { return "orders" }))
	noErr(t, err)
	defer client.Close()
	lease, err := client.Mutex("orders/1").Lock(t.Context())
	noErr(t, err)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics, s.Metrics())
	exported := make(map[string]bool)
	families, err := registry.Gather()
	noErr(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetCounter() == nil || m.GetCounter().GetValue() != 0 {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			exported[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = true
		}
	}
	series := regexp.MustCompile(`series: '(\w+)\{(.*?)\}', values: '_`).FindAllStringSubmatch(read(t, "../../../packaging/dashboards/alerts_test.yml"), -1)
	if len(series) < 8 {
		t.Errorf("%d counters begin at 0", len(series))
	}
	for _, m := range series {
		labels := slices.DeleteFunc(strings.Split(m[2], ","), func(l string) bool { return strings.HasPrefix(l, "instance=") })
		slices.Sort(labels)
		if name := m[1] + "{" + strings.Join(labels, ",") + "}"; !exported[name] {
			t.Errorf("%s is not exported as 0", name)
		}
	}
	noErr(t, lease.Release())
}
