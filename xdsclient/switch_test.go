package xdsclient

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func TestSwitchesBetweenServers(t *testing.T) {
	var tests []transcriptTest
	// Whether a server that was unreachable still is shows when the stream that it has let the client open
	// ends or brings an answer.
	for name, then := range map[string]string{
		"open stream that brings an answer": "high: send 1 a=x b=x -> high: ack 1 a b; b = x",
		"open stream that ends":             "high: break -> low: stream; low: req a b",
	} {
		tests = append(tests, transcriptTest{name: name, over: "SotW", servers: ofTwo, steps: `
			watch a               -> high: stream; high: req a
			high: send 1 a=x      -> high: ack 1 a; a = x
			high: refuse
			high: break
			wait 1s
			high: accept
			wait 2s               -> high: stream; high: req a
			watch b               -> high: req a b @1
			low: streams 0
			` + then})
	}
	runTranscripts(t, tests)
}

// checkServers checks where the versions in use came from.
func checkServers(t *testing.T, c *XDSClient, want map[string]string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.entries() {
		if r.authority.key.newStyle {
			continue
		}
		if got := r.payload.server.URI; got != want[r.key.name] {
			t.Errorf("%q is from %s, want %s", r.key.name, got, want[r.key.name])
		}
	}
}

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
