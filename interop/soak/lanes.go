package soak

import (
	"fmt"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const (
	// laneKey is the dynamic parameter of the variants, and laneHeader the
	// response header with the lane of the routes.
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
	// lanedTypes are the types with a variant in each lane.
	lanedTypes = []string{xdsmsg.ListenerType, xdsmsg.RouteType, xdsmsg.EndpointType}
)

// unconstrained is the lane that a client without constraints gets: the smallest value
// (see package controlplane's docs).
var unconstrained = lanes[0]

// names is the naming of the resources that have variants in the lane.
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

// dpdsUse is how a client uses DPDS.
type dpdsUse int

const (
	// noDPDS: it subscribes to old-style names, without constraints.
	noDPDS dpdsUse = iota
	// keepsDPDS: the last valid constraints count (gRFC A88). DPDS comes from the
	// server of all other resources.
	keepsDPDS
	// dropsDPDS: DPDS comes from a server with fail_on_data_errors. An error or an
	// invalid resource leaves the client without constraints.
	dropsDPDS
)

// resource is the name of the DPDS resource.
func (u dpdsUse) resource() string {
	if u == dropsDPDS {
		return policyAuthority.name(dynparam.MapTypeURL, dpdsID)
	}
	return lanedNames.name(dynparam.MapTypeURL, dpdsID)
}

// names is the naming of the client's resources.
func (u dpdsUse) names() naming {
	if u == noDPDS {
		return ""
	}
	return lanedNames
}

// dpdsState is the state of a DPDS resource.
type dpdsState int

const (
	dpdsServed dpdsState = iota
	// dpdsGone: it does not exist. Over SotW a client may never learn that.
	dpdsGone
	// dpdsDoubtful: it exists, but responses about it are distorted.
	dpdsDoubtful
)

// handout is the DPDS resource for a client.
type handout struct {
	// lanes are by type URL; other types are not constrained.
	lanes map[string]lane
	// instead is the code of the error that the client gets in their place, or OK.
	instead codes.Code
}

// String is for error messages.
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

// resource returns the constraints of the handout.
func (h handout) resource() dynparam.ByType {
	types := map[string]dynparam.Constraints{}
	for typeURL, l := range h.lanes {
		types[typeurl.Name(typeURL)] = l.constraints()
	}
	all, err := dynparam.NewByType(types)
	if err != nil {
		panic(err) // the types are constants
	}
	return all
}

// withdrawn reports whether the error means that the client has no constraints, rather
// than a transient failure.
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
			return h.resource(), nil
		})
	}
}

// constrained is the lane that a client with this configuration's handout subscribes to
// for a type; unlaned if it has no constraint.
func (c *config) constrained(who client, typeURL string) lane {
	h := c.handouts[who.name]
	if who.dpds == dropsDPDS && (h.withdrawn() || c.dpds[who.dpds.resource()] != dpdsServed) {
		return unlaned
	}
	return h.lanes[typeURL]
}

// lane is the lane of the resources of a type that the client then gets.
func (c *config) lane(who client, typeURL string) lane {
	return who.served(typeURL, c.constrained(who, typeURL))
}

// served is the lane that a client gets for a type when it subscribes to a lane.
func (c client) served(typeURL string, l lane) lane {
	if c.dpds != noDPDS && l == unlaned && slices.Contains(lanedTypes, typeURL) {
		return unconstrained
	}
	return l
}

// routesKey is the resource with the routes, by its old-style name.
func (c *config) routesKey() key {
	if c.inline {
		return key{xdsmsg.ListenerType, service}
	}
	return key{xdsmsg.RouteType, c.routeName}
}

// lanesOf are the lanes of which a client may have resources of a type, by any of the
// configurations. Constraints are resources of their own: a client may have those of one
// configuration and the routes of another. It may accept a doubtful handout, since a control
// plane that contradicts itself sends the correct one as well.
func lanesOf(live []*config, who client, typeURL string) (all []lane) {
	for _, c := range live {
		all = append(all, c.lane(who, typeURL))
		if h := c.handouts[who.name]; c.dpds[who.dpds.resource()] == dpdsDoubtful && !h.withdrawn() {
			all = append(all, who.served(typeURL, h.lanes[typeURL]))
		}
	}
	if who.starting {
		all = append(all, who.served(typeURL, unlaned))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
