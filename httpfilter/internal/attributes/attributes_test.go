package attributes

import (
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// gRFC A106, "CEL: Supported Variables": each row of its table. nil: the RPC does not have it.
func TestAttributes(t *testing.T) {
	t.Parallel()
	ctx := metadata.AppendToOutgoingContext(t.Context(),
		"referer", "here", "user-agent", "me", "X-Request-Id", "7", "k", "a", "k", "b", "te", "trailers", "x-bin", "\xff")
	full := Of(ctx, &httpfilter.RPC{Method: "/s/m", Authority: "host"})
	bare := Of(t.Context(), &httpfilter.RPC{Method: "/s/m"})
	want := map[string]struct{ full, bare any }{
		"request.path":     {"/s/m", "/s/m"},
		"request.url_path": {"/s/m", "/s/m"},
		"request.host":     {"host", nil},
		"request.scheme":   {},
		"request.method":   {"POST", "POST"},
		"request.headers": {
			map[string]string{
				":method": "POST", ":path": "/s/m", ":authority": "host",
				"referer": "here", "user-agent": "me", "x-request-id": "7", "k": "a,b", "x-bin": "/w==",
			},
			map[string]string{":method": "POST", ":path": "/s/m", ":authority": ""},
		},
		"request.referer":   {"here", nil},
		"request.useragent": {"me", nil},
		"request.time":      {},
		"request.id":        {"7", nil},
		"request.protocol":  {},
		"request.query":     {"", ""},
		"request.size":      {},
		"source.address":    {},
	}
	for name, want := range want {
		for _, row := range []struct {
			rpc  *RPC
			want any
		}{{full, want.full}, {bare, want.bare}} {
			got, ok := row.rpc.Value(name)
			if !ok {
				got = nil
			}
			xdstest.Equal(t, name, row.want, got)
		}
	}
	for _, name := range Names() {
		if _, ok := want[name]; !ok {
			t.Errorf("%s has no row", name)
		}
	}
}
