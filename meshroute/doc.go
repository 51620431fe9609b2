// Package meshroute turns MeshHTTPRoute policies into xDS resources.
//
// A service owner and a consumer each write a policy. [Parse] reads them from YAML
// or JSON; [Build] merges, for every service, those that concern one client, and
// translates the result into what the client subscribes to: a Listener, a
// RouteConfiguration, Clusters and ClusterLoadAssignments. What comes out is a
// [Mesh], an immutable value for a control plane to serve.
//
// The package is functions over values. It reads no files, opens no connections,
// and keeps no state: a Mesh is built anew for every change, with the last one as a
// source of the parts whose inputs are the same.
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
// of one name: variants, told apart by dynamic parameters (xRFC TP2). These are
// the client tags that make a difference, of which the name of the client's service
// is one, and [SpecificityKey], an integer. A client with service=frontend is given the
// constraints service="frontend", specificity≥0. A variant for frontend matches
// them, and so does the one for everybody else, which does not have the parameter
// service; of these TP2 prefers the one with the larger integer. So
// the constraints of a client depend on its tags alone: policies come and go, and
// nobody has to subscribe anew, unless policies name a tag that none has named before
// (see [ConstraintsFor]).
//
// # Implementations
//
// Clients of other implementations than dynxds reject, or misread, some of what policies
// and services can say. [Client.Implementation] keeps that from them: in the parameters
// [RoutesKey] and [AddressesKey], which are like tags that the client cannot choose.
package meshroute
