// Package resolver is the gRPC resolver of the schemes "xds" and "dynxds".
//
// For each channel it watches the resources that its Listener depends on (LDS to RDS to CDS
// to EDS or DNS), and publishes each complete configuration as an immutable, versioned
// snapshot: a Selector for the channel's interceptors and a State for the root
// load-balancing policy. Without a control plane, or if that does not know the target, DNS
// configures the channel (package dnsconfig) until xDS can.
//
// It does not decode resources (xdsresource does, once for all channels), talk to servers
// (xdsclient), route RPCs (configselector) or pick endpoints (balancer).
package resolver
