package interop_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/testutils"
)

// step is a snapshot and the backends that answer once it has taken effect.
type step struct {
	name      string
	snapshot  []proto.Message
	answering []string
}

// both is a cluster of each backend.
func (w *world) both() []proto.Message {
	return []proto.Message{cluster("blue", "blue"), cluster("green", "green"), w.endpoints("blue", w.blue), w.endpoints("green", w.green)}
}

// updates has a list of steps for each type of resource. Every step changes
// that type; the others change only where the first refers to something new.
//
// Replaced resources stay in the snapshot until nothing refers to them: RPCs fail if a
// control plane removes a cluster that clients still use.
var updates = map[string]func(w *world) []step{
	"LDS": func(w *world) []step {
		both := w.both()
		return []step{
			{"another RouteConfiguration", append(both[:4:4], listener("more-routes"), routes("more-routes", "green")), []string{"green"}},
			{"routes inline", append(both[:4:4], xdsmsg.InlineListener(service, routes("", "blue"))), []string{"blue"}},
			{"routes by name again", append(both[:4:4], listener("routes"), routes("routes", "green")), []string{"green"}},
		}
	},
	"RDS": func(w *world) []step {
		both := append(w.both(), listener("routes"))
		split := xdsmsg.RouteConfig("routes", service, xdsmsg.WeightedRoute("/",
			xdsmsg.Weighted{Cluster: "blue", Weight: 50}, xdsmsg.Weighted{Cluster: "green", Weight: 50}))
		return []step{
			{"a split", append(both[:5:5], split), []string{"blue", "green"}},
			{"the other cluster", append(both[:5:5], routes("routes", "green")), []string{"green"}},
			{"and back", append(both[:5:5], routes("routes", "blue")), []string{"blue"}},
			{"straight to the other cluster", append(both[:5:5], routes("routes", "green")), []string{"green"}},
		}
	},
	"CDS": func(w *world) []step {
		rest := []proto.Message{listener("routes"), routes("routes", "blue")}
		return []step{
			{"another EDS service name", append(rest[:2:2], cluster("blue", "green"), w.endpoints("green", w.green)), []string{"green"}},
			{"and back", append(rest[:2:2], cluster("blue", "blue"), w.endpoints("blue", w.blue)), []string{"blue"}},
		}
	},
	"EDS": func(w *world) []step {
		rest := []proto.Message{listener("routes"), routes("routes", "blue"), cluster("blue", "blue")}
		return []step{
			{"a backend more", append(rest[:3:3], w.endpoints("blue", w.blue, w.green)), []string{"blue", "green"}},
			{"a backend less", append(rest[:3:3], w.endpoints("blue", w.green)), []string{"green"}},
			{"all others", append(rest[:3:3], w.endpoints("blue", w.blue)), []string{"blue"}},
		}
	},
}

// Given a channel with RPCs of all kinds running, when resources of one type change, then
// new RPCs follow the change and no RPC fails.
func TestUpdatesWhileRPCsRun(t *testing.T) {
	for _, mode := range gocp.Modes {
		for typ, steps := range updates {
			overLinks(t, typ+", "+mode.String(), func(t *testing.T, link *testutils.Link) {
				w := newWorld(t, mode, link)
				for _, s := range steps(w) {
					t.Log(s.name)
					w.control.Set(t, s.snapshot...)
					w.load.WaitForBackends(t, s.answering...)
				}
				w.load.Stop(t)
				xdstest.Equal(t, "ADS streams that the client opened", 1, w.control.Attempts())
			})
		}
	}
}

// moved is the initial resources with everything changed.
func (w *world) moved() []proto.Message {
	return append(w.both(), listener("more-routes"), routes("more-routes", "green"))
}

// Given RPCs of all kinds running, when the control plane stops and restarts on its address,
// then RPCs keep their configuration, updates from the new one take effect, and no RPC
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
	missing := []string{xdsmsg.ListenerType, xdsmsg.RouteType, xdsmsg.ClusterType, xdsmsg.EndpointType}
	w.control.MustWait(testutils.Context(t), t, func(r xdstest.Request) bool {
		missing = slices.DeleteFunc(missing, func(typeURL string) bool { return r.Stream > 1 && r.TypeURL == typeURL && len(r.Names) > 0 })
		return len(missing) == 0
	})
}
