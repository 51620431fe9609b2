package grpcbridge_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

var runs atomic.Int64

// metricName returns a name that no other run of a test has.
func metricName(what string) string { return fmt.Sprint("bridgetest.", what, runs.Add(1)) }

// Two packages of a process may have a metric of one name, whichever comes first.
// If they could not, gRPC would end this test's process.
func TestMetricsAreSharedWithTheirOtherOwner(t *testing.T) {
	counter := estats.MetricDescriptor{Name: metricName("counter"), Labels: []string{"l"}, Type: estats.MetricTypeIntCount}
	gauge := estats.MetricDescriptor{Name: metricName("gauge"), Labels: []string{"l"}, Type: estats.MetricTypeIntAsyncGauge}
	histogram := estats.MetricDescriptor{Name: metricName("histogram"), Labels: []string{"l"}, Type: estats.MetricTypeFloatHisto}
	late := estats.MetricDescriptor{Name: metricName("late"), Labels: []string{"l"}, Type: estats.MetricTypeIntCount}
	theirsFirst := estats.RegisterInt64Count(late)

	if !grpcbridge.RegisterMetrics(counter, gauge, histogram, late) {
		t.Fatal("this gRPC has no registry of metrics as RegisterMetrics knows it")
	}
	for _, want := range []estats.MetricDescriptor{counter, gauge, histogram} {
		if got := estats.DescriptorForMetric(want.Name); got == nil || got.Type != want.Type {
			t.Errorf("%s is registered as %+v", want.Name, got)
		}
	}
	if got := estats.DescriptorForMetric(late.Name); got != theirsFirst.Descriptor() {
		t.Errorf("%s, which was there, was replaced", late.Name)
	}

	theirs := estats.RegisterInt64AsyncGauge(gauge)
	if got := estats.DescriptorForMetric(gauge.Name); got != theirs.Descriptor() {
		t.Error("the other owner's descriptor did not take the place of ours")
	}
	grpcbridge.RegisterMetrics(gauge)
	if got := estats.DescriptorForMetric(gauge.Name); got != theirs.Descriptor() {
		t.Error("the other owner's descriptor was replaced")
	}
}

// Without the hook a registration would end a process that links gRPC-Go's xds.
func TestMetricsWithoutRegistry(t *testing.T) {
	grpcbridge.WithoutRegistry(func() {
		if grpcbridge.RegisterMetrics(estats.MetricDescriptor{Name: "bridgetest.none", Type: estats.MetricTypeIntCount}) {
			t.Error("RegisterMetrics says that it registered something")
		}
	})
	if estats.DescriptorForMetric("bridgetest.none") != nil {
		t.Error("the metric is registered")
	}
}

// recordingPlugin is a stats plugin that records metrics; a stats.Handler alone does not.
type recordingPlugin struct {
	stats.Handler
	estats.UnimplementedMetricsRecorder
}

// recorderBuilder notes the recorder of each channel. It resolves nothing.
type recorderBuilder struct{ recorder estats.MetricsRecorder }

func (b *recorderBuilder) Scheme() string { return "recorder" }

func (b *recorderBuilder) Build(_ resolver.Target, _ resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	b.recorder = opts.MetricsRecorder
	return nil, errors.New("this resolver resolves nothing")
}

// If this fails after an update of gRPC, channels without a stats plugin pay for metrics.
func TestRecords(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts []grpc.DialOption
		want bool
	}{
		"no stats handler":                   {nil, false},
		"a stats handler without metrics":    {[]grpc.DialOption{grpc.WithStatsHandler(struct{ stats.Handler }{})}, false},
		"a stats handler that takes metrics": {[]grpc.DialOption{grpc.WithStatsHandler(recordingPlugin{})}, true},
	} {
		b := new(recorderBuilder)
		cc, err := grpc.NewClient("recorder:///x", append(test.opts, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		xdstest.NoError(t, err)
		cc.Connect() // This builds the resolver.
		if got := grpcbridge.Records(b.recorder); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		cc.Close()
	}
	if grpcbridge.Records(nil) || !grpcbridge.Records(estats.UnimplementedMetricsRecorder{}) {
		t.Error("nil records, or a recorder that is no list does not")
	}
}
