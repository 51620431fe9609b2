package explain

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// An Explanation is what happens to an RPC, and why. It is a plain value, which owns all that it
// refers to. Shares are in percent of the RPCs that the Request describes. Parts that do not
// apply are empty.
type Explanation struct {
	Request Request `json:"request"`
	Client  Client  `json:"client"`
	// Outcome is the answer on one line. Code is the status that every such RPC fails with, for
	// example "UNAVAILABLE", or empty.
	Outcome string `json:"outcome"`
	Code    string `json:"code,omitempty"`
	// Pending is set while the channel takes older routes than those described, and says until when. Code is
	// empty then.
	Pending string `json:"pending,omitempty"`
	// Notes are what else there is to know, the most important first: servers that cannot be
	// reached, resources that are missing.
	Notes []string `json:"notes,omitempty"`

	Listener *ResourceStatus `json:"listener,omitempty"`
	// RouteConfig is the Listener itself if it has the RouteConfiguration inline.
	RouteConfig *ResourceStatus `json:"route_config,omitempty"`
	// VirtualHosts are all of the RouteConfiguration; at most one is chosen.
	VirtualHosts []VirtualHost `json:"virtual_hosts,omitempty"`
	// Routes are those of the virtual host that were tried, in order, up to one that every
	// such RPC takes. RoutesLeft is the number of those after it.
	Routes     []Route `json:"routes,omitempty"`
	RoutesLeft int     `json:"routes_left,omitempty"`
	// Unrouted is the share of RPCs that no route matches, which fail with UNAVAILABLE.
	Unrouted float64 `json:"unrouted,omitempty"`
	// Clusters are those that the RPC may go to and those that it may be mirrored to, with the
	// members of aggregate clusters, each once, the likeliest first.
	Clusters []*Cluster `json:"clusters,omitempty"`
	// Services are, in a survey, the targets that filters of the Listener need for RPCs not to fail, by the names of the filters.
	Services map[string]string `json:"-"`

	outcomes []string // of the routes that are taken
}

