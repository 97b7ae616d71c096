//go:build night

package dashboards

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %v: %v (make promtool installs it)\n%s", args, err, out)
	}
}

func TestAlerts_AreUnderstoodAndFireWhenTheyShould(t *testing.T) {
	promtool(t, "check", "rules", "../../../packaging/dashboards/alerts.yml")
	promtool(t, "test", "rules", "../../../packaging/dashboards/alerts_test.yml")
}

func TestDashboard_PrometheusUnderstandsEveryQuery(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, q := range queries(t) {
		q = strings.NewReplacer("$__rate_interval", "5m", "$class", ".*", "$instance", ".*").Replace(q)
		text, err := json.Marshal(q)
		noErr(t, err)
		rules.WriteString("  - record: a:panel\n    labels: {n: " + `"` + strings.ReplaceAll(t.Name()+string(rune('a'+rules.Len()%26)), `"`, "") + `"` + "}\n    expr: " + string(text) + "\n")
	}
	path := t.TempDir() + "/rules.yml"
	noErr(t, os.WriteFile(path, []byte(rules.String()), 0o600))
	promtool(t, "check", "rules", "--lint=none", path)
}
