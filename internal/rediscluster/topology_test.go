package rediscluster

import (
	"slices"
	"testing"
	"time"
)

func entry(first, last int64, nodes ...[]any) any {
	fields := []any{first, last}
	for _, n := range nodes {
		fields = append(fields, n)
	}
	return fields
}

// H5, H7
func TestParseSlots_HR_H7_AddressThatIsNotToldIsThatOfTheNodeThatAnswered(t *testing.T) {
	for name, row := range map[string]struct {
		host   any
		port   int64
		origin string
		want   string
	}{
		"told":               {"10.0.0.1", 7001, "10.0.0.9:7000", "10.0.0.1:7001"},
		"a name":             {"db-1", 7001, "10.0.0.9:7000", "db-1:7001"},
		"unknown endpoint":   {nil, 7001, "10.0.0.9:7000", "10.0.0.9:7001"},
		"empty":              {"", 7001, "10.0.0.9:7000", "10.0.0.9:7001"},
		"a node never met":   {"?", 7001, "10.0.0.9:7000", "10.0.0.9:7001"},
		"loopback, far away": {"127.0.0.1", 7001, "10.0.0.9:7000", "10.0.0.9:7001"},
		"loopback":           {"127.0.0.1", 7001, "localhost:7000", "127.0.0.1:7001"},
		"no port":            {"10.0.0.1", 0, "10.0.0.9:7000", "10.0.0.1:7000"},
		"v6":                 {nil, 7001, "[::1]:7000", "[::1]:7001"},
	} {
		ranges, err := parseSlots([]any{entry(0, 16383, []any{row.host, row.port, "id"})}, row.origin)
		if err != nil || len(ranges) != 1 || ranges[0].Primary != row.want {
			t.Errorf("%s: %+v, %v, want %s", name, ranges, err, row.want)
		}
	}
	if got := redirected("10.0.0.9:7000", ":7003"); got != "10.0.0.9:7003" {
		t.Errorf("redirected to %s", got)
	}
}

func TestParseSlots_HR_H5_NothingIsNoTopology(t *testing.T) {
	for name, reply := range map[string]any{
		"nil": nil, "empty": []any{}, "text": "OK", "short": []any{[]any{int64(0), int64(1)}},
		"no numbers": []any{entry(0, 1, []any{"h", "port", "id"})},
	} {
		if ranges, err := parseSlots(reply, "h:1"); err == nil {
			t.Errorf("%s: %+v without an error", name, ranges)
		}
	}
}

func TestTopology_TellsWhichNodeServesASlot(t *testing.T) {
	var p Topology
	if addr, known := p.primary(5); addr != "" || known {
		t.Error(addr, known)
	}
	now := time.Now()
	p.replace([]Range{{0, 99, "a:1", []string{"r:1"}}, {200, 300, "b:1", nil}}, now)
	for slot, want := range map[int]string{0: "a:1", 99: "a:1", 100: "", 199: "", 200: "b:1", 300: "b:1", 301: ""} {
		if addr, known := p.primary(slot); addr != want || !known {
			t.Errorf("slot %d: %q, %v, want %q", slot, addr, known, want)
		}
	}
	p.setSlot(50, "c:1")
	p.replace([]Range{{0, 300, "old:1", nil}}, now.Add(-time.Second)) // an answer that comes late
	if addr, _ := p.primary(50); addr != "c:1" {
		t.Errorf("slot 50 after a redirection: %q", addr)
	}
	primaries, replicas := p.nodes()
	if !slices.Equal(primaries, []string{"a:1", "b:1", "c:1"}) || !slices.Equal(replicas, []string{"r:1"}) {
		t.Error(primaries, replicas)
	}
	before := p.Changes()
	p.replace([]Range{{0, 99, "a:1", nil}, {200, 300, "b:1", nil}}, now.Add(time.Second))
	if addr, _ := p.primary(50); addr != "a:1" {
		t.Errorf("slot 50 after another look: %q", addr)
	}
	if p.Changes() != before {
		t.Error("the same topology counts as a change")
	}
}
