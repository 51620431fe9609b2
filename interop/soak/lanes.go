package soak

import (
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const (
	// laneKey is the dynamic parameter of the variants, and laneHeader the
	// response header by which routes say which variant they are.
	laneKey    = "lane"
	laneHeader = "soak-lane"
	// lanedNames is the authority of the resources that have variants, and
	// policyAuthority that of the DPDS resource that has a server of its own.
	lanedNames      naming = "lanes.example.com"
	policyAuthority naming = "policy.example.com"
	// dpdsID is the last part of the names of DPDS resources.
	dpdsID = "soak"
)

// lane is a value of the parameter. Resources with old-style names have no
// variants: they are unlaned.
type lane string

const unlaned lane = ""

var (
	lanes    = []lane{"a", "b", "c"}
	allLanes = append([]lane{unlaned}, lanes...)
	// lanedTypes are the types of which there is a variant in each lane.
	lanedTypes = []string{xdsmsg.ListenerType, xdsmsg.RouteType, xdsmsg.EndpointType}
)

// unconstrained is the lane that a control plane gives who does not constrain
// it: the smaller value first (see package controlplane's docs).
var unconstrained = lanes[0]

// names is how resources are named that the lane has variants of.
func (l lane) names() naming {
	if l == unlaned {
		return ""
	}
	return lanedNames
}

// parameters are those of the variants; none for unlaned.
func (l lane) parameters() map[string]string {
	if l == unlaned {
		return nil
	}
	return map[string]string{laneKey: string(l)}
}

// constraints are those that only the lane meets; none for unlaned.
func (l lane) constraints() dynparam.Constraints {
	c, err := dynparam.Exact(l.parameters())
	if err != nil {
		panic(err) // the lanes are constants
	}
	return c
}

// dpdsUse is what a client has to do with DPDS.
type dpdsUse int

const (
	// noDPDS: it asks for old-style names, without constraints.
	noDPDS dpdsUse = iota
	// keepsDPDS: what DPDS said last counts until it says something else
	// (gRFC A88). It comes from the server of everything else.
	keepsDPDS
	// dropsDPDS: DPDS comes from a server with fail_on_data_errors. When that
	// has nothing to say, or nothing valid, there are no constraints.
	dropsDPDS
)

// resource is the name of the DPDS resource.
func (u dpdsUse) resource() string {
	if u == dropsDPDS {
		return policyAuthority.name(dynparam.MapTypeURL, dpdsID)
	}
	return lanedNames.name(dynparam.MapTypeURL, dpdsID)
}

// names is how the client's resources are named.
func (u dpdsUse) names() naming {
	if u == noDPDS {
		return ""
	}
	return lanedNames
}

// dpdsState is how it is with a DPDS resource.
type dpdsState int

const (
	dpdsServed dpdsState = iota
	// dpdsGone: it does not exist. Over SotW a client may never hear of that.
	dpdsGone
	// dpdsDoubtful: it is there, but lied about.
	dpdsDoubtful
)

// handout is what DPDS says to a client.
type handout struct {
	// lanes are by type URL; a type that is not there is not constrained.
	lanes map[string]lane
	// instead is the code of the error that the client gets in place of them,
	// or OK.
	instead codes.Code
}

// String is for the report of a fault.
func (h handout) String() string {
	if h.instead != codes.OK {
		return h.instead.String()
	}
	s := ""
	for _, typeURL := range lanedTypes {
		s += fmt.Sprintf("%q", h.lanes[typeURL])
	}
	return s
}

// resource is the handout as the DPDS resource has it.
func (h handout) resource() (dynparam.ByType, error) {
	types := map[string]dynparam.Constraints{}
	for typeURL, l := range h.lanes {
		types[strings.TrimPrefix(typeURL, typeurl.Prefix)] = l.constraints()
	}
	return dynparam.NewByType(types)
}

// withdrawn reports whether the error says that the client has no constraints,
// rather than that it cannot be told them now.
func (h handout) withdrawn() bool {
	return h.instead == codes.NotFound || h.instead == codes.PermissionDenied
}

// putDPDS stores the DPDS resources.
func (c *config) putDPDS(tx *controlplane.Tx) {
	for _, use := range []dpdsUse{keepsDPDS, dropsDPDS} {
		if c.dpds[use.resource()] == dpdsGone {
			tx.Delete(dynparam.MapTypeURL, use.resource())
			continue
		}
		tx.SetDPDS(use.resource(), func(node *corepb.Node) (dynparam.ByType, error) {
			h := c.handouts[node.GetId()]
			if h.instead != codes.OK {
				return dynparam.ByType{}, status.Errorf(h.instead, "%s, on purpose", node.GetId())
			}
			return h.resource()
		})
	}
}

// constrained is the lane that a client asks for resources of a type in that has
// heard all that this configuration hands out; unlaned if in no lane.
func (c *config) constrained(who client, typeURL string) lane {
	h := c.handouts[who.name]
	if who.dpds == dropsDPDS && (h.withdrawn() || c.dpds[who.dpds.resource()] != dpdsServed) {
		return unlaned
	}
	return h.lanes[typeURL]
}

// lane is the one of which the client then gets the resources of a type.
func (c *config) lane(who client, typeURL string) lane {
	return who.served(typeURL, c.constrained(who, typeURL))
}

// lanes are those of which it may get them. What is doubtful it may believe: a
// control plane that contradicts itself says the truth as well.
func (c *config) lanes(who client, typeURL string) []lane {
	all := []lane{c.lane(who, typeURL)}
	if h := c.handouts[who.name]; c.dpds[who.dpds.resource()] == dpdsDoubtful && !h.withdrawn() {
		all = append(all, who.served(typeURL, h.lanes[typeURL]))
	}
	return all
}

// served is the lane of which a client gets the resources of a type that it asks for
// in a lane.
func (c client) served(typeURL string, l lane) lane {
	if c.dpds != noDPDS && l == unlaned && slices.Contains(lanedTypes, typeURL) {
		return unconstrained
	}
	return l
}

// routesType is the type of the resource that the routes are in.
func (c *config) routesType() string {
	if c.inline {
		return xdsmsg.ListenerType
	}
	return xdsmsg.RouteType
}

// routesKey is the resource that the routes are in, by its old-style name.
func (c *config) routesKey() key {
	if c.inline {
		return key{xdsmsg.ListenerType, service}
	}
	return key{xdsmsg.RouteType, c.routeName}
}

// lanesOf are those that a client may have resources of a type of, going by what
// any of the configurations hands out. Constraints are resources of their own:
// those of one configuration may meet the routes of another.
func lanesOf(live []*config, who client, typeURL string) []lane {
	var all []lane
	for _, c := range live {
		for _, l := range c.lanes(who, typeURL) {
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}
