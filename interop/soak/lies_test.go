package soak

import (
	"strings"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// TestWhatIsCutShortIsNoMessage, wherever its fields end: a ClusterLoadAssignment
// without its last localities would be one that clients have to go by.
func TestWhatIsCutShortIsNoMessage(t *testing.T) {
	t.Parallel()
	for length := 1; length <= 100; length++ {
		for endpoints := 1; endpoints <= 5; endpoints++ {
			message := xdsmsg.SimpleEndpoints(strings.Repeat("n", length), strings.Split(strings.Repeat("127.0.0.1:50051,", endpoints)[:16*endpoints-1], ",")...)
			whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
			xdstest.NoError(t, err)
			cut := cutShort(whole)
			if err := proto.Unmarshal(cut, new(endpointpb.ClusterLoadAssignment)); err == nil {
				t.Errorf("a name of %d bytes and %d endpoints: %d of %d bytes are a message", length, endpoints, len(cut), len(whole))
			}
			if len(cut) < len(whole)/2-1 {
				t.Errorf("a name of %d bytes and %d endpoints: only %d of %d bytes are left", length, endpoints, len(cut), len(whole))
			}
		}
	}
}
