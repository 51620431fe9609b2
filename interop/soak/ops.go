package soak

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// An op is something that happens to a mesh. do reports whether it could be
// done; it may draw from the run's random numbers either way.
type op struct {
	name   string
	weight int
	do     func(r *run) bool
}

// ops is all that happens. Weights are relative.
var ops = slices.Concat([]op{
	{"routes lead elsewhere", 10, func(r *run) bool {
		return r.change(func(c *config) { c.version++; r.reroute(c) })
	}},
	{"a cluster comes", 6, (*run).addCluster},
	{"a cluster goes", 4, (*run).dropCluster},
	{"endpoints change", 12, func(r *run) bool {
		return r.changeCluster(func(old clusterSpec, name string) clusterSpec {
			old.placements = r.placements()
			return old
		})
	}},
	{"a cluster's policy changes", 4, func(r *run) bool {
		return r.changeCluster(func(old clusterSpec, name string) clusterSpec {
			old.policy = r.cluster(name).policy
			return old
		})
	}},
	{"a cluster's endpoints get another name", 4, func(r *run) bool {
		return r.changeCluster(func(old clusterSpec, name string) clusterSpec {
			old.service = r.cluster(name).service
			return old
		})
	}},
	{"routes move inline, or out again", 2, func(r *run) bool {
		return r.change(func(c *config) { c.version++; c.inline = !c.inline })
	}},
	{"routes get another name", 2, func(r *run) bool {
		return r.change(func(c *config) { c.version++; c.routeName = routeNames[r.IntN(len(routeNames))] })
	}},
	{"filters change", 6, func(r *run) bool {
		return r.change(func(c *config) {
			c.version++
			chosen := r.Perm(len(filterNames))[:r.IntN(len(filterNames)+1)]
			c.filters = nil
			for _, i := range chosen {
				c.filters = append(c.filters, filterNames[i])
			}
		})
	}},
	{"retries change", 2, func(r *run) bool {
		return r.change(func(c *config) { c.version++; c.retry = !c.retry })
	}},
	{"a backend stops in order", 4, func(r *run) bool { return r.stopBackend((*backend).GracefulStop) }},
	{"a backend crashes", 2, func(r *run) bool { return r.stopBackend((*backend).crash) }},
	{"the control plane restarts", 3, func(r *run) bool {
		return r.fault((*xdstest.Server).Stop, func(f *xdstest.Server) { r.must(f.Restart()) })
	}},
	{"the control plane restarts in order", 2, func(r *run) bool {
		return r.fault((*xdstest.Server).GracefulStop, func(f *xdstest.Server) { r.must(f.Restart()) })
	}},
	{"the control plane breaks streams", 2, func(r *run) bool {
		r.control.BreakStreams(status.Error(codes.Internal, "on purpose"))
		return true
	}},
	{"the control plane refuses streams", 2, func(r *run) bool {
		return r.fault(func(f *xdstest.Server) {
			f.RefuseStreams(status.Error(codes.Unavailable, "on purpose"))
			f.BreakStreams(errors.New("on purpose"))
		}, func(f *xdstest.Server) { f.RefuseStreams(nil) })
	}},
	{"the control plane stops sending", 3, func(r *run) bool {
		var resume func()
		return r.fault(func(f *xdstest.Server) { resume = f.StallSends() }, func(*xdstest.Server) { resume() })
	}},
	{"the control plane stops reading", 3, func(r *run) bool {
		var resume func()
		return r.fault(func(f *xdstest.Server) { resume = f.StallReads() }, func(*xdstest.Server) { resume() })
	}},
	{"resources are deleted", 3, func(r *run) bool {
		return r.spoil(func(tx *controlplane.Tx, k key) { tx.Delete(k.typeURL, k.name) })
	}},
	{"errors take the place of resources", 4, (*run).putErrors},
	{"a channel comes and goes", 2, (*run).passingChannel},
}, lies, dpdsOps)

// change publishes the newest configuration with a change. In a round with lies
// it must have no name that clients may not have yet: to lie about that is to
// take it away, since it answers for the first time, with an error, and routes
// that wait for it go ahead.
func (r *run) change(f func(c *config)) bool {
	next := r.newest.clone()
	f(next)
	next.prune()
	if r.lying && !r.known(next) {
		return false
	}
	r.publish(next)
	return true
}

// known reports whether every client has all that the configuration names. The
// lane that clients are in does not change in a round with lies, so routes stay in
// the resource they are in: that is of a type with a lane of its own. What clients
// gave up they may have forgotten.
func (r *run) known(c *config) bool {
	if c.inline != r.newest.inline {
		return false
	}
	for _, l := range allLanes {
		has := r.newest.keys(l)
		for k := range c.keys(l) {
			if !has[k] {
				return false
			}
		}
	}
	return true
}

