package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// exampleMesh is the folder that examples/mesh/README.md serves.
const exampleMesh = "../../examples/mesh/config"

// run runs the command line in this process.
func run(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, err bytes.Buffer
	exit = execute(t.Context(), args, &out, &err)
	return out.String(), err.String(), exit
}

// runOK runs a command line that must succeed, and returns its output.
func runOK(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, exit := run(t, args...)
	if exit != 0 {
		t.Fatalf("%q: exit status %d: %s", args, exit, stderr)
	}
	return stdout
}

// process is "dynxds serve" or "dynxds relay" as a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
}

// startServe serves a folder until the test ends it.
func startServe(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return start(t, append([]string{"serve", dir, "--poll", "1h"}, args...)...)
}

// start starts a server, which the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := command(t, append(args, "--listen", "localhost:0", "--log-format", "json")...)
	stderr, err := cmd.StderrPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
	return &process{t, cmd, bufio.NewScanner(stderr)}
}

// logged waits for a line of the log that has all of the texts.
func (p *process) logged(texts ...string) string {
	p.t.Helper()
	for p.log.Scan() {
		line, found := p.log.Text(), true
		for _, text := range texts {
			found = found && strings.Contains(line, text)
		}
		if found {
			return line
		}
	}
	p.t.Fatalf("the log ended without %q", texts)
	return ""
}

// address returns where the server can be reached, under the name localhost.
func (p *process) address() string {
	p.t.Helper()
	var serving struct{ Address string }
	xdstest.NoError(p.t, json.Unmarshal([]byte(p.logged(`ing","address":`)), &serving))
	_, port, err := net.SplitHostPort(serving.Address)
	xdstest.NoError(p.t, err)
	return net.JoinHostPort("localhost", port)
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	xdstest.NoError(p.t, p.cmd.Process.Signal(s))
}

// drain ends the process by SIGTERM, and expects exit status 0.
func (p *process) drain() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	for p.log.Scan() {
		// The process must not wait for its log to be read.
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("after SIGTERM the command ended with %v, want exit status 0", err)
	}
}

// SIGHUP publishes a change at once; SIGTERM drains, with exit status 0.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmdtest.Write(t, dir, "a.yaml", "kind: Service\nname: a\n")
	p := startServe(t, dir)
	p.logged(`"msg":"published"`, `"version":1`)
	p.address()
	cmdtest.Write(t, dir, "b.yaml", "kind: Service\nname: b\n")
	p.signal(syscall.SIGHUP)
	p.logged(`"msg":"published"`, `"services":2`)
	cmdtest.Write(t, dir, "b.yaml", "kind: Service\nnme: b\n")
	p.signal(syscall.SIGHUP)
	p.logged(`"level":"ERROR"`, `b.yaml:2`, "did you mean")
	p.drain()
}

// With --grace 0, what is in flight is cut off at once: here, a watch of the health service.
func TestServeWithoutGrace(t *testing.T) {
	t.Parallel()
	p := startServe(t, exampleMesh, "--grace", "0s")
	watch, err := healthpb.NewHealthClient(cmdtest.Dial(t, p.address())).Watch(testutils.Context(t), &healthpb.HealthCheckRequest{})
	xdstest.NoError(t, err)
	_, err = watch.Recv()
	xdstest.NoError(t, err)
	p.signal(syscall.SIGTERM)
	p.logged("closing the remaining streams", `"after":1}`)
	for p.log.Scan() {
	}
	xdstest.NoError(t, p.cmd.Wait())
}

