package soak

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dpdspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// dpdsOps are the operations on the constraints of DPDS.
var dpdsOps = []op{
	{"DPDS changes the constraints of one type", 8, func(r *run) bool {
		typeURL, l := lanedTypes[r.IntN(len(lanedTypes))], allLanes[r.IntN(len(allLanes))]
		return r.hand(r.drawClient(), func(h *handout) { h.lanes[typeURL] = l })
	}},
	{"DPDS changes the constraints of all types", 4, func(r *run) bool {
		l := r.drawLanes()
		return r.hand(r.drawClient(), func(h *handout) { h.lanes = l })
	}},
	{"DPDS changes the constraints, and all variants change", 3, func(r *run) bool {
		who, l, placements := r.drawClient(), r.drawLanes(), r.placements()
		return r.changeRoutes(func(c *config) {
			r.reroute(c)
			for name, s := range c.clusters {
				s.placements = placements
				c.clusters[name] = s
			}
			c.handouts[who.name] = handout{lanes: l}
		})
	}},
	{"DPDS denies a client its constraints", 3, func(r *run) bool {
		code := []codes.Code{codes.NotFound, codes.PermissionDenied}[r.IntN(2)]
		return r.refuse(r.drawClient(), code)
	}},
	{"DPDS fails for a client", 2, func(r *run) bool {
		code := []codes.Code{codes.Internal, codes.Unavailable}[r.IntN(2)]
		return r.refuse(r.drawClient(), code)
	}},
	{"a DPDS resource is deleted, and restored", 3, func(r *run) bool {
		use := r.drawUse()
		return r.lie(r.dpdsServer(use), func() { r.becomes(use, dpdsGone) }, func() { r.becomes(use, dpdsServed) })
	}},
	{"the control plane of DPDS restarts", 2, func(r *run) bool { return r.stop(r.policy, r.policy.Stop) }},
	{"DPDS responses are dropped", 2, dpdsLie(silence)},
	{"DPDS is garbage", 3, dpdsLie(eachResource(inside(func(a *anypb.Any) { a.Value = []byte("\xff\xff\xff garbage") })))},
	{"DPDS sends invalid constraints", 3, dpdsLie(eachResource(inside(faultyConstraints)))},
	{"DPDS contradicts itself", 2, dpdsLie(contradiction)},
	{"DPDS sends no resources", 2, dpdsLie(nothingLeft)},
}

func (d draw) drawClient() client {
	all := laned(d.clients)
	return all[d.IntN(len(all))]
}

func (d draw) drawUse() dpdsUse { return []dpdsUse{keepsDPDS, dropsDPDS}[d.IntN(2)] }

// drawLanes draws the lane of each type, or none.
func (d draw) drawLanes() map[string]lane {
	drawn := map[string]lane{}
	for _, typeURL := range lanedTypes {
		drawn[typeURL] = allLanes[d.IntN(len(allLanes))]
	}
	return drawn
}

// hand changes the handout of a client.
func (r *run) hand(who client, f func(*handout)) bool {
	return r.change(func(c *config) {
		h := handout{lanes: map[string]lane{}}
		maps.Copy(h.lanes, c.handouts[who.name].lanes)
		f(&h)
		c.handouts[who.name] = h
	})
}

// refuse gives a client an error in place of its constraints. A client that then has none
// stays so. For the others the error ends later, since the model does not know which
// constraints they received last.
func (r *run) refuse(who client, code codes.Code) bool {
	if !r.hand(who, func(h *handout) { h.instead = code }) {
		return false
	}
	if who.dpds == dropsDPDS && r.newest.handouts[who.name].withdrawn() {
		return true
	}
	r.later(func() {
		r.hand(who, func(h *handout) { h.instead = codes.OK })
	})
	return true
}

// becomes publishes another state of a DPDS resource.
func (r *run) becomes(use dpdsUse, state dpdsState) {
	r.change(func(c *config) { c.dpds[use.resource()] = state })
}

// dpdsServer is the control plane that DPDS comes from.
func (m *mesh) dpdsServer(use dpdsUse) *meshtest.Server {
	if use == dropsDPDS {
		return m.policy
	}
	return m.control
}

// dpdsLie distorts DPDS responses, and no others, for a while.
func dpdsLie(d distortion) func(*run) bool {
	return func(r *run) bool {
		use := r.drawUse()
		server := r.dpdsServer(use)
		return r.lie(server, func() {
			r.becomes(use, dpdsDoubtful)
			d.only(dynparam.MapTypeURL).begin(server)
		}, func() {
			server.OnResponse(nil)
			r.becomes(use, dpdsServed)
		})
	}
}

// only is the distortion of responses of one type.
func (d distortion) only(typeURL string) distortion {
	return func(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
		return cmp.Or(sotw.TypeUrl, delta.TypeUrl) != typeURL || d(sotw, delta)
	}
}

// inside spoils the resource in its wrapper, if it has one.
func inside(spoil func(*anypb.Any)) func(*anypb.Any) {
	return func(a *anypb.Any) {
		wrapper := new(discoverypb.Resource)
		if a.TypeUrl == dynparam.MapTypeURL || proto.Unmarshal(a.Value, wrapper) != nil {
			spoil(a)
			return
		}
		spoil(wrapper.Resource)
		value, err := proto.Marshal(wrapper)
		if err != nil {
			panic(err) // what was just unmarshalled
		}
		a.Value = value
	}
}

// faultyConstraints makes a DPDS resource that is half valid.
func faultyConstraints(a *anypb.Any) {
	faulty := &dpdspb.DynamicParameterConstraintsMap{
		ResourceTypeConstraints: map[string]*discoverypb.DynamicParameterConstraints{
			"envoy.config.route.v3.RouteConfiguration": lanes[2].constraints().ToProto(),
			"envoy.config.endpoint.v3.ClusterLoadAssignment": {
				KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{laneKey: {}},
			},
		},
	}
	spoiled, err := dynwire.MarshalMap(faulty)
	if err != nil {
		panic(err) // it has no text but constants
	}
	a.Value = spoiled.Value
}

// checkDPDS checks the DPDS resource of a client at rest.
func (c *config) checkDPDS(who client, held *xdsclient.ResourceDump) error {
	h := c.handouts[who.name]
	if h.instead != codes.OK {
		if held.State != xdsclient.StateReceivedError || held.Cached() {
			return fmt.Errorf("it gets %v instead of constraints, and the state of its DPDS resource is %v", h, held.State)
		}
		return nil
	}
	want, err := dynwire.MarshalMap(h.resource().ToProto())
	if err != nil {
		return err
	}
	if held.State != xdsclient.StateACKed || held.Failure != nil || !bytes.Equal(want.Value, held.Any().GetValue()) {
		return fmt.Errorf("its DPDS resource is %v, want that with %v: %+v", held.State, h, held.Failure)
	}
	return nil
}
