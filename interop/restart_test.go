package interop_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// moved is the initial resources with everything changed.
func (w *world) moved() []proto.Message {
	return []proto.Message{listener("more-routes"), routes("more-routes", "green"),
		cluster("blue", "blue"), cluster("green", "green"),
		w.endpoints("blue", w.blue), w.endpoints("green", w.green)}
}

// TestRestartOfTheControlPlane: given RPCs of all kinds running, when the
// control plane goes and comes back on its address, then RPCs go on by the
// configuration they have, what the new one says takes effect, and no RPC
// fails.
func TestRestartOfTheControlPlane(t *testing.T) {
	for _, mode := range gocp.Modes {
		for name, comesBack := range map[string]func(*testing.T, *world){
			"with what it had before": func(t *testing.T, w *world) {
				w.control.Restart(t, w.initial()...)
				w.resubscribed(t)
				w.load.WaitForBackends(t, "blue")
				w.control.Set(t, w.moved()...)
			},
			// The client has this version, but of another content.
			"with something else under the version it had before": func(t *testing.T, w *world) {
				w.control.Restart(t, w.moved()...)
			},
			"with nothing to say at first": func(t *testing.T, w *world) {
				w.control.Restart(t)
				w.resubscribed(t)
				w.load.WaitForBackends(t, "blue")
				w.control.Set(t, w.moved()...)
			},
		} {
			overLinks(t, name+", "+mode.String(), func(t *testing.T, link *testutils.Link) {
				w := newWorld(t, mode, link)
				w.control.Stop()
				w.load.WaitForBackends(t, "blue")
				comesBack(t, w)
				w.load.WaitForBackends(t, "green")
				w.load.Stop(t)
			})
		}
	}
}

// resubscribed returns when the client has asked the restarted server for a
// resource of every type.
func (w *world) resubscribed(t *testing.T) {
	t.Helper()
	ctx := testutils.Context(t)
	for _, typeURL := range []string{xdsmsg.ListenerType, xdsmsg.RouteType, xdsmsg.ClusterType, xdsmsg.EndpointType} {
		w.waitFor(ctx, t, typeURL+" to be asked for again", func(r gocp.Request) bool {
			return r.Stream > 1 && r.TypeURL == typeURL && len(r.Names) > 0
		})
	}
}
