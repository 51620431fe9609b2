package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// command runs a command line with the permissions of an administrator, for the objects of the namespace.
func (k *kube) command(args ...string) (stdout, stderr string, status int) {
	k.t.Helper()
	path := filepath.Join(k.t.TempDir(), "kubeconfig")
	xdstest.NoError(k.t, k.cluster.Kubeconfig(path, k.cluster.AdminToken()))
	return runCommand(k.t, append(args, "--kubeconfig", path, "--namespace", k.namespace)...)
}

func runCommand(t testing.TB, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	status = execute(testutils.Context(t), args, &out, &errs, func(*slog.Logger) {})
	return out.String(), errs.String(), status
}

// validate is 0 without an error, and 1 with one, which it names by object and field.
func TestValidate(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	k.echo(pods, "greeter", 8080)
	k.object(policy("good", toService("greeter", `{matches: [{headers: [{name: version, value: two}]}], backendRefs: [{kind: MeshService, name: greeter, port: 8080}]}`)))
	if out, errs, status := k.command("validate"); status != 0 || !strings.Contains(out, "is valid: 1 service, 1 policy, 0 resources in 1 Service\n") {
		t.Errorf("a valid cluster: exit status %d, %s%s", status, out, errs)
	}
	k.object(policy("faulty", toService("greeter", `{matches: [{path: {type: RegularExpression, value: "("}}]}`)))
	k.object(policy("nowhere", toService("missing", `{backendRefs: [{kind: MeshService, name: gone, port: 8080}]}`)))
	k.object(route("no-parent", "NS", "missing", "{name: greeter, port: 8080}"))
	k.object(route("no-backend", "NS", "greeter", "{name: gone, port: 8080}"))
	k.object(route("not-ours", "NS", "greeter", "{name: greeter, namespace: default, port: 8080}"))
	out, errs, status := k.command("validate")
	if status != 1 || !strings.Contains(errs, "clients would reject this configuration, or get errors in place of resources") {
		t.Errorf("a faulty cluster: exit status %d, %s", status, errs)
	}
	ns := k.namespace
	for _, line := range []string{
		ns + "/faulty: error: policy MeshHTTPRoute/" + ns + `/faulty: spec.to[0].rules[0].matches[0].path.value: "(" is not a regular expression of RE2`,
		ns + "/nowhere: error: policy MeshHTTPRoute/" + ns + "/nowhere: there is no Service " + ns + "/missing",
		ns + "/no-parent: error: policy GRPCRoute/" + ns + "/no-parent: spec.parentRefs: there is no Service " + ns + "/missing",
		ns + "/no-backend: error: policy GRPCRoute/" + ns + "/no-backend: spec.rules[0].backendRefs",
		ns + "/not-ours: error: policy GRPCRoute/" + ns + "/not-ours: no ReferenceGrant lets the route use default/greeter",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("validate prints\n%swant %s", out, line)
		}
	}
	var result struct {
		Valid   bool
		Reports []struct{ Severity, File, Message string }
	}
	out, errs, status = k.command("validate", "-o", "json")
	xdstest.NoError(t, json.Unmarshal([]byte(out), &result))
	if status != 1 || errs != "" || result.Valid || len(result.Reports) < 5 || result.Reports[0].Severity != "error" || !strings.HasPrefix(result.Reports[0].File, ns+"/") {
		t.Errorf("-o json: exit status %d, %q, %+v", status, errs, result)
	}
}

// render prints what a client gets by each name of a Service, and with --explain the routes that it has come from.
func TestRender(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	k.echo(pods, "greeter", 8080)
	k.echo(pods, "canary", 8080)
	k.object(policy("canary", `{targetRef: {kind: MeshService, name: frontend}, to: [{
		targetRef: {kind: MeshService, name: greeter}, rules: [{backendRefs: [{kind: MeshService, name: canary}]}]}]}`))
	client := "namespace=" + k.namespace + ",service=frontend." + k.namespace
	for _, name := range []string{"greeter", "greeter." + k.namespace, "greeter." + k.namespace + ".svc.cluster.local:8080"} {
		out, errs, status := k.command("render", "--service", name, "--client", client, "-o", "json")
		if status != 0 || !strings.Contains(out, "canary."+k.namespace+":8080") || !strings.Contains(out, "10.1.0.3") || strings.Contains(out, "10.1.0.2") {
			t.Errorf("%s: exit status %d, want the endpoint of canary alone:\n%s%s", name, status, out, errs)
		}
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: not JSON: %s", name, line)
			}
		}
	}
	out, errs, status := k.command("render", "--service", "greeter."+k.namespace, "--client", client, "--explain")
	if status != 0 || !strings.Contains(out, k.namespace+"/canary") {
		t.Errorf("--explain: exit status %d, want the policy:\n%s%s", status, out, errs)
	}
	if out, _, _ := k.command("render", "--service", "greeter."+k.namespace, "--client", "namespace="+k.namespace, "--explain"); strings.Contains(out, k.namespace+"/canary") {
		t.Errorf("for another service account --explain prints\n%s", out)
	}
	if _, errs, status := k.command("render", "--service", "none"); status != 1 || !strings.Contains(errs, `there is no service "none"`) {
		t.Errorf("a Service that is not there: exit status %d, %s", status, errs)
	}
}

