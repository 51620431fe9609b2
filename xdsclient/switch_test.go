package xdsclient

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// origin is a value that knows which server it is of.
type origin struct {
	server *bootstrap.Server
	loads  *load.Store
	bound  bool
}

func (o *origin) ServerBound() bool { return o.bound }

// config_source.proto, "self": the server that the resource came from. When another
// server takes over and sends the same bytes, a value that depends on that is made
// again; others stay.
func TestServerBoundValueFollowsTheServer(t *testing.T) {
	for name, bound := range map[string]bool{"bound": true, "not bound": false} {
		t.Run(name, func(t *testing.T) {
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
				types.clusters.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
					_, err := decodeCluster(a)
					return &origin{o.Server, o.Loads, bound}, err
				}
				c := f.client()
				a, _ := listen(t, c, types.clusters, "a")
				s := f[0].asked()
				s.send(types.clusters, "1", "n1", cluster("a", "1"))
				first := a.value().(*origin)
				s.request()
				s.send(types.clusters, "2", "n2", cluster("a", "1"))
				s.request()
				a.silent() // the same server, the same bytes

				f[0].setRefuse(errRefused)
				s.breakOff()
				pass(time.Minute)
				listen(t, c, types.clusters, "b")
				low := f[1].asked()
				low.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("b", "1"))
				if !bound {
					low.request()
					a.silent()
					return
				}
				second := a.value().(*origin)
				if second.server != c.config.Servers[1] || second.loads == first.loads {
					t.Errorf("the value is of %v and counts load for it: %v", second.server, second.loads != first.loads)
				}
				// And back.
				s = f[0].recover()
				s.send(types.clusters, "3", "n1", cluster("a", "1"), cluster("b", "1"))
				if third := a.value().(*origin); third.server != c.config.Servers[0] || third.loads != first.loads {
					t.Errorf("the value is of %v and counts load for it: %v", third.server, third.loads == first.loads)
				}
			})
		})
	}
}
