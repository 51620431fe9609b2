// Package inspect has the values that describe the live state of an xDS channel: what its
// resolver follows, and what its balancer does with each cluster.
//
// The values are made on request, by the Source of the channel: its resolver, which
// asks the balancer. They are copies that may be kept, and encode as JSON. Package channels
// has the Source of each channel; package changes has what changed lately. This package knows
// neither the resolver nor the balancer, and keeps nothing.
package inspect

import (
	"context"
	"time"
)

// Source describes one channel between two of its idle periods. It may be called from any
// goroutine, but not with a lock of the resolver or the balancer held.
type Source interface {
	// Config describes what the channel is configured by.
	Config() Config
	// ClusterNames returns the clusters that the channel's routes lead to, those under
	// aggregate clusters excepted, in order.
	ClusterNames() []string
	// Cluster describes one of them. It reports false if the channel does not have it. If the
	// balancer does not answer before ctx ends, only what the resolver knows is returned, with
	// a Why that says so.
	Cluster(ctx context.Context, name string) (Cluster, bool)
}

// Channel is one xDS channel of the process.
type Channel struct {
	// Number identifies the channel in the process: 1 for the first that was used.
	Number uint64 `json:"number"`
	// Target is the channel's target as it was dialled.
	Target string `json:"target"`
	// Mode is where its configuration comes from: "undecided", "xDS" or "DNS". Reason is why,
	// and Since when the channel entered the mode.
	Mode   string    `json:"mode"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// State is the channel's connectivity.
	State State `json:"state"`
	// Config is nil while nothing runs for the channel, or it has no bootstrap: Why says which.
	Config *Config `json:"config,omitempty"`
	Why    string  `json:"why,omitempty"`
	// Source has the clusters. It is nil if Config is.
	Source Source `json:"-"`
}

// WithSource returns the channel as described by a source.
func (c Channel) WithSource(s Source) Channel {
	config := s.Config()
	c.Config, c.Source = &config, s
	return c
}

// State is a connectivity state, as gRPC writes it.
type State string

// The values of State.
const (
	Idle             State = "IDLE"
	Connecting       State = "CONNECTING"
	Ready            State = "READY"
	TransientFailure State = "TRANSIENT_FAILURE"
	Shutdown         State = "SHUTDOWN"
)

// Config is what the resolver of a channel follows.
type Config struct {
	// Version is the number of the last snapshot that the balancer was given. Snapshots are numbered
	// over the whole process. It is 0 before the first, as long as DNS configures the channel for example.
	Version uint64 `json:"version"`
	// Client identifies the xDS client that the channel uses: it is the fingerprint of the
	// bootstrap (xdsclient.Dump.BootstrapFingerprint).
	Client string `json:"client"`
	// Authority is that of the channel, which chooses the virtual host. Secure says that its
	// credentials check the authority, so that the scheme of RPCs is "https".
	Authority string `json:"authority"`
	Secure    bool   `json:"secure,omitempty"`
	// UsesXDS says that they leave the security of connections to the control plane (gRFC A29).
	UsesXDS bool `json:"uses_xds,omitempty"`
	// Listener is the name of the resource that the target names. Routes is that of the
	// RouteConfiguration it leads to; empty while that is not known, or if it is in the Listener.
	Listener string `json:"listener"`
	Routes   string `json:"routes,omitempty"`
	// NextRoutes is the RouteConfiguration that a newer Listener names, while it has not
	// answered and the one before is in use.
	NextRoutes string `json:"next_routes,omitempty"`
	// Clusters is the number of clusters that routes lead to.
	Clusters int `json:"clusters"`
	// WaitsFor names the clusters, at most MaxWaits of them, without whose answers a newer
	// configuration does not replace the one in use, or the first one does not replace DNS.
	// Waits is how many there are.
	WaitsFor []string `json:"waits_for,omitempty"`
	Waits    int      `json:"waits,omitempty"`
	// Error is why there is no configuration.
	Error string `json:"error,omitempty"`
}

// MaxWaits bounds Config.WaitsFor.
const MaxWaits = 20

// Balancer describes a cluster of a channel. It reports false if it does not have the cluster or is
// closed, or if ctx ends first.
type Balancer func(ctx context.Context, name string) (Cluster, bool)

// Cluster is one cluster of a channel.
type Cluster struct {
	Name string `json:"name"`
	// Kind is where its endpoints come from: "EDS", "STATIC", "STRICT_DNS", "LOGICAL_DNS" or
	// "aggregate". It is empty until the Cluster is known.
	Kind string `json:"kind,omitempty"`
	// Policy is the load-balancing policy that picks among endpoints, by its name in gRPC.
	// Service is the name of the ClusterLoadAssignment.
	Policy  string `json:"policy,omitempty"`
	Service string `json:"service,omitempty"`
	// Phase is the fate of the cluster's RPCs.
	Phase Phase `json:"phase"`
	// Error is the error of RPCs in PhaseFailed, or of RPCs without a session where all endpoints
	// are for sessions only. With Unserved it says that the balancer did not answer.
	Error string `json:"error,omitempty"`
	// Unserved says that the balancer does not have the cluster, at least not yet.
	Unserved bool `json:"unserved,omitempty"`
	// State is the cluster's connectivity.
	State State `json:"state"`
	// Notes is what is wrong with resources that are in use nevertheless, as errors of RPCs say
	// it (gRFC A88, resolution_note).
	Notes string `json:"notes,omitempty"`
	// Switching says that policies for a newer version of the Cluster get ready, and that
	// what is described serves until then.
	Switching bool `json:"switching,omitempty"`
	// Members are the clusters under an aggregate one, the most preferred first.
	Members []Member `json:"members,omitempty"`
	// Priorities are those of the endpoints, 0 first. It is nil in an aggregate cluster and
	// while the endpoints are not known.
	Priorities []Priority `json:"priorities,omitempty"`
	// Traffic is the RPCs of all channels of the process to the cluster. It is nil while no
	// RPC has needed the cluster, and in an aggregate cluster.
	Traffic *Traffic `json:"traffic,omitempty"`
}

// Phase is the fate of a cluster's RPCs.
type Phase string

// The values of Phase.
const (
	// PhaseResolving: they wait for a resource.
	PhaseResolving Phase = "resolving"
	// PhaseDormant: the first one will have the cluster connected. Until then there are no
	// connections.
	PhaseDormant Phase = "dormant"
	// PhaseFailed: they fail. Cluster.Error is their error.
	PhaseFailed Phase = "failed"
	// PhaseServing: they go to the endpoints, or to the members of an aggregate cluster.
	PhaseServing Phase = "serving"
)

// Member is a cluster under an aggregate one.
type Member struct {
	Use     Use     `json:"use"`
	Cluster Cluster `json:"cluster"`
}

// Use says whether a priority, or a member of an aggregate cluster, is in use (gRFC A56).
type Use struct {
	// InUse says that RPCs go there, or wait for it.
	InUse  bool   `json:"in_use"`
	Status Status `json:"status"`
	// Since is when Status began. It is zero if Status is StatusNotStarted.
	Since time.Time `json:"since,omitzero"`
	// FailoverEnd is when the failover timer of StatusConnecting ends, or ended if TimedOut. It is
	// zero if there is none because the connections failed before.
	FailoverEnd time.Time `json:"failover_end,omitzero"`
	TimedOut    bool      `json:"timed_out,omitempty"`
	// Deactivated is when a more preferred one took over. The connections are kept until
	// RetentionEnd. Both are zero otherwise.
	Deactivated  time.Time `json:"deactivated,omitzero"`
	RetentionEnd time.Time `json:"retention_end,omitzero"`
	// Error is the last error of a connection, or why there is none. It is set with
	// StatusFailed, and otherwise if there was one.
	Error string `json:"error,omitempty"`
}

// Status is how far one of several is.
type Status string

// The values of Status.
const (
	StatusNotStarted Status = "not started"
	StatusIdle       Status = "idle"
	StatusConnecting Status = "connecting"
	StatusReady      Status = "ready"
	StatusFailed     Status = "failed"
)

// Priority is one priority of a cluster's endpoints.
type Priority struct {
	Number     int        `json:"number"`
	Use        Use        `json:"use"`
	State      State      `json:"state"`
	Localities []Locality `json:"localities"`
}

// Locality is a locality of one priority.
type Locality struct {
	Region  string `json:"region"`
	Zone    string `json:"zone"`
	SubZone string `json:"sub_zone"`
	// Weight is its share of the priority's RPCs, unless AcrossLocalities.
	Weight uint32 `json:"weight"`
	// State is the connectivity of its endpoints together: that of the priority if one policy
	// picks across its localities, and IDLE if none runs.
	State     State      `json:"state"`
	Endpoints []Endpoint `json:"endpoints"`
}

// Endpoint is one endpoint of a locality.
type Endpoint struct {
	// Addresses are those of the resource, the preferred one first, as "host:port".
	Addresses []string `json:"addresses"`
	Hostname  string   `json:"hostname,omitempty"`
	Proxy     string   `json:"proxy,omitempty"`
	// Health is the status from the control plane, such as "HEALTHY". RPCs go to those that are
	// HEALTHY or UNKNOWN.
	Health string `json:"health"`
	Weight uint32 `json:"weight"`
	// Ejection is that of outlier detection, nil if the endpoint is not ejected.
	Ejection *Ejection `json:"ejection,omitempty"`
	// HealthCheck is the last answer of its health check: "SERVING", "NOT_SERVING", "UNIMPLEMENTED"
	// (which counts as healthy), or empty.
	HealthCheck string `json:"health_check,omitempty"`
	// State is that of the best of its connections, IDLE if there is none, and Since when it
	// began: attempts to connect again do not end a failure. Connected is the address that it leads to, if there are several.
	State     State     `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	Connected string    `json:"connected,omitempty"`
	// Error is the last error of a connection to it, also after that has worked, and ErrorTime
	// when that was. It goes with the connection.
	Error     string    `json:"error,omitempty"`
	ErrorTime time.Time `json:"error_time,omitzero"`
}

// Usable reports whether the control plane lets RPCs go to the endpoint.
func (e *Endpoint) Usable() bool { return e.Health == "HEALTHY" || e.Health == "UNKNOWN" }

// Ejection is the ejection of an endpoint (gRFC A50).
type Ejection struct {
	// Method is the algorithm that detected it: "success_rate", "failure_percentage", or the name
	// of the field of outlier_detection that limits consecutive failures.
	Method string    `json:"method"`
	Since  time.Time `json:"since"`
	// Until is the earliest end; the next check after it ends the ejection.
	Until time.Time `json:"until"`
}

// Traffic is the RPCs of the process to one cluster, with one ClusterLoadAssignment, that have not ended.
type Traffic struct {
	InFlight int64 `json:"in_flight"`
}
