package xdsclient

import (
	"testing"

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
			(&transcriptTest{over: "SotW", servers: []string{"", ""}, then: func(x *transcript) {
				x.types.clusters.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
					_, err := decodeCluster(a)
					return &origin{o.Server, o.Loads, bound}, err
				}
				value := func() *origin { return x.watches["a"].value.(*origin) }
				x.run("watch a -> high: stream; high: req a\nhigh: send 1 a=1 -> high: ack 1 a; a =")
				first := value()
				x.run(`high: send 2 a=1 -> high: ack 2 a
					high: refuse
					high: break
					wait 1m
					watch b -> low: stream; low: req a b`)
				if !bound {
					x.run("low: send 1 a=1 b=1 -> low: ack 1 a b; b =")
					return
				}
				x.run("low: send 1 a=1 b=1 -> low: ack 1 a b; a =; b =")
				if second := value(); second.server != x.c.config.Servers[1] || second.loads == first.loads {
					t.Errorf("the value is of %v and counts load for it: %v", second.server, second.loads != first.loads)
				}
				x.run(`high: accept
					wait 10s -> high: stream; high: req a b
					high: send 3 a=1 b=1 -> high: ack 3 a b; low: closed; a =; b =`)
				if third := value(); third.server != x.c.config.Servers[0] || third.loads != first.loads {
					t.Errorf("the value is of %v and counts load for it: %v", third.server, third.loads == first.loads)
				}
			}}).run(t)
		})
	}
}

// A value from disk counts load for the server that sent it, once that is there, also if another one was followed meanwhile.
func TestServerBoundValueFromDisk(t *testing.T) {
	(&transcriptTest{over: "SotW", disk: true, servers: []string{"", ""}, then: func(x *transcript) {
		x.types.clusters.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
			_, err := decodeCluster(a)
			return &origin{o.Server, o.Loads, true}, err
		}
		x.run(`watch a -> high: stream; high: req a
			high: send 1 a=1 -> high: ack 1 a; a =
			disk close -> disk a=1; high: closed
			high: refuse
			low: refuse
			disk start
			watch a -> a =; a ambient: unreachable
			high: accept
			wait 10s -> high: stream; high: req a
			high: send 2 a=1 -> a =; ?a =; high: ack 2 a`)
		for _, a := range x.c.authorities {
			if value := x.watches["a"].value.(*origin); value.server != a.active().server || value.loads != a.active().share.loads {
				t.Errorf("the value is of %v, and counts load for it: %v", value.server, value.loads == a.active().share.loads)
			}
		}
	}}).run(t)
}
