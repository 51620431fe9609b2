package inspect

import "time"

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
	// SubsetOfPriority and SubsetOfLocality are how many of the endpoints of a priority, and of each
	// locality, the policy gets (gRFC A68). 0: all. The others are IDLE.
	SubsetOfPriority uint32 `json:"subset_of_priority,omitempty"`
	SubsetOfLocality uint32 `json:"subset_of_locality,omitempty"`
	// Phase is the fate of the cluster's RPCs.
	Phase Phase `json:"phase"`
	// Error is the error of RPCs in PhaseFailed, or of RPCs without a session where all endpoints
	// are for sessions only. With Unserved it says that the balancer did not answer.
	Error string `json:"error,omitempty"`
	// Unserved says that the balancer does not have the cluster, at least not yet.
	Unserved bool `json:"unserved,omitempty"`
	// State is the cluster's connectivity.
	State State `json:"state"`
	// Resources are what the resolver watches for the cluster: the Cluster, those under it if
	// it is an aggregate one, and their ClusterLoadAssignments; at most MaxResources. It is nil
	// in a Member.
	Resources []Resource `json:"resources,omitempty"`
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

// MaxResources bounds Cluster.Resources.
const MaxResources = 100

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
	// Switching says that the load-balancing policy has changed, and that RPCs go to the endpoints of
	// before until the new policy has a connection. State is that of before, too.
	Switching bool `json:"switching,omitempty"`
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
	// Multiplier is the number of ejections less the intervals without one. The ejection lasts
	// that many times base_ejection_time.
	Multiplier int `json:"multiplier"`
}

// Traffic is the RPCs of the process to one cluster, with one ClusterLoadAssignment, since it
// came into use. A rate is the difference of two readings.
type Traffic struct {
	// Picked is the number of RPCs and attempts that were given an endpoint.
	Picked uint64 `json:"picked"`
	// InFlight is how many of them have not ended. Limit is circuit_breakers.max_requests.
	InFlight int64  `json:"in_flight"`
	Limit    uint32 `json:"limit"`
	// Refused is the number of RPCs over the limit, Dropped that of those dropped for each
	// category of drop_overloads.
	Refused uint64            `json:"refused"`
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}
