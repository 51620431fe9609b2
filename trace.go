package dynxds

import (
	"context"

	"github.com/dynxds/dynxds/internal/rpctrace"
)

// WithTrace returns a context whose RPCs on xDS channels call the hooks of t. It is for finding
// out why one RPC went where it went:
//
//	ctx = dynxds.WithTrace(ctx, &dynxds.Trace{
//		Picked: func(p dynxds.TracePick) { log.Printf("%s: %s, %v", p.Cluster, p.Endpoint, p.Err) },
//	})
//	reply, err := client.Echo(ctx, request)
//
// If ctx already has a Trace, both get every event, t first. t is copied; nil adds nothing.
//
// An RPC without a Trace costs no allocation more than it would if there were no traces. One
// with a Trace allocates, and the first pick of a connection after its cluster's endpoints have
// changed searches these. Nothing else about the RPC changes.
func WithTrace(ctx context.Context, t *Trace) context.Context { return rpctrace.With(ctx, t) }

// Trace is a set of hooks that are called while an RPC is carried out. Any of them may be nil.
//
//   - WaitedForConfig (func(TraceConfigWait)): the RPC found its channel without a
//     configuration, and has waited for one.
//   - Routed (func(TraceRoute)): a route was chosen, or none matches. It is called again, with
//     the later choice, if the cluster was removed before an endpoint was picked.
//   - FilterStarted (func(TraceFilter)): an HTTP filter is about to see the RPC.
//   - FilterEnded (func(TraceFilter)): the filter has returned. As a filter calls the next one,
//     this is called in the opposite order of FilterStarted. It says nothing of what a filter
//     does later, with the messages of the RPC.
//   - FilterDecided (func(TraceFilter)): a filter that asks a service, or chooses among filters, has
//     decided on the RPC. Of ext_proc this may come late, with the RPC's trailers.
//   - Picked (func(TracePick)): an endpoint was picked, or the pick failed. Picks that wait for
//     a connection are not reported. There is another pick for each attempt, for an RPC with
//     grpc.WaitForReady after each failed one, and when gRPC finds the connection gone.
//   - AttemptEnded (func(TraceAttempt)): an attempt that was handed to gRPC has ended. RPCs
//     that a filter or the route answers have none.
//   - Retried (func(TraceRetry)): a retry will begin after a delay, unless the RPC ends first.
//   - Mirrored (func(TraceMirror)): a mirror of the RPC was started or dropped. Its own picks
//     and attempts are not reported.
//
// The hooks of one RPC may be called on any goroutine, concurrently (filters may send an RPC
// more than once), and after the RPC has ended for the application. RPCs with one context share
// its hooks. They run in the path of the RPC: they must not block, and must not use the RPC's
// stream.
//
// RPCs on channels that DNS resolves report WaitedForConfig, those on channels of other schemes nothing.
type Trace = rpctrace.Trace

// TraceConfigWait is an RPC's wait for the first configuration of its channel.
//
//   - Target (string) is the channel's target as it was dialled.
//   - Duration (time.Duration) is the time that the RPC waited.
//   - Err (error) is the status that the RPC fails with, or nil if there is a configuration.
type TraceConfigWait = rpctrace.ConfigWait

// TraceRoute is where an RPC was routed.
//
//   - Method (string) is the full method that the application called.
//   - RouteConfig and VirtualHost (string) name the RouteConfiguration and the virtual host.
//   - Name (string) is Route.name, which is often empty.
//   - Match (string) is the path that the route matches: "/package.Service/Method",
//     "/package.Service/*" for a prefix, "/package.Service{,/*}" for a path_separated_prefix, or
//     "~" and a regular expression. It is empty if no route matches.
//   - Cluster (string) is the cluster that was drawn. It is empty if the route answers the RPC
//     itself. An HTTP filter may still choose another cluster.
//   - Err (error) is the status that the RPC fails with, or nil.
type TraceRoute = rpctrace.Route

// TraceFilter is an HTTP filter's handling of an RPC.
//
//   - Name (string) is HttpFilter.name.
//
// The following are for FilterDecided only:
//
//   - Decision (string) of ext_authz is "allowed", "denied", "disabled" (by filter_enabled), "failed" (the service has not
//     decided, and the RPC fails) or "failed_open" (it goes on). Of ext_proc it is "passed", "ended" (by an immediate response),
//     "failed" or "failed_open". Of composite it is the field
//     of the action, with the filters that the RPC meets, or "no action".
//   - Err (error) is the status of an RPC that is denied or ended, or why the service has failed, or nil.
//
// The following are for FilterEnded only:
//
//   - PassedOn (bool): the filter has handed the RPC to the next one. Otherwise it has ended
//     the RPC, or does so, or passes it on, when it sees the messages.
//   - Err (error) is what the filter has returned, its own error or that of a later one.
//   - Duration (time.Duration) is the time until it returned, with that of later filters.
type TraceFilter = rpctrace.Filter

// TracePick is the choice of an endpoint.
//
//   - Cluster (string) is the cluster; if an endpoint of an aggregate cluster was picked, the
//     member that has it.
//   - Region, Zone and SubZone (string) are the locality of the endpoint, and Priority
//     (uint32) is the priority of the locality, 0 for the most preferred.
//   - Endpoint (string) is the address, "host:port".
//   - Reason (string) is why no endpoint was picked, in one of these words, or empty:
//     "dropped" (by drop_overloads or a policy), "max_requests" or "max_retries" (by circuit_breakers), "unreachable" (no
//     endpoint can be reached), "unusable" (the cluster is missing or invalid, or has no
//     endpoints, or a plugin finds none), "no_cluster" (the route's cluster was removed from the configuration),
//     "no_config" (the channel has lost its configuration).
//   - Err (error) is the same in full, or nil. Without an endpoint only Cluster is set besides.
type TracePick = rpctrace.Pick

// TraceAttempt is an attempt that has ended.
//
//   - Number (int) counts the attempts; the first one is 1.
//   - Cluster (string) is the cluster that it was routed to.
//   - Err (error) is its status, or nil for OK.
type TraceAttempt = rpctrace.Attempt

// TraceRetry is a retry or a hedge that is about to begin (gRFC A44, A6).
//
//   - Attempt (int) is the number of the attempt to come; 2 for the first retry.
//   - Delay (time.Duration) is the time until then.
//   - Err (error) is the status of the attempt before; nil for a hedge of attempts that go on.
type TraceRetry = rpctrace.Retry

// TraceMirror is a mirror of an RPC (request_mirror_policies).
//
//   - Cluster (string) is the cluster that it goes to.
//   - Dropped (bool): it was not sent, as too many are in flight, or the cluster is unknown.
type TraceMirror = rpctrace.Mirror
