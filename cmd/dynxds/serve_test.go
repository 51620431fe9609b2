package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/demo"
)

// exampleMesh is the folder that the README serves.
const exampleMesh = "../../examples/mesh/config"

// run runs the command line in this process.
func run(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, err bytes.Buffer
	exit = execute(t.Context(), args, &out, &err, demo.Run)
	return out.String(), err.String(), exit
}

// Given a folder, when it changes and SIGHUP comes, then it is published at once; when
// SIGTERM comes, then the server drains, with exit status 0.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", "kind: Service\nname: a\n")
	cmd := command(t, "serve", dir, "--listen", "127.0.0.1:0", "--poll", "1h", "--log-format", "json")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(stderr)
	expect := func(texts ...string) {
		t.Helper()
		for log.Scan() {
			found := true
			for _, text := range texts {
				found = found && strings.Contains(log.Text(), text)
			}
			if found {
				return
			}
		}
		t.Fatalf("the log ended without %q", texts)
	}
	expect(`"msg":"published"`, `"version":1`)
	expect(`"msg":"serving"`, `"address":"127.0.0.1:`)
	write(t, dir, "b.yaml", "kind: Service\nname: b\n")
	send(t, cmd.Process, syscall.SIGHUP)
	expect(`"msg":"published"`, `"services":2`)
	write(t, dir, "b.yaml", "kind: Service\nnme: b\n")
	send(t, cmd.Process, syscall.SIGHUP)
	expect(`"level":"ERROR"`, `b.yaml:2`, "did you mean")
	send(t, cmd.Process, syscall.SIGTERM)
	if _, err := io.Copy(io.Discard, stderr); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM the command ended with %v, want exit status 0", err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, p *os.Process, s os.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Given folders, then validate says what is wrong by exit status and with lines.
func TestValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, file string
		exit       int
		want       string
	}{
		{"a valid one", "kind: Service\nname: a\n", 0, "is valid: 1 services, 0 policies, 0 denials, 0 resources in 1 files"},
		{"a faulty one", "kind: Service\nnam: a\n", 1, `a.yaml:2: unknown field "nam"; did you mean "name"?`},
		{"one that leads nowhere", `
kind: MeshHTTPRoute
name: lost
spec: {to: [{targetRef: {kind: MeshService, name: nobody}, rules: [{backendRefs: [{kind: MeshService, name: nobody, weight: 1}]}]}]}
---
kind: Service
name: a
`, 1, "clients would get errors in place of resources"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "a.yaml", test.file)
			stdout, stderr, exit := run(t, "validate", dir)
			if exit != test.exit || !strings.Contains(stdout+stderr, test.want) {
				t.Errorf("exit status %d with\n%s%s\nwant %d with %q", exit, stdout, stderr, test.exit, test.want)
			}
		})
	}
}

// Given the example, then each of its clients is shown its own policies and routes.
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
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, exit := run(t, append([]string{"render", exampleMesh}, strings.Fields(test.args)...)...)
			if exit != 0 {
				t.Fatalf("exit status %d: %s", exit, stderr)
			}
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
	first, stderr, exit := run(t, "render", exampleMesh, "--client", "service=frontend,version=v1")
	if exit != 0 {
		t.Fatalf("exit status %d: %s", exit, stderr)
	}
	dir := t.TempDir()
	write(t, dir, "rendered.yaml", first)
	second, stderr, exit := run(t, "render", dir)
	if exit != 0 {
		t.Fatalf("exit status %d: %s", exit, stderr)
	}
	if first != second {
		t.Errorf("rendered once:\n%s\nrendered again:\n%s", first, second)
	}
}

// Mistakes on the command line are named, with exit status 1.
func TestServeFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"serve", "accepts 1 arg(s), received 0"},
		{"serve " + exampleMesh + " --tls-cert a.pem", "--tls-cert needs --tls-key"},
		{"serve " + exampleMesh + " --poll -1s", "--poll is negative"},
		{"serve " + exampleMesh + " --log-level loud", `--log-level "loud"`},
		{"serve " + exampleMesh + " --log-format xml", `--log-format "xml"`},
		{"serve " + exampleMesh + " --listen nowhere", "--listen nowhere"},
		{"serve no-such-folder", "no-such-folder: "},
		{"render " + exampleMesh + " --output xml", `--output "xml"`},
		{"render " + exampleMesh + " --service nobody", `there is no service "nobody"; there are backend, frontend`},
		{"render " + exampleMesh + " --explain --service nobody", `there is no service "nobody"`},
		{"validate no-such-folder", "no-such-folder"},
		{"bootstrap", "xds_servers"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			_, stderr, exit := run(t, strings.Fields(test.args)...)
			if exit != 1 || !strings.Contains(stderr, test.want) {
				t.Errorf("exit status %d with %q, want 1 with %q", exit, stderr, test.want)
			}
		})
	}
}