// reroute draws new routes; in a round with lies to clusters that the lane has
// already.
func (r *run) reroute(c *config) {
	r.routes(c, func(l lane) []string {
		all := slices.Sorted(maps.Keys(c.clusters))
		if !r.lying {
			return all
		}
		has := slices.DeleteFunc(r.newest.used(l), func(name string) bool { return !slices.Contains(all, name) })
		if len(has) == 0 {
			return all // which change does not let through
		}
		return has
	})
}

func (r *run) changeCluster(f func(old clusterSpec, name string) clusterSpec) bool {
	names := slices.Sorted(maps.Keys(r.newest.clusters))
	name := names[r.IntN(len(names))]
	return r.change(func(c *config) { c.clusters[name] = f(c.clusters[name], name) })
}

func (r *run) addCluster() bool {
	name := clusterNames[r.IntN(len(clusterNames))]
	drawn := r.cluster(name)
	if _, ok := r.newest.clusters[name]; ok || r.lying {
		return false
	}
	return r.change(func(c *config) {
		c.version++
		c.clusters[name] = drawn
		r.reroute(c)
	})
}

func (r *run) dropCluster() bool {
	names := slices.Sorted(maps.Keys(r.newest.clusters))
	name := names[r.IntN(len(names))]
	if len(names) == 1 {
		return false
	}
	return r.change(func(c *config) {
		c.version++
		delete(c.clusters, name)
		r.reroute(c)
	})
}

// stopBackend stops a backend for a while, unless some client may have a
// cluster that would be left without one.
func (r *run) stopBackend(how func(*backend)) bool {
	i := r.IntN(len(r.backends))
	b := r.backends[i]
	if !b.sure {
		return false
	}
	for _, c := range r.history.live() {
		for _, s := range c.clusters {
			for _, p := range s.placements {
				left := slices.DeleteFunc(p.backends(), func(other int) bool { return other == i || !r.backends[other].sure })
				if len(left) == 0 {
					return false
				}
			}
		}
	}
	b.sure = false
	how(b)
	r.later(func() { r.must(b.Restart()) })
	return true
}

// fault does something to the control plane and undoes it later.
func (r *run) fault(do, undo func(*xdstest.Server)) bool {
	return r.faultOf(r.control, do, undo)
}

// faultOf does something to one of the control planes and undoes it later. Each
// has one such fault at a time.
func (r *run) faultOf(f *xdstest.Server, do, undo func(*xdstest.Server)) bool {
	if r.faulty[f] {
		return false
	}
	r.faulty[f] = true
	do(f)
	r.later(func() {
		undo(f)
		delete(r.faulty, f)
	})
	return true
}

// lie is a fault in which the control plane says what is not so, in a round of
// lies.
func (r *run) lie(do, undo func(*xdstest.Server)) bool {
	if !r.lying {
		return false
	}
	return r.fault(do, func(f *xdstest.Server) {
		undo(f)
		// What was lied about is not said again by itself.
		f.BreakStreams(errors.New("on purpose"))
	})
}

// spoil does something to a few resources of the store that all clients have in
// use, and puts them back later. Of the resources of DPDS that is the one that
// clients keep.
func (r *run) spoil(f func(tx *controlplane.Tx, k key)) bool {
	all := r.newest.allKeys()
	all[key{dynparam.MapTypeURL, keepsDPDS.resource()}] = true
	keys := slices.SortedFunc(maps.Keys(all), compare)
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:1+r.IntN(len(keys))]
	return r.lie(func(server *xdstest.Server) {
		r.update(func(tx *controlplane.Tx) {
			for _, k := range keys {
				f(tx, k)
			}
		})
	}, func(server *xdstest.Server) { r.store(r.newest) })
}

func (r *run) putErrors() bool {
	codes := []codes.Code{codes.NotFound, codes.PermissionDenied, codes.Internal, codes.Unavailable, codes.Code(99)}
	code := codes[r.IntN(len(codes))]
	return r.spoil(func(tx *controlplane.Tx, k key) {
		tx.SetError(k.typeURL, k.name, status.New(code, fmt.Sprintf("%s, on purpose", k.name)))
	})
}

// passingChannel opens a channel, makes an RPC and closes it. It needs a control
// plane that works: what the channels that are there wait for, it waits for too.
func (r *run) passingChannel() bool {
	who := clients[r.IntN(len(clients))]
	if r.faulty[r.control] || r.faulty[r.dpdsServer(who.dpds)] {
		return false
	}
	cc := r.dial(r.t, who)
	defer cc.Close()
	ctx := testutils.Context(r.t)
	if _, err := testpb.NewTestServiceClient(cc).UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(true)); err != nil {
		r.t.Errorf("a channel that came in round %d, %s: %v", r.rounds, who.name, err)
	}
	return true
}
