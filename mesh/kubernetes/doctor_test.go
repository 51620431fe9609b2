package main

import (
	"encoding/json"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
)

// doctor names the step of a real cluster at which a Service is not served.
func TestDoctor(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	ns := k.namespace
	k.service("greeter", "grpc:8080")
	k.slice("greeter-1", "greeter", "grpc", 8080, ready("10.1.0.1"), ready("10.1.0.2"))
	doctor := func(status int, service string, texts ...string) {
		t.Helper()
		out, errs, got := k.command("doctor", service)
		if got != status {
			t.Errorf("doctor %s: exit status %d, want %d: %s", service, got, status, errs)
		}
		for _, text := range texts {
			if !strings.Contains(out, strings.ReplaceAll(text, "NS", ns)) {
				t.Errorf("doctor %s prints\n%swant %q", service, out, text)
			}
		}
	}
	doctor(0, "greeter."+ns, "greeter.NS:8080: 2 ready, 0 terminating, 0 not ready", "checks, none failed")
	doctor(0, "xds:///greeter."+ns+".svc.cluster.local:8080", "checks, none failed")
	doctor(1, "welcomer."+ns, "✗ Service", "NS/welcomer: there is none", "kubectl get services -n NS")

	k.object(route("broken", "NS", "greeter", "{name: gone, port: 8080}"))
	doctor(1, "greeter."+ns, "NS/broken: ResolvedRefs=False, BackendNotFound: there is no Service NS/gone", "→ correct the name", "first: GRPCRoute NS/broken")

	k.changeSlice("greeter-1", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = new(string) })
	doctor(1, "greeter."+ns, "none of the 2 endpoints has this port", "first: endpoints")
}

// The permissions are those of the account that is asked about; the token is reviewed.
func TestDoctorPermissions(t *testing.T) {
	t.Parallel()
	k := newKube(t)
	k.permitted()
	account := "system:serviceaccount:" + k.namespace + ":dynxds-" + k.namespace
	token := writeToken(t, k.token("frontend", "dynxds", nil))
	out, errs, status := k.command("doctor", "--lease-namespace", k.namespace, "--as", account, "--token", token)
	if status != 0 || !strings.Contains(out, "service account frontend, namespace "+k.namespace) {
		t.Errorf("the account of the manifest: exit status %d, %s%s", status, out, errs)
	}
	// An administrator may review tokens; this one is for another audience.
	other := writeToken(t, k.token("frontend", kubetest.Audience, nil))
	out, _, status = k.command("doctor", "--token", other)
	if status != 1 || !strings.Contains(out, `✗ token`) || !strings.Contains(out, "mount a projected token for the audience dynxds") {
		t.Errorf("another audience: exit status %d, %s", status, out)
	}
	out, _, status = k.command("doctor", "greeter", "--as", "nobody", "--token", other, "-o", "json")
	var report struct {
		Checks []struct{ Result, Step, Name, Text, Fix string }
	}
	xdstest.NoError(t, json.Unmarshal([]byte(out), &report))
	wanted := map[string]bool{
		"list services in " + k.namespace: false, "list nodes": false, "create tokenreviews.authentication.k8s.io": false,
		"patch grpcroutes.gateway.networking.k8s.io/status in " + k.namespace: false, "update leases.coordination.k8s.io in dynxds-system": false,
	}
	for _, c := range report.Checks {
		for text := range wanted {
			wanted[text] = wanted[text] || c.Result != "ok" && strings.Contains(c.Text, text) && c.Fix != ""
		}
	}
	for text, found := range wanted {
		if !found {
			t.Errorf("no check says %q: %s", text, out)
		}
	}
	if status != 1 {
		t.Errorf("a user without permissions: exit status %d", status)
	}
}
