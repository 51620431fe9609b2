package grpcbridge_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
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

type counts struct {
	estats.UnimplementedMetricsRecorder
	recorded []string
}

func (c *counts) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	c.recorded = append(c.recorded, fmt.Sprint(h.Name == "", n, labels))
}

// Whoever has registered a counter, it gets as many labels as it has.
func TestCounterHasTheLabelsOfItsDescriptor(t *testing.T) {
	for _, tc := range []struct {
		name               string
		typ                estats.MetricType
		required, optional []string
		want               []string
	}{
		{"all labels", estats.MetricTypeIntCount, []string{"a", "b"}, []string{"c"}, []string{"false 2 [1 2 3]"}},
		{"fewer labels", estats.MetricTypeIntCount, []string{"a", "b"}, nil, []string{"false 2 [1 2]"}},
		{"another order", estats.MetricTypeIntCount, []string{"c", "a"}, nil, nil},
		{"an unknown label", estats.MetricTypeIntCount, []string{"a"}, []string{"d"}, nil},
		{"another type", estats.MetricTypeIntAsyncGauge, []string{"a"}, nil, nil},
	} {
		name := metricName("found")
		grpcbridge.RegisterMetrics(estats.MetricDescriptor{Name: name, Type: tc.typ, Labels: tc.required, OptionalLabels: tc.optional})
		var got counts
		ours := estats.MetricDescriptor{Name: name, Type: estats.MetricTypeIntCount, Labels: []string{"a", "b"}, OptionalLabels: []string{"c"}}
		grpcbridge.NewMetric(ours).Record(&got, 2, "1", "2", "3")
		if !slices.Equal(got.recorded, tc.want) {
			t.Errorf("%s: recorded %q, want %q", tc.name, got.recorded, tc.want)
		}
	}
	grpcbridge.WithoutRegistry(func() {
		grpcbridge.NewMetric(estats.MetricDescriptor{Name: "bridgetest.missing"}).Record(new(counts), 1)
	})
}

// Another owner may have registered a metric differently.
func TestFindMetrics(t *testing.T) {
	registered := estats.MetricDescriptor{Name: metricName("histogram"), Labels: []string{"l"}, Type: estats.MetricTypeIntHisto}
	optional := registered
	optional.Name, optional.OptionalLabels = metricName("optional"), []string{"more"}
	estats.RegisterInt64Histo(registered)
	estats.RegisterInt64Histo(optional)
	of := func(name string, kind estats.MetricType, labels ...string) estats.MetricDescriptor {
		return estats.MetricDescriptor{Name: name, Type: kind, Labels: labels}
	}
	for _, test := range []struct {
		metric estats.MetricDescriptor
		want   bool
	}{
		{of(registered.Name, registered.Type, "l"), true},
		{of(registered.Name, estats.MetricTypeFloatHisto, "l"), false},
		{of(registered.Name, registered.Type, "other"), false},
		{of("unheard-of", registered.Type, "l"), false},
		{of(optional.Name, registered.Type, "l"), false},
	} {
		if got := len(grpcbridge.FindMetrics([]estats.MetricDescriptor{test.metric})) > 0; got != test.want {
			t.Errorf("%+v is found: %v, want %v", test.metric, got, test.want)
		}
	}
}
