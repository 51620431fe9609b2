// Package meshroute turns MeshHTTPRoute policies into xDS resources.
//
// A service owner and a consumer each write a policy. [Parse] reads them from YAML or JSON; [Build]
// merges, for every service, the policies for a client, and translates the result into a Listener, a
// RouteConfiguration, Clusters and ClusterLoadAssignments. The result is a [Mesh], an immutable value
// for a control plane to serve.
//
// The package is functions over values. It reads no files, opens no connections, and keeps no state:
// every change builds another Mesh, which shares the unchanged parts with the previous one.
//
// # Merging
//
// Of the policies whose targetRef selects the client, the more specific one wins: Mesh, MeshSubset,
// MeshService, MeshServiceSubset, from least to most. Of two that are equally specific, the one whose
// name is first in the alphabet wins, as in Kuma. Rules with equal matches become one rule, whose fields
// (filters, backendRefs) are those of the most specific policy that has them. All other rules are kept
// side by side.
//
// # Variants
//
// Clients that are selected by different policies get different RouteConfigurations of one name:
// variants with different dynamic parameters (xRFC TP2). These are the client tags that make a
// difference, including the name of the client's service ("service"), and an integer, "specificity". A
// client with service=frontend gets the constraints service="frontend", specificity≥0. They match a
// variant for frontend and the one for all other clients, which does not have the parameter service; of
// these TP2 prefers the one with the larger integer. So the constraints of a client depend only on its
// tags: when policies are added or removed, clients keep their subscriptions, unless a policy uses a new
// tag (see [ConstraintsFor]).
//
// # Implementations
//
// Other implementations than dynxds reject or misread some resources of policies and services. The
// Implementation of a [Client] selects variants without these, by the parameters "xds_routes" ("grpc"
// for clients that know only the routes of gRFC A28) and "xds_addresses" ("ip" for clients that do not
// support host names of endpoints). They are like tags that the client cannot choose.
package meshroute