// raw is a document with a resource of a type of Envoy's configuration.
func raw(typeName, body string) string {
	return "\nkind: Resource\nresource:\n  \"@type\": type.googleapis.com/envoy.config." + typeName + "\n  " + body + "\n"
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, file string
		exit       int
		want       string
	}{
		{"a valid one", "kind: Service\nname: a\n", 0, "is valid: 1 service, 0 policies, 0 resources in 1 file"},
		{"a faulty one", "kind: Service\nnam: a\n", 1, `a.yaml:2: unknown field "nam"; did you mean "name"?`},
		{"one without a file", "", 0, "warning: the folder has no .yaml, .yml or .json file"},
		{"one that leads nowhere", `
kind: MeshHTTPRoute
name: lost
spec: {to: [{targetRef: {kind: MeshService, name: nobody}, rules: [{backendRefs: [{kind: MeshService, name: nobody, weight: 1}]}]}]}
---
kind: Service
name: a
`, 1, "clients would reject this configuration"},
		{"a Listener without a router", raw("listener.v3.Listener", `name: l
  api_listener: {api_listener: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, rds: {route_config_name: r, config_source: {ads: {}}}}}`),
			1, "a.yaml:2: error: Listener l: clients reject it: api_listener.api_listener.http_filters"},
		{"routes whose weights are 0", raw("route.v3.RouteConfiguration", `name: r
  virtual_hosts: [{name: h, domains: ["*"], routes: [{match: {prefix: ""}, route: {weighted_clusters: {clusters: [{name: a, weight: 0}]}}}]}]`),
			1, "a.yaml:2: error: RouteConfiguration r: clients reject it: virtual_hosts[0].routes[0].route.weighted_clusters"},
		{"EDS without a source", raw("cluster.v3.Cluster", "name: c\n  type: EDS"), 1, "a.yaml:2: error: Cluster c: clients reject it: eds_cluster_config"},
		{"a resource with two names", raw("cluster.v3.Cluster", "name: c\n  type: EDS\n  eds_cluster_config: {eds_config: {ads: {}}}") + "name: d\n",
			1, `a.yaml:2: error: Cluster d: clients do not find it, as the name in the message is "c"`},
		{"a Listener of a server", raw("listener.v3.Listener", "name: l\n  address: {socket_address: {address: 0.0.0.0, port_value: 80}}"),
			0, "a.yaml:2: warning: Listener l: it has no api_listener"},
		{"what only some clients take", `
kind: Service
name: a
endpoints: [{address: "host:80"}]
---
kind: MeshHTTPRoute
name: p
spec: {to: [{targetRef: {kind: Mesh}, rules: [{filters: [{requestRedirect: {hostname: h}}]}]}]}
`, 0, `RPCs end with an error that names the place
Envoy, and gRPC clients in languages other than Go:
  DIR/a.yaml:2: warning: endpoints[0].address: "host" is a name; Envoy and gRPC in languages other than Go take IP addresses only, and do not get this endpoint
gRPC clients other than those of dynxds:
  DIR/a.yaml:8: note: policy p: spec.to[0].rules[0].filters[0]: gRPC clients other than those of dynxds are not told the place`},
		{"a service with a filter that clients do not have", `
kind: Service
name: a
filters: [{name: b, typed_config: {"@type": type.googleapis.com/xds.type.v3.TypedStruct, type_url: type.googleapis.com/no.Filter}}]
`, 1, "a.yaml:2: error: Listener a: clients reject it: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if test.file != "" {
				cmdtest.Write(t, dir, "a.yaml", test.file)
			}
			stdout, stderr, exit := run(t, "validate", dir)
			if exit != test.exit || !strings.Contains(strings.ReplaceAll(stdout+stderr, dir, "DIR"), test.want) {
				t.Errorf("exit status %d with\n%s%s\nwant %d with %q", exit, stdout, stderr, test.exit, test.want)
			}
		})
	}
}

