package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
)

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
