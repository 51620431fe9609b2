package rpcmetrics

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// plugin records what it is given, as "name value label…".
type plugin struct {
	estats.UnimplementedMetricsRecorder
	mu        sync.Mutex
	lines     []string
	reporters map[*estats.AsyncMetricReporter]bool
}

func (p *plugin) add(d *estats.MetricDescriptor, v any, labels []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, fmt.Sprintf("%s %v %q", strings.TrimPrefix(d.Name, "dynxds.client."), v, labels))
}

func (p *plugin) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	p.add(h.Descriptor(), n, labels)
}

func (p *plugin) RecordFloat64Histo(h *estats.Float64HistoHandle, v float64, labels ...string) {
	p.add(h.Descriptor(), v, labels)
}

func (p *plugin) RecordInt64AsyncGauge(h *estats.Int64AsyncGaugeHandle, v int64, labels ...string) {
	p.add(h.Descriptor(), v, labels)
}

func (p *plugin) RegisterAsyncReporter(r estats.AsyncMetricReporter, _ ...estats.AsyncMetric) func() {
	if p.reporters == nil {
		p.reporters = make(map[*estats.AsyncMetricReporter]bool)
	}
	p.reporters[&r] = true
	return func() { delete(p.reporters, &r) }
}

// expect checks what was recorded since the last call.
func (p *plugin) expect(t *testing.T, want ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.lines, want) {
		t.Errorf("recorded\n%s\nwant\n%s", strings.Join(p.lines, "\n"), strings.Join(want, "\n"))
	}
	p.lines = nil
}

// register makes gRPC know the metrics, as the package metrics does. It returns what New returned
// before.
var register = sync.OnceValue(func() *Recorder {
	before := New("target", new(plugin))
	grpcbridge.RegisterMetrics(Descriptors()...)
	return before
})

func TestNothingIsRecordedUnlessAsked(t *testing.T) {
	t.Parallel()
	if register() != nil {
		t.Error("there is a Recorder although gRPC does not know the metrics")
	}
	if New("target", nil) != nil {
		t.Error("there is a Recorder although there is no plugin")
	}
	var off *Recorder
	off.Configured(true)
	off.Close()
}

func TestRPC(t *testing.T) {
	t.Parallel()
	register()
	synctest.Test(t, func(t *testing.T) {
		p := new(plugin)
		m := New("rpcs", p)
		defer m.Close()
		c := m.Begin()
		c.Routed(rpctrace.Route{Name: "r", Match: "/s/*", Cluster: "all"})
		c.Picked(rpctrace.Pick{Cluster: "a", Reason: rpctrace.Unreachable, Err: errors.New("not reached")})
		c.Picked(rpctrace.Pick{Cluster: "b", Priority: 1})
		count := c.Resending()
		c.Picked(rpctrace.Pick{Cluster: "b", Priority: 12})
		count()
		time.Sleep(1500 * time.Millisecond)
		c.Ended(status.Error(codes.DeadlineExceeded, ""))
		p.expect(t, `pick.failures 1 ["rpcs" "a" "unreachable"]`, `call.retries 1 ["rpcs" "r" "b" "1"]`,
			`calls 1 ["rpcs" "r" "b" "12" "DEADLINE_EXCEEDED"]`, `call.duration 1.5 ["rpcs" "r" "b" "12"]`)

		m.Begin().Ended(status.Error(77, ""))
		p.expect(t, `calls 1 ["rpcs" "" "" "" "other"]`, `call.duration 0 ["rpcs" "" "" ""]`)
	})
}

// Each channel reports to its own plugin, while it has a configuration.
func TestAgeOfTheConfiguration(t *testing.T) {
	t.Parallel()
	register()
	synctest.Test(t, func(t *testing.T) {
		var plugins [2]plugin
		var channels [2]*Recorder
		for i := range channels {
			channels[i] = New("ages", &plugins[i])
		}
		collect := func(want ...string) {
			t.Helper()
			for i := range plugins {
				for r := range plugins[i].reporters {
					xdstest.NoError(t, (*r).Report(&plugins[i]))
				}
				plugins[i].expect(t, want[min(i, len(want)):min(i+1, len(want))]...)
			}
		}
		collect()
		channels[0].Configured(true)
		time.Sleep(3 * time.Second)
		channels[1].Configured(true)
		collect(`config.age 3 ["ages"]`, `config.age 0 ["ages"]`)
		channels[1].Configured(false)
		collect(`config.age 3 ["ages"]`)
		for i := range channels {
			channels[i].Close()
		}
		if len(plugins[0].reporters)+len(plugins[1].reporters) > 0 {
			t.Error("something is left of closed channels")
		}
	})
}

