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

// validate names errors by object and field. render prints what a client gets, and explain where its RPCs go, by each name of a
// Service, and which objects decided. Texts of the API server reach a terminal only in a visible form.
func TestCommands(t *testing.T) {
	t.Parallel()
	k, pods := newKube(t), &pods{}
	ns := k.namespace
	k.echo(pods, "greeter", 8080)
	k.echo(pods, "canary", 8080)
	k.object(policy("for-frontend", `{targetRef: {kind: MeshService, name: frontend}, to: [{
		targetRef: {kind: MeshService, name: greeter}, rules: [{backendRefs: [{kind: MeshService, name: canary}]}]}]}`))
	k.object(policy("by-header", toService("greeter", `{matches: [{headers: [{name: version, value: two}]}], backendRefs: [{kind: MeshService, name: canary, port: 8080}]}`)))
	run := func(line string, status int, lacks string, has ...string) {
		t.Helper()
		out, errs, got := k.command(strings.Fields(strings.ReplaceAll(line, "NS", ns))...)
		if got != status || lacks != "" && strings.Contains(out, lacks) || strings.ContainsAny(out+errs, "\x1b\u202e") {
			t.Errorf("%s: exit status %d, want %d, and no %q:\n%q, %q", line, got, status, lacks, out, errs)
		}
		for _, text := range has {
			if !strings.Contains(out+errs, strings.ReplaceAll(text, "NS", ns)) {
				t.Errorf("%s: want %s:\n%s%s", line, text, out, errs)
			}
		}
		for d := json.NewDecoder(strings.NewReader(out)); strings.Contains(line, "-o json") && d.More(); {
			xdstest.NoError(t, d.Decode(new(any)))
		}
	}
	run("validate", 0, "", "is valid: 2 services, 2 policies, 0 resources in 2 Services\n")
	for _, name := range []string{"greeter", "greeter.NS", "greeter.NS.svc.cluster.local:8080"} {
		run("render -o json --client namespace=NS,service=frontend.NS --service "+name, 0, "10.1.0.2", "canary.NS:8080", "10.1.0.3")
		rpc := "explain xds:///" + name + " " + echoMethod + " --client namespace=NS --expect canary.NS:8080"
		run(rpc+" -H version:two", 0, "", "10.1.0.3:8080", "NS/by-header")
		run(rpc, 1, "", "RPCs do not go as --expect says")
	}
	run("render --service greeter.NS --explain --client namespace=NS,service=frontend.NS", 0, "", "NS/for-frontend")
	run("render --service greeter.NS --explain --client namespace=NS", 0, ns+"/for-frontend", "NS/by-header")
	run("render --service none", 1, "", `there is no service "none"`)
	run("explain -o json xds:///greeter.NS "+echoMethod, 0, "", "greeter.NS:8080")

	k.object(policy("nasty", toService("greeter", `{matches: [{path: {type: RegularExpression, value: "(\e[2J\u202e"}}]}`)))
	k.object(policy("faulty", toService("greeter", `{matches: [{path: {type: RegularExpression, value: "("}}]}`)))
	k.object(policy("nowhere", toService("missing", `{backendRefs: [{kind: MeshService, name: gone, port: 8080}]}`)))
	k.object(route("no-parent", "default", "missing", "{name: greeter, port: 8080}"))
	k.object(route("no-backend", "NS", "greeter", "{name: gone, port: 8080}"))
	k.object(route("not-ours", "NS", "greeter", "{name: greeter, namespace: default, port: 8080}"))
	run("validate", 1, "", "clients would reject this configuration, or get errors in place of resources",
		`NS/faulty: error: policy MeshHTTPRoute/NS/faulty: spec.to[0].rules[0].matches[0].path.value: "(" is not a regular expression of RE2`,
		"NS/nowhere: error: policy MeshHTTPRoute/NS/nowhere: there is no Service NS/missing", "NS/nasty: error",
		"NS/no-parent: error: policy GRPCRoute/NS/no-parent: spec.parentRefs: --namespace of this control plane leaves out the namespace of the Service default/missing",
		"NS/no-backend: error: policy GRPCRoute/NS/no-backend: spec.rules[0].backendRefs",
		"NS/not-ours: error: policy GRPCRoute/NS/not-ours: no ReferenceGrant lets the route use default/greeter")
	run("validate -o json", 1, "", `"valid": false`, `"severity": "error"`, `"file": "NS/faulty"`)
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
		{"explain xds:///a", 2, "want two arguments, got 1"},
		{"explain xds:///a /s/m -H nothing", 2, "want 'name: value'"},
		{"validat", 2, "did you mean validate"},
		{"validate there", 2, `unexpected argument "there"`},
		{"validate --no-such-flag", 2, "validate --help"},
		{"validate --kubeconfig=", 2, "want the path of a file"},
		{"validate --namespace a,", 2, "none of them empty"}, // which would be all
		{"render --kind cobol", 2, "dynxds, grpc-go, grpc or envoy"},
		{"serve --max-streams 0", 2, "want a positive number"},
		{"serve --log-format xml", 2, "text or json"},
		{"serve --kubeconfig " + config, 2, "add --tls-cert and --tls-key, or --anonymous"},
		{"serve --anonymous --lease-duration 500ms --kubeconfig " + config, 2, "write 1s or more"},
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
