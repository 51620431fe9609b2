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

	source Source
}

// WithSource returns the channel as described by a source.
func (c Channel) WithSource(s Source) Channel {
	config := s.Config()
	c.Config, c.source = &config, s
	return c
}

// ClusterNames returns the names of the channel's clusters, see Source. The list is that of now,
// not of the time when the Channel was made.
func (c Channel) ClusterNames() []string {
	if c.source == nil {
		return nil
	}
	return c.source.ClusterNames()
}

// Cluster describes a cluster of the channel as it is now, see Source.
func (c Channel) Cluster(ctx context.Context, name string) (Cluster, bool) {
	if c.source == nil {
		return Cluster{}, false
	}
	return c.source.Cluster(ctx, name)
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
	// Version is that of the last snapshot that the balancer was given, at the time Published.
	// Snapshots are numbered over the whole process. It is 0 before the first, as long as DNS
	// configures the channel for example.
	Version   uint64    `json:"version"`
	Published time.Time `json:"published,omitzero"`
	// Client identifies the xDS client that the channel uses: it is the fingerprint of the
	// bootstrap (xdsclient.Dump.BootstrapFingerprint).
	Client string `json:"client"`
	// Authority is that of the channel, which chooses the virtual host. Secure says that its
	// credentials check the authority, so that the scheme of RPCs is "https".
	Authority string `json:"authority"`
	Secure    bool   `json:"secure,omitempty"`
	// UsesXDS says that they leave the security of connections to the control plane (gRFC A29).
	UsesXDS bool `json:"uses_xds,omitempty"`
	// Listener is the resource that the target names. Routes is the RouteConfiguration it
	// leads to; nil while that is not known, or if it is in the Listener, whose Inline is set.
	Listener Resource  `json:"listener"`
	Routes   *Resource `json:"routes,omitempty"`
	// NextRoutes is the RouteConfiguration that a newer Listener names, while it has not
	// answered and the one before is in use.
	NextRoutes *Resource `json:"next_routes,omitempty"`
	Inline     bool      `json:"inline_routes,omitempty"`
	// VirtualHost is the name of the virtual host in use.
	VirtualHost string `json:"virtual_host,omitempty"`
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

// Resource is one resource that the resolver watches.
type Resource struct {
	// Type is the short name of the type, such as "Listener".
	Type string `json:"type"`
	Name string `json:"name"`
	// Known says that there is a valid version, which is in use. Without it and without Error
	// the management server has not answered yet.
	Known bool `json:"known"`
	// Error is why there is none. Ambient is what is wrong although the last valid version
	// stays in use, such as the error of a newer version or the loss of the server (gRFC A88).
	Error   string `json:"error,omitempty"`
	Ambient string `json:"ambient,omitempty"`
}
