// Package resolver is the gRPC resolver of the schemes "xds" and "dynxds".
//
// For each channel it follows the dependency graph that starts at the
// channel's Listener (LDS to RDS to CDS to EDS or DNS), and makes of every
// complete step one immutable snapshot with a version: a ConfigSelector for the
// channel's interceptors and a State for the root load-balancing policy.
//
// Where there is no control plane, or none that knows the target, it has DNS
// configure the channel instead (package dnsconfig), until xDS can.
//
// It does not decode resources (xdsresource does, once for all channels), nor
// talk to servers (xdsclient does), nor route RPCs (configselector does), nor
// pick endpoints (balancer does).
package resolver
