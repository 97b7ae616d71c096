//go:build linux

package packaging

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifest decodes the objects of the manifest, each into the type of its kind, and
// refuses every field that the type does not have.
func manifest(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("kubernetes/leasehold.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]any)
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatal(err)
		}
		object := map[string]any{
			"v1/ServiceAccount": new(corev1.ServiceAccount), "v1/Service": new(corev1.Service),
			"apps/v1/Deployment": new(appsv1.Deployment), "policy/v1/PodDisruptionBudget": new(policyv1.PodDisruptionBudget),
		}[head.APIVersion+"/"+head.Kind]
		if object == nil {
			t.Fatalf("no type for %+v", head)
		}
		if err := yaml.UnmarshalStrict(doc, object); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		all[head.Kind] = object
	}
	return all
}

func TestKubernetes_TheManifestFitsTheSchemaAndItself(t *testing.T) {
	t.Parallel()
	all := manifest(t)
	deployment, service := all["Deployment"].(*appsv1.Deployment), all["Service"].(*corev1.Service)
	budget := all["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget)
	labels, pod := deployment.Spec.Template.Labels, deployment.Spec.Template.Spec
	for _, selector := range []map[string]string{deployment.Spec.Selector.MatchLabels, service.Spec.Selector, budget.Spec.Selector.MatchLabels} {
		if !reflect.DeepEqual(selector, labels) {
			t.Errorf("%v does not select the pods, which are %v", selector, labels)
		}
	}
	if pod.ServiceAccountName != all["ServiceAccount"].(*corev1.ServiceAccount).Name {
		t.Errorf("there is no account %s", pod.ServiceAccountName)
	}
	c := pod.Containers[0]
	if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal }) {
		t.Errorf("%+v does not lead to %+v", service.Spec.Ports, c.Ports)
	}
	s := c.SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the container has rights that it does not need: %+v", s)
	}
	if wait := c.Lifecycle.PreStop.Sleep.Seconds; wait < 1 || *pod.TerminationGracePeriodSeconds < wait+35 {
		t.Errorf("it has %d s to end, of which it waits for %d", *pod.TerminationGracePeriodSeconds, wait)
	}
	if live, ready := c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path; live != "/livez" || ready != "/readyz" {
		t.Errorf("%s restarts it and %s takes it out of service", live, ready)
	}
}

func TestCompose_TheFileFitsTheSchema(t *testing.T) {
	t.Parallel()
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir: "image", ConfigFiles: []types.ConfigFile{{Filename: "image/compose.yaml"}},
	}, func(o *loader.Options) { o.SetProjectName("leasehold", true) })
	if err != nil {
		t.Fatal(err)
	}
	s, err := project.GetService("leasehold")
	if err != nil || !s.ReadOnly || s.HealthCheck == nil || len(s.CapDrop) != 1 {
		t.Errorf("%v: %+v", err, s)
	}
}