// With --strict warnings are faults; notes are none. With -o json all that is wrong is one list.
func TestValidateForCI(t *testing.T) {
	t.Parallel()
	const noted = "kind: Service\nname: a\nloadBalancing: {policy: Random}\n"
	for _, test := range []struct {
		name, file    string
		flags, want   string
		status, wrong int
	}{
		{"a note", noted, "--strict", "is valid: 1 service", 0, 0},
		{"a note in JSON", noted, "--strict -o json", `"valid": true`, 0, 1},
		{"a warning", noted + "localities: [{zone: a, weight: 2}]\n", "", "is valid: 1 service", 0, 0},
		{"a strict warning", noted + "localities: [{zone: a, weight: 2}]\n", "--strict", "1 warning, which counts as an error with --strict", 1, 0},
		{"a strict warning in JSON", noted + "localities: [{zone: a, weight: 2}]\n", "--strict -o json", `"valid": false`, 1, 2},
		{"an empty folder", "", "--strict", "1 warning, which counts as an error with --strict", 1, 0},
		{"faults in JSON", "kind: Service\nname: 1\nendpoint: []\n", "-o json", `"line": 2,
      "path": "name",
      "message": "expected a string, found the number \"1\"; put it in quotes: \"1\""`, 1, 2},
	} {
		dir := t.TempDir()
		if test.file != "" {
			cmdtest.Write(t, dir, "a.yaml", test.file)
		}
		stdout, stderr, status := run(t, append([]string{"validate", dir}, strings.Fields(test.flags)...)...)
		if status != test.status || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%s: exit status %d with\n%s%s\nwant %d with %q", test.name, status, stdout, stderr, test.status, test.want)
		}
		var answer struct {
			Reports []struct{ Severity, File, Message string }
		}
		if strings.Contains(test.flags, "json") {
			if err := json.Unmarshal([]byte(stdout), &answer); err != nil || stderr != "" {
				t.Errorf("%s: %v, with %q on stderr", test.name, err, stderr)
			}
		}
		if len(answer.Reports) != test.wrong {
			t.Errorf("%s: the reports are %+v, want %d", test.name, answer.Reports, test.wrong)
		}
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		want []string
		not  string
	}{
		{"--client service=frontend,version=v2 --service backend --explain",
			[]string{"policy frontend-v2", "consumer.yaml:", "backend{version=v2}", `x-from="frontend-v2"`}, "weight 90"},
		{"--client service=frontend,version=v1 --service backend --explain",
			[]string{"policy canary", "owner.yaml:", "backend{version=v1}, weight 90"}, "frontend-v2"},
		{"--client service=frontend,version=v2 --service backend",
			[]string{"cluster: backend;version=v2", "kind: Resource", "key: x-from"}, "backend;version=v1"},
		{"--client service=frontend,version=v2 --service backend --authority mesh --output json",
			[]string{`"name":"xdstp://mesh/envoy.config.route.v3.RouteConfiguration/backend","dynamicParameters":{`}, `"kind":"Resource","name":"backend`},
		{"--client service=frontend,version=v2 --service backend --kind grpc", []string{"cluster: backend;version=v2"}, "backend;version=v1"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			stdout := runOK(t, append([]string{"render", exampleMesh}, strings.Fields(test.args)...)...)
			for _, want := range test.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("the output lacks %q:\n%s", want, stdout)
				}
			}
			if strings.Contains(stdout, test.not) {
				t.Errorf("the output has %q:\n%s", test.not, stdout)
			}
		})
	}
}

// What render prints is a folder from which it prints the same.
func TestRenderedResourcesAreAFolder(t *testing.T) {
	t.Parallel()
	first := runOK(t, "render", exampleMesh, "--client", "service=frontend,version=v1")
	dir := t.TempDir()
	cmdtest.Write(t, dir, "rendered.yaml", first)
	second := runOK(t, "render", dir)
	if first != second {
		t.Errorf("rendered once:\n%s\nrendered again:\n%s", first, second)
	}
}

// There is a script for each shell that cobra supports; folders and enumerations are completed.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if stdout, stderr, exit := run(t, "completion", shell); exit != 0 || !strings.Contains(stdout, "dynxds") {
			t.Errorf("completion %s: exit status %d with %q and %q, want a script", shell, exit, stdout, stderr)
		}
	}
	const folders, files, nothing = ":16", ":0", ":4"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", ""}, folders},
		{[]string{"validate", ""}, folders},
		{[]string{"render", ""}, folders},
		{[]string{"render", "dir", ""}, nothing},
		{[]string{"serve", "dir", "--tls-cert", ""}, files},
		{[]string{"serve", "dir", "--log-format", ""}, "text\njson\n" + nothing},
		{[]string{"serve", "dir", "--log-level", ""}, "debug\ninfo\nwarn\nerror\n" + nothing},
		{[]string{"render", "dir", "--output", ""}, "yaml\njson\n" + nothing},
		{[]string{"render", "dir", "-o", ""}, "yaml\njson\n" + nothing},
		{[]string{"clients", "--output", ""}, "text\njson\nyaml\n" + nothing},
		{[]string{"render", "dir", "--kind", ""}, "dynxds\ngrpc-go\ngrpc\nenvoy\n" + nothing},
		{[]string{"bootstrap", "--dns-fallback", ""}, "never\nnot_found\ntimeout\nunavailable\n" + nothing},
	} {
		stdout, stderr, exit := run(t, append([]string{"__complete"}, test.args...)...)
		if exit != 0 || strings.TrimSpace(stdout) != test.want {
			t.Errorf("completing %q: exit status %d with %q, %q, want %q", test.args, exit, stdout, stderr, test.want)
		}
	}
}