// RPCs that have not ended are reported as long as there are any, also those that are not counted apart.
func TestInFlight(t *testing.T) {
	t.Parallel()
	register()
	outcomes.Look()
	p := new(plugin)
	m := New("in flight", p)
	defer m.Close()
	m.Configured(true)
	collect := func(want ...string) {
		t.Helper()
		xdstest.NoError(t, m.report(p))
		p.lines = slices.DeleteFunc(p.lines, func(line string) bool { return strings.HasPrefix(line, "config.age ") })
		p.expect(t, want...)
	}
	c := outcomes.Find(outcomes.Key{Target: "in flight", Route: "r", Cluster: "c"})
	outcomes.Find(outcomes.Key{Target: "another", Route: "r", Cluster: "c"}).Begin()
	collect()
	one, two := c.Begin(), c.Begin()
	collect(`in_flight 2 ["in flight" "r" "c"]`)
	one.End(nil)
	collect(`in_flight 1 ["in flight" "r" "c"]`)
	two.End(nil)
	collect()
	late := outcomes.Find(outcomes.Key{Target: outcomes.Others, Route: outcomes.Others, Cluster: outcomes.Others}).Begin()
	collect(`in_flight 1 ["(others)" "(others)" "(others)"]`)
	late.End(nil)
	collect()
}

// The certificates that the process presents are reported while they are in use, also without a configuration. The test is not parallel, as the
// process has one list of certificates.
func TestCertificates(t *testing.T) {
	register()
	files := testca.NewFiles(t)
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		files.IssueFor(testca.New(t), &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)})
		provider := certfiles.NewProvider(certfiles.Config{Certificate: files.Cert, Key: files.Key, Refresh: time.Hour})
		p := new(plugin)
		m := New("certified", p)
		defer m.Close()
		xdstest.NoError(t, m.report(p))
		p.expect(t, fmt.Sprintf("certificate.left 3600 [%q]", files.Cert), fmt.Sprintf("certificate.lifetime 7200 [%q]", files.Cert))
		time.Sleep(2 * time.Hour)
		xdstest.NoError(t, m.report(p))
		p.expect(t, fmt.Sprintf("certificate.left -3600 [%q]", files.Cert), fmt.Sprintf("certificate.lifetime 7200 [%q]", files.Cert))
		provider.Close()
		xdstest.NoError(t, m.report(p))
		p.expect(t)
	})
}

// The memory for labels, ours and the plugin's, is bounded whatever the control plane sends.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	var sets labelSets
	first := labels{"t"}
	kept := sets.get(first)
	for i := range 2 * maxLabelSets {
		sets.get(labels{"t", fmt.Sprint(i)})
	}
	if sets.get(first) != kept || len(*sets.shared.Load()) != maxLabelSets || sets.get(labels{"late"}) != nil {
		t.Errorf("%d sets of labels, want %d, the first of them kept", len(*sets.shared.Load()), maxLabelSets)
	}
}

// A header of an RPC may name a cluster of any length, which is no label then.
func TestLongNameOfACluster(t *testing.T) {
	t.Parallel()
	m := &Recorder{target: t.Name()}
	long := strings.Repeat("x", maxCluster+1)
	if l := m.labels("r", long, ""); l[2] != other {
		t.Errorf("the label has %d bytes", len(l[2]))
	}
	if l := m.labels("r", long[1:], ""); l[2] != long[1:] {
		t.Errorf("the label is %.100q", l[2])
	}
}

// discard is a plugin that drops what it is given.
type discard struct {
	estats.UnimplementedMetricsRecorder
}

// collected counts the values of gauges.
type collected struct{ n int }

func (c *collected) RecordInt64AsyncGauge(*estats.Int64AsyncGaugeHandle, int64, ...string) { c.n++ }

// BenchmarkRPC is what a unary RPC costs more, without what the plugin does.
func BenchmarkRPC(b *testing.B) {
	register()
	m := New("bench", discard{})
	defer m.Close()
	b.ReportAllocs()
	for b.Loop() {
		c := m.Begin()
		trace := rpctrace.Observed(c, nil)
		trace.Routed(rpctrace.Route{Name: "r", Match: "/s/*", Cluster: "c"})
		trace.Picked(rpctrace.Pick{Cluster: "c"})
		c.Ended(nil)
	}
}

// BenchmarkCollect is what one collection of a plugin costs in a process with as many kinds of RPCs as are counted apart.
func BenchmarkCollect(b *testing.B) {
	register()
	outcomes.Keep()
	const targets = 1000
	var recorders []*Recorder
	for i := range targets {
		m := New(fmt.Sprint("collect ", i), discard{})
		defer m.Close()
		m.Configured(true)
		recorders = append(recorders, m)
		for route := range bounds.OutcomeKinds / targets {
			outcomes.Find(outcomes.Key{Target: m.target, Route: fmt.Sprint(route), Cluster: "c"}).Begin()
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		var all collected
		for _, m := range recorders {
			xdstest.NoError(b, m.report(&all))
		}
		if all.n < bounds.OutcomeKinds {
			b.Fatalf("%d values", all.n)
		}
	}
}
