package metrics_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/xdstest"
	observed "github.com/dynxds/dynxds/observe/metrics"
)

const deploy = "../../../deploy/"

// exported returns the metrics of control planes, relays and clients as Prometheus names them, with their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	of := everyMetric(t)
	families, err := of.Gatherer().Gather()
	xdstest.NoError(t, err)
	all := map[string][]string{"grpc_client_call_duration_seconds_count": {"grpc_method", "grpc_target", "grpc_status"}} // gRPC's own
	for _, f := range families {
		var labels []string
		for _, pair := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, pair.GetName())
		}
		names := []string{f.GetName()}
		if f.GetMetric()[0].GetHistogram() != nil {
			names, labels = histogram(f.GetName()), append(labels, "le")
		}
		for _, name := range names {
			all[name] = labels
		}
	}
	// As OpenTelemetry's exporter writes them.
	plain := strings.NewReplacer(".", "_")
	for name := range observed.All().Metrics() {
		d := estats.DescriptorForMetric(name)
		if d == nil {
			t.Fatalf("gRPC does not know the metric %s", name)
		}
		to := plain.Replace(d.Name)
		if d.Unit == "s" {
			to += "_seconds"
		}
		var labels []string
		for _, label := range slices.Concat(d.Labels, d.OptionalLabels) {
			labels = append(labels, plain.Replace(label))
		}
		switch d.Type {
		case estats.MetricTypeIntCount, estats.MetricTypeFloatCount:
			all[to+"_total"] = labels
		case estats.MetricTypeIntHisto, estats.MetricTypeFloatHisto:
			for _, name := range histogram(to) {
				all[name] = append(labels, "le")
			}
		default:
			all[to] = labels
		}
	}
	return all
}

func histogram(name string) []string {
	return []string{name + "_bucket", name + "_sum", name + "_count"}
}

var (
	inBraces  = regexp.MustCompile(`\{([^}]*)\}`)
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring) *\(([^)]*)\)`)
	matcher   = regexp.MustCompile(`([a-z_]+) *(?:=~|!~|!=|=) *"[^"]*"`)
	aMetric   = regexp.MustCompile(`\b[a-z]+_[a-z0-9_]+\b`)
	functions = []string{"histogram_quantile", "label_values"}
)

// checkExpression fails the test if an expression has a metric or a label that is not exported.
func checkExpression(t *testing.T, where, expr string, all map[string][]string) {
	t.Helper()
	var labels []string
	for _, m := range inBraces.FindAllStringSubmatch(expr, -1) {
		for _, pair := range matcher.FindAllStringSubmatch(m[1], -1) {
			labels = append(labels, pair[1])
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	known := []string{"job", "instance"}
	found := 0
	for _, name := range aMetric.FindAllString(grouping.ReplaceAllString(inBraces.ReplaceAllString(expr, ""), ""), -1) {
		if slices.Contains(functions, name) {
			continue
		}
		of, is := all[name]
		if !is {
			t.Errorf("%s: nothing exports %s: %s", where, name, expr)
		}
		known = append(known, of...)
		found++
	}
	if found == 0 {
		t.Errorf("%s: no metric in %s", where, expr)
	}
	for _, label := range labels {
		if !slices.Contains(known, label) {
			t.Errorf("%s: no metric has the label %s: %s", where, label, expr)
		}
	}
}

// What the alerts look at exists, each has a section of the documentation, and promtool tests it.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(deploy + "prometheus/dynxds.rules.yaml")
	xdstest.NoError(t, err)
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	xdstest.NoError(t, yaml.Unmarshal(text, &rules))
	page, err := os.ReadFile("../../../docs/tasks/alerts.md")
	xdstest.NoError(t, err)
	tests, err := os.ReadFile(deploy + "prometheus/dynxds.test.yaml")
	xdstest.NoError(t, err)
	all, alerts := exported(t), 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts++
			checkExpression(t, r.Alert, r.Expr, all)
			if want := "https://github.com/dynxds/dynxds/blob/main/docs/tasks/alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("%s has the runbook %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			if !strings.Contains(string(page), "\n### "+r.Alert+"\n") {
				t.Errorf("docs/tasks/alerts.md has no section %s", r.Alert)
			}
			if strings.Count(string(tests), r.Alert) != 2 {
				t.Errorf("dynxds.test.yaml does not test that %s fires, and that it does not", r.Alert)
			}
			if s := r.Labels["severity"]; s != "warning" && s != "critical" || r.Annotations["summary"] == "" {
				t.Errorf("%s has the severity %q and the summary %q", r.Alert, s, r.Annotations["summary"])
			}
		}
	}
	if sections := strings.Count(string(page), "\n### "); alerts != sections || alerts < 10 {
		t.Errorf("%d alerts and %d sections", alerts, sections)
	}
}
