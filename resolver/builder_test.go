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

// An override whose value no resource may have is a fault of the bootstrap, in memory and in the environment.
func TestOverridesAreChecked(t *testing.T) {
	const text = `{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}],
		"overrides": [{"clusters": "*", "subset_size": 0}]}`
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", text)
	_, err := NewBuilder([]byte(text))
	faults := map[string]error{"NewBuilder": err}
	_, faults["Builders in memory"] = Builders([]byte(text))[0].(*builder).config()
	_, faults["Builders in the environment"] = Builders(nil)[0].(*builder).config()
	for by, err := range faults {
		if err == nil || !strings.Contains(err.Error(), "overrides[0].subset_size: must be greater than 0") {
			t.Errorf("%s: got error %v, want the fault of the override", by, err)
		}
	}
}
