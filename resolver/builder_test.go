package resolver

import (
	"strings"
	"testing"

	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// fakeClientConn is a resolver.ClientConn of a test, without a channel.
type fakeClientConn struct{ grpcresolver.ClientConn }

// A resolver that is built without a channel is an error that says why and where to read on.
func TestBuildWithoutAChannel(t *testing.T) {
	t.Parallel()
	b, err := NewBuilder([]byte(`{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}`))
	xdstest.NoError(t, err)
	r, err := b.Build(grpcresolver.Target{}, fakeClientConn{}, grpcresolver.BuildOptions{})
	if err == nil {
		r.Close()
		t.Fatal("Build returned no error")
	}
	for _, text := range []string{"resolver.fakeClientConn", "channels of grpc.NewClient only", "docs/tasks/beside-grpc-go.md"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error has no %q: %v", text, err)
		}
	}
}
