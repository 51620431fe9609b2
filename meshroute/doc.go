// Package meshroute turns MeshHTTPRoute policies into xDS resources.
//
// A service owner and a consumer each write a policy. [Parse] reads them from YAML
// or JSON; [Build] merges, for every service, those that concern one client, and
// translates the result into what the client subscribes to: a Listener, a
// RouteConfiguration, Clusters and ClusterLoadAssignments. What comes out is a
// [Mesh], an immutable value for a control plane to serve.
//
// The package is functions over values. It reads no files, opens no connections,
// and keeps no state: every change builds another Mesh, which shares with the last one
// the parts whose inputs are the same.
//
// # Merging
//
// Of the policies whose targetRef selects the client, the more specific one wins: Mesh,
// MeshSubset, MeshService, MeshServiceSubset, from least to most. Of two that are
// equally specific the one wins whose name comes first in the alphabet, as in Kuma.
// Rules with equal matches become one rule, in which a field (filters, backendRefs) is
// that of the most specific policy that has it. All other rules stand side by side.
//
// # Variants
//
// Clients that are selected by different policies get different RouteConfigurations
// of one name: variants, told apart by dynamic parameters (xRFC TP2). These are the
// client tags that make a difference, of which the name of the client's service is one
// ("service"), and an integer, "specificity". A client with service=frontend is given
// the constraints service="frontend", specificity≥0. A variant for frontend matches
// them, and so does the one for everybody else, which does not have the parameter
// service; of these TP2 prefers the one with the larger integer. So the constraints of a
// client depend on its tags alone: when policies are added or removed, clients keep
// their subscriptions, unless a policy names a tag that none has named before (see
// [ConstraintsFor]).
//
// # Implementations
//
// Clients of other implementations than dynxds reject, or misread, some of what policies
// and services can say. The Implementation of a [Client] keeps that from them: in the
// parameters "xds_routes" (which is "grpc" for clients that know only the routes of gRFC
// A28) and "xds_addresses" ("ip" for clients that take no host name for an endpoint). They
// are like tags that the client cannot choose.
package meshroute