// explain says where RPCs of a client go, by each name of the Service, and which objects decided.
func TestExplain(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	k.echo(pods, "greeter", 8080)
	k.echo(pods, "canary", 8080)
	k.object(policy("to-canary", toService("greeter", `{matches: [{headers: [{name: version, value: two}]}], backendRefs: [{kind: MeshService, name: canary}]}`)))
	canary := "canary." + k.namespace + ":8080"
	for _, target := range []string{"xds:///greeter", "xds:///greeter." + k.namespace, "xds:///greeter." + k.namespace + ".svc.cluster.local:8080"} {
		args := []string{"explain", target, echoMethod, "--client", "namespace=" + k.namespace, "--expect", canary}
		out, errs, status := k.command(append(args, "-H", "version: two")...)
		if status != 0 || !strings.Contains(out, "10.1.0.3:8080") || !strings.Contains(out, k.namespace+"/to-canary") {
			t.Errorf("%s: exit status %d, want the endpoint of canary, and the policy:\n%s%s", target, status, out, errs)
		}
		if _, errs, status := k.command(args...); status != 1 || !strings.Contains(errs, "RPCs do not go as --expect says") {
			t.Errorf("%s without the header: exit status %d, %s", target, status, errs)
		}
	}
	out, _, status := k.command("explain", "xds:///greeter."+k.namespace, echoMethod, "-o", "json")
	if status != 0 || !json.Valid([]byte(out)) {
		t.Errorf("-o json: exit status %d, %s", status, out)
	}
}

// The exit statuses are those of dynxds, and each help text has them.
func TestExitStatuses(t *testing.T) {
	t.Parallel()
	gone, err := loopback.Reserve()
	xdstest.NoError(t, err)
	t.Cleanup(gone.Release)
	k := newKube(t)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	xdstest.NoError(t, k.cluster.Kubeconfig(config, "no-token"))
	unanswered := writeFile(t, []byte(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "http://`+gone.String()+`"}}]}`))
	for _, test := range []struct {
		args   string
		status int
		text   string
	}{
		{"--version", 0, "dynxds-kubernetes "},
		{"--help", 0, "Exit status: 0 fine;"},
		{"serve --help", 0, "Exit status: 0 fine;"},
		{"validate --help", 0, "Exit status: 0 fine;"},
		{"render --help", 0, "Exit status: 0 fine;"},
		{"explain --help", 0, "Exit status: 0 fine;"},
		{"explain xds:///a", 2, "want two arguments, got 1"},
		{"explain xds:///a /s/m -H nothing", 2, "want 'name: value'"},
		{"validat", 2, "did you mean validate"},
		{"validate there", 2, `unexpected argument "there"`},
		{"validate --no-such-flag", 2, "validate --help"},
		{"validate --kubeconfig=", 2, "want the path of a file"},
		{"render --kind cobol", 2, "dynxds, grpc-go, grpc or envoy"},
		{"serve --max-streams 0", 2, "want a positive number"},
		{"serve --log-format xml", 2, "text or json"},
		{"serve --kubeconfig " + config, 2, "add --tls-cert and --tls-key, or --anonymous"},
		{"validate --kubeconfig /no/such/file", 3, "/no/such/file"},
		{"validate --start-timeout 500ms --kubeconfig " + unanswered, 3, "the API server does not answer"},
		{"serve --anonymous --listen 127.0.0.1:0 --start-timeout 500ms --kubeconfig " + unanswered, 3, "the API server does not answer"},
		{"validate --kubeconfig " + config, 1, "does not let this server read"},
	} {
		out, errs, status := runCommand(t, strings.Fields(test.args)...)
		if status != test.status || !strings.Contains(out+errs, test.text) {
			t.Errorf("%s: exit status %d, want %d and %q:\n%s%s", test.args, status, test.status, test.text, out, errs)
		}
	}
}

// Texts of the API server reach a terminal only in a visible form.
func TestNothingIsWrittenPastVisible(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	k.echo(pods, "greeter", 8080)
	k.object(policy("nasty", toService("greeter", `{matches: [{path: {type: RegularExpression, value: "(\e[2J\u202e"}}]}`)))
	out, errs, status := k.command("validate")
	if status != 1 || !strings.Contains(out, "/nasty") || strings.ContainsAny(out+errs, "\x1b\u202e") {
		t.Errorf("exit status %d, and %q, %q", status, out, errs)
	}
}
