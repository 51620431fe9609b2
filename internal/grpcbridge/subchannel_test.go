package grpcbridge_test

import (
	"maps"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// Should it fail after an update of gRPC, gRPC asks for the labels of subchannels in another way,
// and those of dynxds have none.
func TestSubchannelLabels(t *testing.T) {
	t.Parallel()
	type key struct{}
	others := func(a resolver.Address) map[string]string { return map[string]string{"other": a.Addr} }
	labels := grpcbridge.SubchannelLabels{BackendService: "cluster", Locality: "here"}
	plain := []resolver.Address{{Addr: "a:1"}, {Addr: "a:2"}}
	ours := labels.On(plain)[0]
	want := map[string]string{"grpc.lb.backend_service": "cluster", "grpc.lb.locality": "here"}
	for _, tc := range []struct {
		name    string
		next    any
		known   bool
		address resolver.Address
		want    map[string]string
	}{
		{"ours", nil, true, ours, want},
		{"ours before another's", others, true, ours, want},
		{"another's", others, true, resolver.Address{Addr: "b:1", Attributes: attributes.New(key{}, 1)}, map[string]string{"other": "b:1"}},
		{"nobody's", nil, true, resolver.Address{Addr: "b:1"}, nil},
		{"a hook of another type", func() {}, false, ours, want},
	} {
		f, known := grpcbridge.SubchannelLabelsBefore(tc.next)
		xdstest.Equal(t, tc.name+": the hook is known", tc.known, known)
		xdstest.Equal(t, tc.name+": labels", tc.want, f(tc.address))
	}
	if got := grpcbridge.SubchannelLabelsOf(ours); got != labels {
		t.Errorf("the labels on the address are %v", got)
	}
	if plain[0].Attributes != nil || grpcbridge.SubchannelLabelsOf(plain[0]) != (grpcbridge.SubchannelLabels{}) {
		t.Error("the address itself was changed")
	}
	if got := (grpcbridge.SubchannelLabels{}).On(plain); &got[0] != &plain[0] || got[0].Attributes != nil {
		t.Error("no labels change the addresses")
	}
	if f, ok := grpcbridge.InstalledSubchannelLabels().(func(resolver.Address) map[string]string); !ok || !maps.Equal(f(ours), want) {
		t.Error("gRPC does not ask dynxds for the labels of subchannels")
	}
}

// recorder is a stats handler that records metrics.
type recorder struct {
	handler
	estats.UnimplementedMetricsRecorder
}

// spyBuilder builds a policy that passes on what it learns of the channel's recorder.
type spyBuilder struct{ records chan bool }

func (spyBuilder) Name() string { return "bridgetest_records" }

func (b spyBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	b.records <- grpcbridge.Records(cc.MetricsRecorder())
	return balancer.Get("pick_first").Build(cc, opts)
}

var spies = spyBuilder{make(chan bool, 1)}

func init() { balancer.Register(spies) }

type handler struct{ stats.Handler }

// Should it fail after an update of gRPC, channels without telemetry pay for labels.
func TestRecords(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []grpc.DialOption
		want bool
	}{
		{"no stats handler", nil, false},
		{"a stats handler that takes no metrics", []grpc.DialOption{grpc.WithStatsHandler(handler{})}, false},
		{"a stats handler that takes metrics", []grpc.DialOption{grpc.WithStatsHandler(recorder{})}, true},
	} {
		r := manual.NewBuilderWithScheme("bridgetest")
		r.InitialState(resolver.State{})
		cc, err := grpc.NewClient("bridgetest:///x", append(tc.opts, grpc.WithResolvers(r),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"bridgetest_records":{}}]}`))...)
		xdstest.NoError(t, err)
		cc.Connect()
		xdstest.Equal(t, tc.name+": Records", tc.want, <-spies.records)
		cc.Close()
	}
	if grpcbridge.Records(nil) {
		t.Error("no recorder records")
	}
	if !grpcbridge.Records(&recorder{}) {
		t.Error("a recorder of a form of its own does not record")
	}
}