// Client is the xDS client that has the resources.
type Client struct {
	// Source is where the resources come from: "this process", the address of a process, or a
	// folder.
	Source string `json:"source"`
	// NodeID is the id of the client's node. Name and Version are its user agent.
	NodeID  string `json:"node_id,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Channel is the state of the channel, if the source knows it: "READY".
	Channel string             `json:"channel,omitempty"`
	Servers []livestate.Server `json:"servers,omitempty"`
}

// ResourceStatus is one resource as the client has it.
type ResourceStatus struct {
	// Type is the short name: "Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment".
	Type string `json:"type"`
	Name string `json:"name"`
	// State is as gRFC A88 writes it: "ACKED", "NACKED", "DOES_NOT_EXIST"; of a folder, which no client has, it is
	// WouldBeSent or WouldBeAnError. It is empty if the source has no resource of that name.
	State string `json:"state,omitempty"`
	// Cached is set if a version is in use, in any State.
	Cached  bool      `json:"cached"`
	Version string    `json:"version,omitempty"`
	Server  string    `json:"server,omitempty"`
	Updated time.Time `json:"updated,omitzero"`
	// FromDisk is how old a resource is that the client has from disk, as no server has answered for
	// it: "12 minutes old". It is empty for others.
	FromDisk string `json:"from_disk,omitempty"`
	// Variant is the constraints or the parameters that the resource is watched by (xRFC TP2).
	Variant string `json:"variant,omitempty"`
	// Error is why there is no resource, or what is wrong with a version newer than the one in
	// use, which ErrorVersion and ErrorTime are those of.
	Error        string    `json:"error,omitempty"`
	ErrorVersion string    `json:"error_version,omitempty"`
	ErrorTime    time.Time `json:"error_time,omitzero"`
	// Ignored are the populated fields that the client does not act on.
	Ignored []xdsclient.Ignored `json:"ignored,omitempty"`
	// Faults are what dynxds rejects in a resource that the client uses.
	Faults []string `json:"faults,omitempty"`
}

// The states of resources in a folder.
const (
	WouldBeSent    = "would be sent"
	WouldBeAnError = "would be an error"
)

// VirtualHost is a virtual host that was considered.
type VirtualHost struct {
	Name    string   `json:"name"`
	Domains []string `json:"domains"`
	Chosen  bool     `json:"chosen"`
	// Domain is the domain that matches the authority, or empty.
	Domain string `json:"domain,omitempty"`
	// Reason is why it is chosen or not.
	Reason string `json:"reason"`
	At     string `json:"at,omitempty"`
}

// Route is a route that was tried.
type Route struct {
	// Index is its index in the virtual host of the resource.
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
	// Match is what it matches in words, `prefix "/" and header x-user = "7"`.
	Match string `json:"match"`
	// Failed is the first condition that does not hold and what the RPC has, in words, `header x-user is "7"`. It is empty if all hold.
	Failed string `json:"failed,omitempty"`
	// Later is set if it comes after one that takes all RPCs which reach it. Of these routes, only those are listed whose
	// path matches.
	Later bool `json:"later,omitempty"`
	// LeftOut is why the client has no such route, or empty.
	LeftOut string `json:"left_out,omitempty"`
	// Unchecked lists which conditions the client does not check, or is empty.
	Unchecked string `json:"unchecked,omitempty"`
	// Share is the share of all RPCs that take the route.
	Share float64 `json:"share"`
	At    string  `json:"at,omitempty"`
	// Action is what becomes of RPCs that take the route, nil if none does.
	Action *Action `json:"action,omitempty"`

	// otherPath is set if the path is what does not match, and endings are what becomes of RPCs that take the route.
	otherPath bool
	endings   []ending
}

// Action is what becomes of an RPC that takes a route.
type Action struct {
	// Kind is "forward", "direct_response", "redirect" or "unroutable".
	Kind string `json:"kind"`
	// Code and Message are the status of RPCs that are not forwarded, unless a filter ends them before.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Destinations are the clusters to draw from, by weight.
	Destinations []Destination `json:"destinations,omitempty"`
	// Filters are the HTTP filters in the order in which they see the RPC.
	Filters []Filter `json:"filters,omitempty"`
	// Settings are what else is done to them, by name: "timeout", "retry" (gRFC A44), "hash" (gRFC A42), "path", "authority", "headers".
	Settings []Setting     `json:"settings,omitempty"`
	Mirrors  []Destination `json:"mirrors,omitempty"`
}

// Destination is a cluster that an RPC may go to or be mirrored to.
type Destination struct {
	// Cluster is the name, empty if the header that should have it does not.
	Cluster string `json:"cluster"`
	// Header names the header that has the name of the cluster, or is empty.
	Header string `json:"header,omitempty"`
	// Weight is out of the sum of the weights of an Action, and Percent the share of the RPCs that
	// take the route. Weight is 0 for a mirror, and for a cluster that gets no RPC, of which nothing else is described.
	Weight  uint32  `json:"weight,omitempty"`
	Percent float64 `json:"percent"`
	// Error is why RPCs that draw it fail, or are not mirrored.
	Error string `json:"error,omitempty"`
	// Filters replace those of the Action if they differ, and Settings are added to its own.
	Filters  []Filter  `json:"filters,omitempty"`
	Settings []Setting `json:"settings,omitempty"`
	// Ignored is why the client does not act on it, or empty.
	Ignored string `json:"ignored,omitempty"`
	At      string `json:"at,omitempty"`
}

// Filter is an HTTP filter with the configuration that is in force for the RPC.
type Filter struct {
	Name string `json:"name"`
	// Type is the name of the configuration's type, "envoy.extensions.filters.http.fault.v3.HTTPFault".
	Type     string `json:"type"`
	Disabled bool   `json:"disabled,omitempty"`
	// Config is the configuration in the Listener as JSON, and Override that of Level, which the
	// filter merges with it or uses in its place.
	Config   json.RawMessage `json:"config,omitempty"`
	Override json.RawMessage `json:"override,omitempty"`
	// Level is the most specific level with a configuration of the filter: "Listener", "virtual
	// host", "route" or "weighted cluster". At is its place.
	Level string `json:"level"`
	// Ends is which of the RPCs that reach the filter it ends, nil if none, or if that is not known.
	Ends *FilterEnd `json:"ends,omitempty"`
	// Chooses is what a composite filter chooses for the RPC: the path of the action, and its filters.
	Chooses string `json:"chooses,omitempty"`
	Ignored string `json:"ignored,omitempty"`
	At      string `json:"at,omitempty"`
}

// FilterEnd is the share of RPCs that a filter ends, and the status that they end with.
type FilterEnd struct {
	Percent float64 `json:"percent"`
	Code    string  `json:"code"`
}

// Setting is something that is set for RPCs, or for a cluster.
type Setting struct {
	Name string `json:"name"`
	// Value is in words: `"/a.B/C" → "/d.E/F" (prefix_rewrite)`.
	Value string `json:"value"`
	// Level is as in Filter, or "RouteConfiguration"; it is empty where there is one level only.
	Level   string `json:"level,omitempty"`
	Ignored string `json:"ignored,omitempty"`
	At      string `json:"at,omitempty"`
}

// Cluster is a cluster that RPCs may go to.
type Cluster struct {
	Name string `json:"name"`
	// Share is the share of all RPCs that go to it; members of aggregate clusters have none of
	// their own. Mirror is set if RPCs are mirrored to it.
	Share  float64 `json:"share"`
	Mirror bool    `json:"mirror,omitempty"`
	// Of names the aggregate cluster that it is a member of.
	Of       string          `json:"of,omitempty"`
	Resource *ResourceStatus `json:"resource,omitempty"`
	// Type is "EDS", "STATIC", "STRICT_DNS", "LOGICAL_DNS", "aggregate", or "plugin": one of the routes that names another cluster for each RPC.
	Type string `json:"type,omitempty"`
	// Members are the clusters of an aggregate one, the most preferred first; InUse is the
	// one that gets the RPCs, and Reason why.
	Members []string `json:"members,omitempty"`
	InUse   string   `json:"in_use,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Fate
	// Settings are the "policy" of load balancing, "security", "limit" and "outliers" of one that is not an aggregate cluster.
	Settings   []Setting          `json:"settings,omitempty"`
	Assignment *ClusterAssignment `json:"assignment,omitempty"`
	// Connections says how many endpoints of a process that was asked are connected, or that this is unknown, and RPCs what
	// became of RPCs lately.
	Connections string `json:"connections,omitempty"`
	RPCs        string `json:"rpcs,omitempty"`
	At          string `json:"at,omitempty"`

	// Refused is why the cluster's RPCs fail whatever its endpoints do; empty: they do not. An aggregate cluster uses no other member
	// for that reason.
	Refused string `json:"-"`
	// described is set once the cluster is in the explanation.
	described bool
	value     *xdsresource.Cluster
}

