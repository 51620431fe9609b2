package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// 30,000 names of ordinary length and their versions are more than the 4 MiB that servers accept. On a new stream
// the client asks for all of them, and claims the versions that fit into the first request.
func TestManyNamesFitIntoRequests(t *testing.T) {
	t.Parallel()
	const n = 30_000
	types, k := newTestTypes(), newCore(t, "delta")
	var words []string
	for i := range n {
		name := fmt.Sprintf("%s/cluster-%06d", strings.Repeat("n", 60), i)
		k.c.Watch(types.clusters, name, &counter{})
		words = append(words, name+"@"+strings.Repeat("v", 40)+"=x")
	}
	// asked takes the requests for all names, and returns how many versions they claim.
	asked := func() (versions int) {
		t.Helper()
		names := 0
		for b := k.request(); b != nil; b = k.request() {
			var r discoverypb.DeltaDiscoveryRequest
			xdstest.NoError(t, proto.Unmarshal(b, &r))
			names, versions = names+len(r.GetResourceNamesSubscribe()), versions+len(r.GetInitialResourceVersions())
			if len(b) > bounds.Request {
				t.Errorf("a request of %d bytes, want %d at most", len(b), bounds.Request)
			}
		}
		xdstest.Equal(t, "names that are asked for", n, names)
		return versions
	}
	asked()
	k.push(k.response(types, types.clusters, "1", words...))
	k.answer()
	k.channel.ended(transport.ErrNoAnswer)
	k.channel.opened()
	if versions := asked(); versions == 0 || versions >= n {
		t.Errorf("the client claims to have %d resources of %d in one request", versions, n)
	}
}
