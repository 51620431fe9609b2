package command

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// debian returns a program of Debian's package prometheus, which CI installs.
func debian(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed (Debian's package prometheus)", program)
	}
	return path
}

const rulesOf = "../../deploy/prometheus/"

// The alerts fire when they should, and only then, on series that deploy/prometheus/dynxds.test.yaml spells out.
func TestAlertsByPromtool(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(debian(t, "promtool"), "test", "rules", "dynxds.test.yaml")
	cmd.Dir = rulesOf
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// startOtel starts the example of a client, and returns the URL of its metrics.
func startOtel(t *testing.T, bootstrap string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "otel")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../../examples/otel"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	client := exec.Command(program, "--listen", "127.0.0.1:0", "--interval", "10ms")
	client.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP="+bootstrap)
	stdout, err := client.StdoutPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, client.Start())
	t.Cleanup(func() {
		_ = client.Process.Kill()
		_ = client.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	xdstest.NoError(t, err)
	_, page, found := strings.Cut(strings.TrimSpace(line), "metrics at ")
	if !found {
		t.Fatalf("the example says %q, want where its metrics are", line)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return page
}

// prometheus is a running one.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus has it scrape pages and evaluate the rules, often.
func startPrometheus(t *testing.T, pages map[string]string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(rulesOf + "dynxds.rules.yaml")
	xdstest.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 200ms}\nrule_files: [%q]\nscrape_configs:\n", rules)
	for job, page := range pages {
		u, err := url.Parse(page)
		xdstest.NoError(t, err)
		config += fmt.Sprintf("- {job_name: %s, static_configs: [{targets: [%q]}]}\n", job, u.Host)
	}
	cmdtest.Write(t, dir, "prometheus.yml", config)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	address := l.Addr().String()
	xdstest.NoError(t, l.Close())
	server := exec.Command(debian(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	var log xdstest.Log
	server.Stderr = &log
	xdstest.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("the log of prometheus:\n%s", &log)
		}
	})
	p := &prometheus{t, "http://" + address + "/api/v1/"}
	cmdtest.Await(t, func() string {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	return p
}

// get decodes the data of an answer.
func (p *prometheus) get(path string, query url.Values, data any) {
	p.t.Helper()
	_, body := cmdtest.GetAs(p.t, p.url+path+"?"+query.Encode(), "")
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s %v: %v: %s", path, query, err, body)
	}
}

// alerts waits until these alerts are pending or firing, and no others.
func (p *prometheus) alerts(when string, want ...string) {
	p.t.Helper()
	slices.Sort(want)
	cmdtest.Await(p.t, func() string {
		var data struct {
			Alerts []struct{ Labels map[string]string }
		}
		p.get("alerts", nil, &data)
		var got []string
		for _, a := range data.Alerts {
			got = append(got, a.Labels["alertname"])
		}
		slices.Sort(got)
		if got = slices.Compact(got); slices.Equal(got, want) {
			return ""
		}
		return fmt.Sprintf("%s: the alerts are %q, want %q", when, got, want)
	})
}

// A control plane, a relay and a client, as the examples have them, are scraped: each query of the dashboard and of the alerts
// is one to Prometheus, and those alerts come up that should.
func TestAlertsOnRunningExamples(t *testing.T) {
	t.Parallel()
	debian(t, "prometheus")
	backend := testutils.StartBackend(t, "v1")
	dir := t.TempDir()
	service := func(text string) string { return "kind: Service\nname: backend\n" + text }
	cmdtest.Write(t, dir, "backend.yaml", service(fmt.Sprintf("endpoints: [{address: %q}]\n", backend.Addr())))
	serve := start(t, "serve", dir, "--metrics=127.0.0.1:0", "--poll", "100ms")
	plane, address := serve.pages("--metrics"), serve.address()
	bootstrapOf := func(id, server string) string {
		path := filepath.Join(t.TempDir(), "bootstrap.json")
		xdstest.NoError(t, os.WriteFile(path, testutils.Bootstrap(id, server), 0o600))
		return path
	}
	relay := start(t, "relay", "--bootstrap", bootstrapOf("relay", address), "--metrics=127.0.0.1:0")
	relayed := relay.pages("--metrics")
	client := startOtel(t, bootstrapOf("client", relay.address()))
	p := startPrometheus(t, map[string]string{"serve": plane, "relay": relayed, "client": client})

	cmdtest.Await(t, func() string {
		var data struct{ Result []any }
		p.get("query", url.Values{"query": {`rate(dynxds_client_calls_total{grpc_status!="x"}[5m]) and on () dynxds_relay_groups == 1 and on () dynxds_controlplane_clients > 0`}}, &data)
		if len(data.Result) > 0 {
			return ""
		}
		return "not everything is scraped"
	})
	p.alerts("all is well")
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.get("rules", nil, &rules)
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" {
				t.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n < 10 {
		t.Errorf("prometheus has %d rules", n)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile("../../deploy/grafana/dynxds.json")
	xdstest.NoError(t, err)
	xdstest.NoError(t, json.Unmarshal(text, &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			query := strings.NewReplacer("$__rate_interval", "1m", "$target", ".*").Replace(target.Expr)
			p.get("query", url.Values{"query": {query}}, new(any))
		}
	}

	cmdtest.Write(t, dir, "faulty.yaml", "kind: Nonsense\n")
	p.alerts("a document is faulty", "DynxdsDocumentsFaulty")
	xdstest.NoError(t, os.Remove(filepath.Join(dir, "faulty.yaml")))
	p.alerts("it is gone")
	cmdtest.Write(t, dir, "backend.yaml", service("endpoints: [{address: '127.0.0.1:1'}]\n"))
	p.alerts("no endpoint can be reached", "DynxdsClientErrors", "DynxdsClientNoEndpoint")
	serve.drain()
	p.alerts("the control plane is gone too", "DynxdsClientErrors", "DynxdsClientNoEndpoint", "DynxdsRelayCutOff")
	relay.drain()
}