// Value returns the Cluster that the client has, nil if it has none, or if the explanation was read from JSON.
func (c *Cluster) Value() *xdsresource.Cluster { return c.value }

// Setting returns the value of a setting, or "".
func (c *Cluster) Setting(name string) string {
	for i := range c.Settings {
		if c.Settings[i].Name == name {
			return c.Settings[i].Value
		}
	}
	return ""
}

// Fate is why RPCs do not arrive. At most one of its fields is set, and none if they do.
type Fate struct {
	// Error is why they fail, Waits what they wait for, and Unknown why it cannot be told what becomes of them.
	Error   string `json:"error,omitempty"`
	Waits   string `json:"waits,omitempty"`
	Unknown string `json:"unknown,omitempty"`
}

// ClusterAssignment is where a cluster's RPCs can go.
type ClusterAssignment struct {
	// Resource is the ClusterLoadAssignment, nil if the Cluster has its endpoints or names for DNS.
	Resource *ResourceStatus `json:"resource,omitempty"`
	// Drops are shares of RPCs that fail at once.
	Drops []Drop `json:"drops,omitempty"`
	// Live is set if the states of endpoints and the priority in use are those of the running channel. If it is not set,
	// the priority follows from the health of the endpoints.
	Live       bool       `json:"live"`
	Priorities []Priority `json:"priorities,omitempty"`
	// At has where endpoints were written, by their addresses.
	At map[string]string `json:"at,omitempty"`
}

// InUse returns the priority that gets the RPCs, nil if none does.
func (a *ClusterAssignment) InUse() *Priority {
	if a == nil {
		return nil
	}
	for i := range a.Priorities {
		if p := &a.Priorities[i]; p.Use.InUse {
			return p
		}
	}
	return nil
}

// Endpoints returns the endpoints of all priorities.
func (a *ClusterAssignment) Endpoints() (all []*inspect.Endpoint) {
	for i := range a.Priorities {
		all = slices.AppendSeq(all, livestate.EndpointsOf(&a.Priorities[i].Priority))
	}
	return all
}

// Drop is a share of RPCs that fail.
type Drop struct {
	Category string `json:"category"`
	// Percent is of the RPCs that earlier drops let pass.
	Percent float64 `json:"percent"`
}

// Priority is the endpoints of one priority. States that are not known are empty.
type Priority struct {
	inspect.Priority
	// Reason is why it is in use or not.
	Reason string `json:"reason,omitempty"`
	// Percents are the shares of its RPCs that the localities get.
	Percents []float64 `json:"percents"`
}
