package grpcbridge_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

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
